"""Figures of rollouts and of updates."""

from ssrl.training.metrics import means


def test_a_mean_is_over_the_updates_that_have_the_metric():
    assert means([{"loss": 1.0, "norm": 4.0}, {"loss": 3.0, "entropy": 5.0}]) == {"loss": 2.0, "norm": 4.0, "entropy": 5.0}
    assert means([{}, {}]) == {}
