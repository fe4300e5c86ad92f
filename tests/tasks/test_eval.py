"""Where an evaluation may write."""

import json
import re

import pytest

from ssrl.errors import UserError


@pytest.mark.parametrize("left", ["manifest", "checkpoints"])
def test_an_evaluation_does_not_replace_a_training_run(runs, left):
    folder = runs.home / "run"
    folder.mkdir()
    if left == "manifest":
        (folder / "manifest.json").write_text(json.dumps({"config": {"task": "train"}}))
    else:
        (folder / "checkpoints").mkdir()
    before = sorted(folder.iterdir())
    with pytest.raises(UserError, match=re.escape(f"out={folder} holds a training run")):
        runs.only("task=eval", "model=tiny", f"out={folder}", folder=False)
    assert sorted(folder.iterdir()) == before
