"""DAPO's filters."""

import pytest
import torch

from ssrl.algo.filters import mixed_groups, overlong_penalty


def test_a_group_is_mixed_where_it_holds_a_right_and_a_wrong_rollout():
    outcomes = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    assert mixed_groups(outcomes, torch.tensor([0, 0, 1, 1, 2, 2, 3])).tolist() == [True, False, False, False]
    assert mixed_groups(outcomes, torch.tensor([2, 1, 0, 0, 1, 2, 2])).tolist() == [False, False, True]


def test_the_penalty_grows_over_the_buffer_as_published():
    # 20,480 tokens with a buffer of 4,096
    lengths = torch.tensor([0, 16384, 17408, 18432, 20480, 30000])
    found = overlong_penalty(lengths, max_length=20480, buffer=4096, factor=1.0)
    assert found.tolist() == pytest.approx([0, 0, -0.25, -0.5, -1, -1])
    assert overlong_penalty(lengths, max_length=20480, buffer=4096, factor=0.5).tolist() == pytest.approx([0, 0, -0.125, -0.25, -0.5, -0.5])
