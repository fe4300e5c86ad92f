"""What happens between steps, without a model."""

from pathlib import Path
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from ssrl.config import Config
from ssrl.training.callbacks import Checkpoints, Interruption, Validator
from ssrl.types import Sampling


@pytest.mark.parametrize(("best", "saved"), [((0.5, 7), True), ((0.5, 4), False), (None, False)])
def test_the_last_checkpoint_is_never_older_than_the_best(best, saved):
    files: list[Path] = []
    trainer = SimpleNamespace(should_stop=False, save_checkpoint=files.append)
    module = SimpleNamespace(steps_done=7, best=best, config=Config(), device=torch.device("cpu"))
    Checkpoints(Path("last"), Interruption(print), every=10).on_train_batch_end(trainer, module)
    assert files == ([Path("last")] if saved else [])


@pytest.mark.filterwarnings("ignore")  # of Lightning, about a module that trains nothing
def test_the_weights_are_published_before_the_validation_before_the_first_step(tmp_path, monkeypatch):
    events: list[str] = []

    class Module(L.LightningModule):
        steps_done, config = 0, Config()

        def on_train_start(self) -> None:
            events.append("published")

        def training_step(self, batch: object, index: int) -> None:
            self.steps_done += 1
            events.append("trained")

        def configure_optimizers(self) -> None:
            return None

    validator = Validator(None, None, {}, every=2, sampling=Sampling(), keep=0, best=tmp_path / "best")
    monkeypatch.setattr(validator, "_run", lambda *_: events.append("validated"))
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, callbacks=[validator])  # fmt: skip
    trainer.fit(Module(), DataLoader([0, 1]))
    assert events == ["published", "validated", "trained", "trained", "validated"]
