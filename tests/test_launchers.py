"""Sweeps through hydra-submitit-launcher: both launchers compose, and the local one runs two jobs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from ssrl.compose import CONF
from ssrl.errors import UserError
from ssrl.runlog.folder import RunFolder, State
from tests.lines import prepare


def launcher(*words: str):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(words), return_hydra_config=True)
    return config.hydra.launcher


def test_slurm_requeues_what_ran_out_of_time_and_asks_for_one_task_a_process():
    params = instantiate(launcher("hydra/launcher=slurm", "trainer.devices=8", "trainer.num_nodes=2")).params
    assert params["max_num_timeout"] > 0
    assert (params["nodes"], params["tasks_per_node"]) == (2, 8)
    assert params["signal_delay_s"] < 60 * params["timeout_min"]


@pytest.mark.parametrize("choice", ["local", "slurm"])
def test_a_sweep_with_a_launcher_passes_the_check(choice):
    words = ["-m", "seed=0,1", f"hydra/launcher={choice}", "hydra.launcher.timeout_min=5"]
    assert prepare(words) == words


def test_a_launcher_without_m_is_refused_instead_of_ignored():
    with pytest.raises(UserError, match="type -m"):
        prepare(["hydra/launcher=slurm"])
    assert prepare(["-m", "hydra/launcher=slurm"]) == ["-m", "hydra/launcher=slurm"]


@pytest.mark.slow
def test_the_local_launcher_runs_two_jobs(tmp_path):
    root = Path(__file__).parents[1]
    words = (
        "-m seed=0,1 hydra/launcher=local runs=out model=tiny experiment=quickstart trainer=cpu trainer.threads=1 train.steps=1 "
        "train.questions=1 rollout.n=2 rollout.max_response_tokens=4 rollout.max_prompt_tokens=1000 eval.every=0 eval.samples=0 "
        "data.train.bundled.limit=2 data.val.bundled.limit=1 data.test.bundled.limit=1"
    )
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "ssrl", *words.split()], cwd=tmp_path, env=environment, check=True, timeout=250)
    folders = [RunFolder(path) for path in sorted(tmp_path.glob("out/*/seed*"))]
    assert [folder.path.name for folder in folders] == ["seed0", "seed1"]
    assert [folder.status().state for folder in folders] == [State.DONE, State.DONE]
    assert folders[0].status().pid != folders[1].status().pid
    assert len(list((tmp_path / "out" / ".sweeps").glob("*/.submitit/*"))) >= 2
