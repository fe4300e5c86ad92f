"""What a run refuses when it is put together."""

from contextlib import nullcontext
from datetime import timedelta

import pytest

from ssrl.config import Config, TrainerConfig
from ssrl.errors import UserError
from ssrl.runlog.folder import RunFolder
from ssrl.tasks.fit import Fit, strategy_of
from ssrl.tasks.sources import Sources


@pytest.mark.parametrize("accelerator", ["mps", "abacus", "tpu"])
def test_devices_that_the_machine_does_not_have_are_one_sentence(runs, accelerator):
    with pytest.raises(UserError, match=f"trainer.devices=1 with trainer.accelerator={accelerator} is not possible on this machine .*trainer=cpu"):
        runs.run(f"trainer.accelerator={accelerator}")


@pytest.mark.parametrize("strategy", ["auto", "ddp", "fsdp"])
def test_processes_that_start_at_once_wait_for_the_figures_before_training(strategy):
    found = strategy_of(Config(trainer=TrainerConfig(accelerator="cpu", devices=2, strategy=strategy)))
    assert found._timeout >= timedelta(days=1)
    if strategy != "fsdp":
        assert strategy_of(Config(trainer=TrainerConfig(accelerator="cpu", strategy=strategy))) == strategy


@pytest.mark.parametrize(("raised", "told"), [(None, "success"), (UserError, "failed"), (KeyboardInterrupt, "failed")])
def test_the_mirrors_are_told_how_the_run_ended(tmp_path, raised, told):
    class Logger:
        def __init__(self):
            self.ends: list[str] = []

        def log_hyperparams(self, config):
            pass

        def finalize(self, status):
            self.ends.append(status)

    logger, fit = Logger(), Fit(Config(), Sources(train=[], val={}, test={}, manifest={}), RunFolder(tmp_path))
    with nullcontext() if raised is None else pytest.raises(raised), fit:
        fit.mirrors.open("csv", lambda: logger, {})
        if raised is not None:
            raise raised
    assert logger.ends == [told]
