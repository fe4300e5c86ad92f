"""Sweeps through hydra-submitit-launcher: both launchers compose, and the local one runs two jobs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from ssrl.app import prepare
from ssrl.compose import CONF
from ssrl.errors import UserError

STAND_IN = """
import sys, types
from pathlib import Path

def run(config, overrides):
    folder = Path(config.runs)
    folder.mkdir(exist_ok=True)
    (folder / f"seed{config.seed}").write_text(" ".join(overrides))

sys.modules["ssrl.tasks"] = types.ModuleType("ssrl.tasks")
sys.modules["ssrl.tasks"].run = run
"""


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
    (tmp_path / "sitecustomize.py").write_text(STAND_IN)  # so that the jobs' own processes have a task that ends at once
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "ssrl", "-m", "seed=0,1", "hydra/launcher=local", "runs=out"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    assert (tmp_path / "out" / "seed0").read_text() == "seed=0 runs=out"
    assert (tmp_path / "out" / "seed1").read_text() == "seed=1 runs=out"
    assert len(list((tmp_path / "out" / ".sweeps").glob("*/.submitit/*"))) >= 2
