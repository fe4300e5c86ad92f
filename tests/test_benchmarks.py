"""The benchmark scripts run, in their shortest forms on the tiny model; what they print there are no figures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHORT = {  # words, and what the answer holds
    "growth": ("--model tiny --rounds 1 --tokens 700 --rows 1 2 --n 1 2 --out {folder}/growth.svg", "| groups a row |"),
    "machine": ("--steps 1 model=tiny rollout.n=2", "| decode, GB/s |"),
    "generation": ("--model tiny --dtype fp32 --questions 2 --n 2 --new 64 --rounds 1", "| two turns | one plain call |"),
    "beside_trl": ("--worker --given --model tiny --questions 2 --n 2 --new 8 --steps 1", '"peak": '),
    "gpu_check": ("--only attention --out {folder}/found.json", "attention: ok"),
    "step": ("--model tiny --n 2 --questions 2 --steps 1", "| 2 | 4 |"),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SHORT)
def test_a_benchmark_runs_and_prints_its_table(script, tmp_path):
    words, answer = (text.format(folder=tmp_path) for text in SHORT[script])
    env = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / f"{script}.py", *words.split()], input="step\nstep\npeak\n", capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert answer in done.stdout and "nan" not in done.stdout
