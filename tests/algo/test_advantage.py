"""Group-relative advantages against slow loops."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ssrl.algo.advantage import group_zscore


def slow(rewards, groups, epsilon=1e-6):
    out = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        out.append((reward - statistics.fmean(members)) / (statistics.stdev(members) + epsilon))
    return out


def test_the_advantage_is_the_z_score_of_the_group_with_the_sample_standard_deviation():
    rewards, groups = [1.0, 0.0, 0.1, 0.9, 0.3, 0.0, 1.0], [0, 1, 0, 1, 1, 2, 2]
    found = group_zscore(torch.tensor(rewards), torch.tensor(groups))
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(slow(rewards, groups), abs=1e-6)
    # the last group by hand: 0 and 1 have mean 1/2 and sample standard deviation 1/√2
    assert found[-2:].tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], abs=1e-5)


def test_epsilon_is_added_to_the_standard_deviation():
    found = group_zscore(torch.tensor([0.0, 1.0]), torch.tensor([0, 0]), epsilon=1.0)
    assert found.tolist() == pytest.approx([-0.5 / (math.sqrt(0.5) + 1), 0.5 / (math.sqrt(0.5) + 1)], abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1, width=16)), min_size=1, max_size=12))
def test_the_order_of_the_rollouts_does_not_matter(pairs):
    pairs = [*pairs, *[(group, 0.5) for group, _ in pairs]]  # at least two in every group
    names = sorted({group for group, _ in pairs})
    groups = torch.tensor([names.index(group) for group, _ in pairs])
    rewards = torch.tensor([reward for _, reward in pairs])
    backwards = group_zscore(rewards.flip(0), groups.flip(0)).flip(0)
    assert torch.allclose(group_zscore(rewards, groups), backwards, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.35, 0.4, 1 / 3, 0.9, 1e6])
@pytest.mark.parametrize("size", [2, 3, 5, 7, 8, 49])
def test_equal_rewards_give_exactly_zero(value, size):
    found = group_zscore(torch.full((size,), value), torch.zeros(size, dtype=torch.long))
    assert found.tolist() == [0.0] * size


def test_seven_against_one_leaves_no_residue():
    # 0.35 and 0.4 have no exact binary form: a residue of rounding in the mean must not show as a signal
    rewards = torch.tensor([0.35] * 7 + [0.4])
    found = group_zscore(rewards, torch.zeros(8, dtype=torch.long))
    assert found[:7].unique().numel() == 1
    assert found.tolist() == pytest.approx([-1 / math.sqrt(8)] * 7 + [7 / math.sqrt(8)], abs=1e-3)
    assert abs(found.double().sum().item()) < 1e-6


def test_a_group_of_one_is_an_error():
    with pytest.raises(ValueError, match="at least two"):
        group_zscore(torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0, 0, 1]))
