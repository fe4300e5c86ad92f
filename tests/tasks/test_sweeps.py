"""Sweeps of real runs."""

import pytest

from ssrl.runlog.folder import RunFolder, State

pytestmark = pytest.mark.slow


def test_a_sweep_runs_every_seed(runs):
    code, said = runs.command("-m", "seed=0,1", "train.steps=1")
    assert code == 0, said
    folders = [RunFolder(path) for path in sorted(runs.home.glob("runs/*/seed*"))]
    assert [folder.path.name for folder in folders] == ["seed0", "seed1"] and folders[0].path.parent == folders[1].path.parent
    assert [folder.status().state for folder in folders] == [State.DONE, State.DONE]
    texts = [folder.metrics()[0]["train/reward"] for folder in folders]
    assert texts[0] != texts[1]


def test_a_failing_job_leaves_its_traceback_and_the_other_still_runs(runs):
    # the prompts of the first are longer than allowed, which only the tokenizer can tell
    code, said = runs.command("-m", "rollout.max_prompt_tokens=5,300", "train.steps=1")
    assert code == 1 and "are longer than rollout.max_prompt_tokens=5" in said
    states = {RunFolder(path).status().state: RunFolder(path).status() for path in runs.home.glob("runs/*/seed0")}
    assert set(states) == {State.FAILED, State.DONE}
    assert "Traceback" in states[State.FAILED].error and "UserError" in states[State.FAILED].error


def test_a_sweep_of_several_processes_a_run_is_refused_outside_of_slurm(runs):
    code, said = runs.command("-m", "seed=0,1", "trainer=ddp2", rewarded=False)
    assert code == 1 and "in a sweep needs hydra/launcher=slurm" in said and "Traceback" not in said
    assert not (runs.home / "runs").exists() or not list(runs.home.glob("runs/*/seed*"))
