"""What happens between steps, without a model."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ssrl.config import Config
from ssrl.training.callbacks import Checkpoints, Interruption


@pytest.mark.parametrize(("best", "saved"), [((0.5, 7), True), ((0.5, 4), False), (None, False)])
def test_the_last_checkpoint_is_never_older_than_the_best(best, saved):
    files: list[Path] = []
    trainer = SimpleNamespace(should_stop=False, save_checkpoint=files.append)
    module = SimpleNamespace(steps_done=7, best=best, config=Config(), device=torch.device("cpu"))
    Checkpoints(Path("last"), Interruption(print), every=10).on_train_batch_end(trainer, module)
    assert files == ([Path("last")] if saved else [])
