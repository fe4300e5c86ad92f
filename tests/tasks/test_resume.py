"""A run that is interrupted and continued is the run that was never interrupted, to the last bit."""

import json
import shlex
import shutil

import pytest
import torch

from ssrl.runlog.folder import State
from ssrl.runlog.rollouts import read_rollouts, rollout_files
from tests.lines import prepare


def state(folder, role="last"):
    checkpoint = torch.load(folder.path / "checkpoints" / f"{role}.ckpt", weights_only=False)
    return {name: checkpoint[name] for name in ("state_dict", "optimizer_states", "lr_schedulers", "ssrl") if name in checkpoint}


def metrics(folder):
    return [{key: value for key, value in row.items() if not key.startswith("time")} for row in folder.metrics()]


def drawn(folder):
    """Question and text of every training rollout, by step."""
    return {
        step: [(r["question"]["id"], r["tokens"]["text"], r["advantage"]) for r in read_rollouts(path)]
        for split, step, path in rollout_files(folder.path / "rollouts")
        if split == "train"
    }


def assert_same(left, right, where=""):
    """Deep equality, to the bit for tensors."""
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), where
        for i, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{where}/{i}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif hasattr(left, "tolist"):
        assert left.tolist() == right.tolist(), where
    else:
        assert left == right, where


KL = ["algo.kl=loss", "algo.kl_coef=0.1", "algo.updates=2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("questions", "words"),
    [
        pytest.param(8, [], id="in the middle of an epoch"),
        pytest.param(7, KL, id="before a batch across the border, with KL and two updates a batch"),
        pytest.param(6, ["eval.every=3"], id="as an epoch ends, with validation in between"),
        pytest.param(6, [*KL, "eval.every=1"], id="as an epoch ends, with everything"),
    ],
)
def test_six_steps_are_three_and_then_three(runs, words, questions):
    words = [f"data.train.bundled.limit={questions}", *words]
    whole = runs.run("train.steps=6", *words)
    expected = state(whole), metrics(whole), drawn(whole)
    shutil.rmtree(whole.path)
    runs.run("train.steps=3", *words)
    continued = runs.run("train.steps=6", *words)
    assert_same(expected[0], state(continued))
    assert_same(expected[1], metrics(continued))
    assert_same(expected[2], drawn(continued))
    assert len({r[0] for step in expected[2].values() for r in step}) == questions


def test_a_run_that_was_killed_between_checkpoints_repeats_the_lost_steps(runs):
    whole = runs.run("train.steps=5", "train.save_every=2", "eval.every=5")
    expected = state(whole), metrics(whole), drawn(whole)
    best = state(whole, "best")
    shutil.rmtree(whole.path)
    run = runs.run("train.steps=4", "train.save_every=2", "eval.every=5")
    # what a kill in step 6 would leave: records of steps whose checkpoint was never written
    run.append_metrics({"step": 5, "train/reward": -1.0})
    run.append_metrics({"step": 6, "train/reward": -1.0})
    run.rollouts.append("train", 5, [{"step": 5, "torn": True}])
    (run.path / "checkpoints" / ".last.ckpt.part").write_bytes(b"half")
    status = json.loads((run.path / "status.json").read_text())
    (run.path / "status.json").write_text(json.dumps(status | {"state": "running"}))
    continued = runs.run("train.steps=5", "train.save_every=2", "eval.every=5")
    assert_same(expected[0]["state_dict"], state(continued)["state_dict"])
    assert_same([row for row in expected[1] if row["step"] == 5], [row for row in metrics(continued) if row["step"] == 5])
    assert_same(expected[2], drawn(continued))
    assert best.keys() == state(continued, "best").keys()


def test_a_finished_run_is_only_shown_again(runs, capsys):
    runs.run("train.steps=2", "eval.every=1")
    files = {path: path.read_bytes() for path in runs.home.rglob("*") if path.is_file() and path.name not in ("owner.json",)}
    scored = len(runs.scored)
    capsys.readouterr()
    folder = runs.run("train.steps=2", "eval.every=1")
    said = capsys.readouterr().out
    assert "finished before" in said and "Exact match" in said and "train.steps" in said
    assert len(runs.scored) == scored
    assert {path: path.read_bytes() for path in runs.home.rglob("*") if path.is_file() and path.name != "owner.json"} == files
    assert folder.status().state is State.DONE


def test_more_steps_continue_the_same_folder_and_measure_again(runs, capsys):
    first = runs.run("train.steps=2", "eval.every=2")
    before = first.summary()["before"]
    capsys.readouterr()
    second = runs.run("train.steps=4", "eval.every=2")
    assert second.path == first.path
    assert "continuing after step 2" in capsys.readouterr().out
    assert second.summary()["before"] == before
    assert second.status().step == 4
    assert [row["step"] for row in second.metrics() if "train/reward" in row] == [1, 2, 3, 4]


def test_a_run_that_was_stopped_before_its_last_figures_measures_what_it_trained(runs):
    words = ("train.steps=2", "train.warmup_steps=1", "train.lr=0.03", "eval.samples=4", "eval.every=0")
    run = runs.run(*words)
    figures = run.summary()
    assert figures["after"] != figures["before"]
    run.write_summary({**figures, "after": {}})
    run.set_status(State.INTERRUPTED)
    assert runs.run(*words).summary()["after"] == figures["after"]


def test_measuring_again_after_a_stop_in_the_middle_leaves_each_rollout_once(runs):
    run = runs.run("train.steps=1")
    run.set_status(State.INTERRUPTED)
    again = runs.run("train.steps=1")
    files = {(split, step): len(list(read_rollouts(path))) for split, step, path in rollout_files(again.path / "rollouts")}
    assert files[("test.bundled", 0)] == 3 and files[("test.bundled", 1)] == 3


def test_the_status_holds_a_command_that_a_shell_takes(runs):
    run = runs.run("train.steps=1")
    words = shlex.split(run.status().command)
    assert words[:3] == ["python", "-m", "ssrl"]
    prepare(words[3:])
