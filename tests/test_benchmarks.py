"""The benchmark scripts run, in their shortest forms on the tiny model; what they print there are no figures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHORT = {
    "growth": "--model tiny --rounds 1 --tokens 700 --rows 1 2 --n 1 2 --out {folder}/growth.svg",
    "machine": "--steps 1 model=tiny rollout.n=2",
    "generation": "--model tiny --dtype fp32 --questions 2 --n 2 --new 64 --rounds 1",
    "beside_trl": "--worker --given --model tiny --questions 2 --n 2 --new 8 --steps 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SHORT)
def test_a_benchmark_runs_and_prints_its_table(script, tmp_path):
    words = SHORT[script].format(folder=tmp_path).split()
    env = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / f"{script}.py", *words], input="step\nstep\n", capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stdout and done.stdout.count("|") + 10 * done.stdout.count("@ ") >= 20, done.stdout
