"""What the further processes of a launcher that starts all of them at once do where they have no part: nothing."""

import pytest
import torch
from omegaconf import OmegaConf

from ssrl import tasks
from ssrl.compose import Composer
from ssrl.data.fingerprint import fingerprint
from ssrl.runlog.folder import RunFolder, State
from ssrl.runlog.identity import run_folder
from ssrl.tasks.checkpoint import checkpoint_path


@pytest.fixture(params=["RANK", "SLURM_PROCID"])
def second(request, monkeypatch):
    """Be the second process."""
    monkeypatch.setenv(request.param, "1")


def entered(folder: RunFolder, step: int, state: State) -> dict[str, bytes]:
    """Enter a run that has done some steps, and return its files."""
    with folder.claim(), folder.tracked("python -m ssrl", step=step):
        folder.set_status(state)
    return files(folder)


def files(folder: RunFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def composed(runs, *words: str):
    (tree,) = Composer().jobs(runs.words(*words), multirun=False)
    return OmegaConf.to_object(tree)


def test_a_finished_run_is_left_as_it_is(runs, second):
    config = composed(runs, "train.steps=3")
    folder = RunFolder(run_folder(config, fingerprint))
    before = entered(folder, 3, State.DONE)
    tasks.run(config, [])
    assert files(folder) == before


def test_the_last_figures_of_a_trained_run_are_left_to_the_first(runs, second):
    config = composed(runs, "train.steps=3")
    folder = RunFolder(run_folder(config, fingerprint))
    last = checkpoint_path(folder.path, "last")
    last.parent.mkdir(parents=True)
    torch.save({"ssrl": {"steps_done": 3}}, last)
    before = entered(folder, 3, State.INTERRUPTED)
    tasks.run(config, [])
    assert files(folder) == before


def test_an_evaluation_is_left_to_the_first(runs, second):
    tasks.run(composed(runs, "task=eval"), [])
    assert not (runs.home / "runs").exists()
