"""What a run refuses when it is put together."""

from datetime import timedelta

import pytest

from ssrl.config import Config, TrainerConfig
from ssrl.errors import UserError
from ssrl.tasks.fit import strategy_of


@pytest.mark.parametrize("accelerator", ["mps", "abacus"])
def test_devices_that_the_machine_does_not_have_are_one_sentence(runs, accelerator):
    with pytest.raises(UserError, match=f"trainer.devices=1 with trainer.accelerator={accelerator} is not possible on this machine .*trainer=cpu"):
        runs.run(f"trainer.accelerator={accelerator}")


@pytest.mark.parametrize("strategy", ["auto", "ddp", "fsdp"])
def test_processes_that_start_at_once_wait_for_the_figures_before_training(strategy):
    found = strategy_of(Config(trainer=TrainerConfig(accelerator="cpu", devices=2, strategy=strategy)))
    assert found._timeout >= timedelta(days=1)
    if strategy != "fsdp":
        assert strategy_of(Config(trainer=TrainerConfig(accelerator="cpu", strategy=strategy))) == strategy
