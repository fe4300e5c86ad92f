"""What counts as collapse, told once."""

from ssrl.config import GuardConfig
from ssrl.training.guard import Watch


def step(entropy=1.0, length=60.0, searches=1.0):
    return {"train/entropy": entropy, "train/response_tokens": length, "train/searches": searches}


def test_a_reward_far_below_its_best_is_told_after_so_many_validations_in_a_row():
    watch = Watch(GuardConfig(reward_frac=0.5, patience=2))
    assert [bool(watch.validated(reward)) for reward in (0.1, 0.4, 0.19, 0.3, 0.1, 0.1, 0.05, 0.3, 0.1, 0.1)] == [
        False, False, False, False, False, True, False, False, False, True]  # fmt: skip
    assert "0.400" in Watch.validated(_low(), 0.1)


def _low():
    watch = Watch(GuardConfig(reward_frac=0.5, patience=1))
    watch.validated(0.4)
    return watch


def test_entropy_and_length_that_explode_and_searches_that_vanish_are_told_with_what_was_seen():
    watch = Watch(GuardConfig(entropy_factor=3, length_factor=2, searches_frac=0.25))
    for entropy in (0.9, 1.0, 1.1):
        assert watch.trained(step(entropy)) == []
    assert watch.trained(step(2.9, 119, 0.26)) == []
    (entropy,) = watch.trained(step(3.1))
    assert "entropy rose from 1 in the first steps to 3.1" in entropy
    assert watch.trained(step(3.2)) == []  # told once
    length, searches = watch.trained(step(1.0, 121, 0.2))
    assert "response length rose from 60" in length and "searches per rollout fell from 1 in the first steps to 0.2" in searches
    assert len(watch.trained(step(3.2, 121, 0.2))) == 1  # entropy had been well again


def test_a_sampler_that_computes_something_else_is_told_from_the_first_step_on():
    watch = Watch(GuardConfig())
    assert watch.sampled({}) is None and watch.sampled({"mismatch/mean_abs": 0.05}) is None
    assert "differ by 1.75 on average" in watch.sampled({"mismatch/mean_abs": 1.75})
    assert watch.sampled({"mismatch/mean_abs": 1.8}) is None  # told once


def test_a_policy_that_never_searched_does_not_stop_searching_and_a_step_without_figures_is_no_trouble():
    watch = Watch(GuardConfig())
    for _ in range(3):
        watch.trained(step(searches=0.1))
    assert watch.trained(step(searches=0.0)) == [] and watch.trained({}) == []


def test_rewards_below_zero_that_rise_are_no_collapse():
    watch = Watch(GuardConfig(patience=1))
    assert [watch.validated(reward) for reward in (-0.8, -0.6, -0.1, 0.2)] == [None] * 4
    assert watch.validated(-0.1) is not None
