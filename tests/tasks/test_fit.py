"""What a run refuses when it is put together."""

import pytest

from ssrl.errors import UserError


@pytest.mark.parametrize("accelerator", ["mps", "abacus"])
def test_devices_that_the_machine_does_not_have_are_one_sentence(runs, accelerator):
    with pytest.raises(UserError, match=f"trainer.devices=1 with trainer.accelerator={accelerator} is not possible on this machine .*trainer=cpu"):
        runs.run(f"trainer.accelerator={accelerator}")
