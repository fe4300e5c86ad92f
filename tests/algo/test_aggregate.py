"""Weights of tokens."""

import pytest
import torch

from ssrl.algo.aggregate import AGGREGATES

# two rollouts of 2 and 10 tokens with losses 1 and 0, and a constant length of 20
EXPECTED = {"token_mean": 2 / 12, "sequence_mean": 1 / 2, "sequence_sum": 2 / 2, "constant": 2 / 40}


@pytest.mark.parametrize("name", AGGREGATES)
def test_every_aggregate_weighs_a_short_rollout_as_its_formula_says(name):
    lengths, losses = torch.tensor([2, 10]), torch.tensor([1.0, 0.0])
    weights = AGGREGATES[name](lengths, total_tokens=12, total_rollouts=2, constant_length=20)
    assert (weights * lengths * losses).sum().item() == pytest.approx(EXPECTED[name])


@pytest.mark.parametrize("name", AGGREGATES)
def test_a_rollout_without_a_trained_token_has_a_finite_weight(name):
    assert AGGREGATES[name](torch.tensor([0, 0]), total_tokens=0, total_rollouts=2, constant_length=5).isfinite().all()
