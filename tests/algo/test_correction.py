"""Truncated importance sampling between sampler and trainer."""

import math
from dataclasses import fields, replace

import pytest
import torch

from ssrl.algo.correction import CORRECTIONS
from ssrl.algo.tokens import Objective, Tokens
from ssrl.config import AlgoConfig

OBJECTIVE = replace(Objective(**{field.name: getattr(AlgoConfig(), field.name) for field in fields(Objective)}), correction_cap=2.0)
LOG2 = math.log(2)


def tokens(old, sampler, rollout):
    old = torch.tensor(old, requires_grad=True)
    return Tokens(logp=old, old_logp=old, advantages=torch.ones(len(old)), weights=torch.ones(len(old)), share=1.0, rollout=torch.tensor(rollout), sampler_logp=torch.tensor(sampler))  # fmt: skip


def test_factors_by_hand():
    t = tokens([0.0, LOG2, 0.0], [LOG2, -LOG2, 0.0], [3, 3, 5])  # ratios 1/2 and 4 in one rollout, 1 in another
    factors, capped = CORRECTIONS["token"](OBJECTIVE, t)
    assert factors.tolist() == pytest.approx([0.5, 2.0, 1.0]) and capped["correction_capped_frac"].tolist() == [False, True, False]
    factors, capped = CORRECTIONS["sequence"](replace(OBJECTIVE, correction_cap=3.0), t)
    assert factors.tolist() == pytest.approx([2.0, 2.0, 1.0]) and not capped["correction_capped_frac"].any()
    assert CORRECTIONS["none"](OBJECTIVE, t)[0].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_factors_carry_no_gradient_and_stay_finite(level):
    factors, _ = CORRECTIONS[level](OBJECTIVE, tokens([0.0, 0.0, 1e4], [1e4, -math.inf, -1e4], [0, 1, 2]))
    assert not factors.requires_grad
    assert factors.tolist() == pytest.approx([math.exp(-20), 2.0, 2.0])


def test_a_correction_without_the_samplers_log_probabilities_is_an_error():
    t = replace(tokens([0.0], [0.0], [0]), sampler_logp=None)
    with pytest.raises(ValueError, match="sampler"):
        CORRECTIONS["token"](OBJECTIVE, t)
