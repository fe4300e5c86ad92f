"""The objective on a hand-worked batch of 3 groups x 3 rollouts of unequal lengths, term by term from the papers' formulas in float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ssrl.algo.advantage import group_zscore
from ssrl.algo.aggregate import AGGREGATES
from ssrl.algo.kl import ESTIMATORS
from ssrl.algo.loss import Objective, policy_loss
from ssrl.algo.surrogate import SURROGATES

LENGTHS = [3, 1, 4, 2, 2, 5, 1, 6, 3]  # trained tokens of each rollout
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2, 2]
REWARDS = [1.0, 0.1, 0.0, 0.9, 0.9, 0.2, 0.3, 0.3, 0.3]
OWNER = [rollout for rollout, length in enumerate(LENGTHS) for _ in range(length)]
TOKENS = len(OWNER)
# spread over both sides of both clip bounds, of the dual clip (log 3 = 1.1) and of k3's limit
DELTAS = [0.0, 0.1, -0.1, 0.25, -0.3, 0.9, -0.9, 1.3, -1.5, 2.0, 0.05, -0.05, 3.0, -3.0, 0.2, -0.22, 1.0, 1.2, -2.0, 0.0, 0.4, -0.4, 0.15,
          -0.15, 0.7, -0.7, 1.6]  # fmt: skip
GAPS = [0.3, -0.2, 0.0, 1.5, -1.5, 12.0, -12.0, 0.01, -0.01, 2.5] * 3
OLD = [-0.5 - 0.1 * t for t in range(TOKENS)]
NOW = [old + delta for old, delta in zip(OLD, DELTAS, strict=True)]
REFERENCE = [now + gap for now, gap in zip(NOW, GAPS, strict=False)][:TOKENS]


def weights_of(aggregate: str) -> torch.Tensor:
    weight = AGGREGATES[aggregate](torch.tensor(LENGTHS), total_tokens=TOKENS, total_rollouts=len(LENGTHS))
    return weight[torch.tensor(OWNER)]


def slow_weight(aggregate: str, rollout: int) -> float:
    return 1 / TOKENS if aggregate == "token_mean" else 1 / (len(LENGTHS) * LENGTHS[rollout])


def slow_surrogate(now, old, advantage, low, high, dual):
    ratio = math.exp(now - old)
    loss = -min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    return min(loss, -dual * advantage) if dual is not None and advantage < 0 else loss


def slow_kl(estimator, now, reference):
    d = reference - now
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d * d / 2
    d = min(max(d, -10.0), 10.0)
    return math.exp(d) - d - 1


def slow_loss(now, advantages, aggregate, objective):
    total = 0.0
    for t in range(TOKENS):
        token = slow_surrogate(now[t], OLD[t], advantages[OWNER[t]], objective.clip_low, objective.clip_high, objective.dual_clip)
        if objective.kl_coef:
            token += objective.kl_coef * slow_kl(objective.kl_estimator, now[t], REFERENCE[t])
        total += slow_weight(aggregate, OWNER[t]) * token
    return total


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("dual", [None, 3.0])
@pytest.mark.parametrize("estimator", [None, *ESTIMATORS])
def test_loss_and_gradient_equal_the_formulas(aggregate, dual, estimator):
    objective = Objective(
        surrogate="clip", clip_low=0.2, clip_high=0.28, dual_clip=dual, kl_coef=0.05 if estimator else 0.0, kl_estimator=estimator or "k3"
    )
    advantages = group_zscore(torch.tensor(REWARDS), torch.tensor(GROUPS))
    logp = torch.tensor(NOW, requires_grad=True)
    reference = torch.tensor(REFERENCE) if estimator else None
    loss, metrics = policy_loss(objective, logp, torch.tensor(OLD), advantages[torch.tensor(OWNER)], weights_of(aggregate), reference)
    loss.backward()
    advantages = advantages.double().tolist()
    assert loss.item() == pytest.approx(slow_loss(NOW, advantages, aggregate, objective), rel=1e-6, abs=1e-6)
    step = 1e-6
    for t in range(TOKENS):
        up, down = ([x + sign * step * (i == t) for i, x in enumerate(NOW)] for sign in (1, -1))
        slope = (slow_loss(up, advantages, aggregate, objective) - slow_loss(down, advantages, aggregate, objective)) / (2 * step)
        assert logp.grad[t].item() == pytest.approx(slope, rel=1e-5, abs=1e-6), f"token {t}"
    assert metrics["loss/total"].item() == pytest.approx(loss.item())
    assert ("loss/kl" in metrics) == (estimator is not None)


def test_a_small_batch_by_hand():
    # ratios 1, 2, 2 and 4 with bounds 0.8 and 1.2 and dual clip 3
    logp = torch.tensor([0.0, math.log(2), math.log(2), math.log(4)], requires_grad=True)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    loss, happened = SURROGATES["clip"](logp, torch.zeros(4), advantages, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    assert loss.tolist() == pytest.approx([-1.0, -1.2, 2.0, 3.0])
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-1.0, 0.0, 2.0, 0.0])
    assert happened["clip_high_frac"].tolist() == [False, True, False, False]
    assert happened["clip_low_frac"].tolist() == [False] * 4
    assert happened["dual_clip_frac"].tolist() == [False, False, False, True]
    assert happened["clamped_frac"].tolist() == [False] * 4


def test_metrics_are_weighted_means_over_the_tokens():
    objective = Objective(surrogate="clip", clip_low=0.2, clip_high=0.2, dual_clip=None, kl_coef=0.5, kl_estimator="k1")
    logp, old = torch.tensor([-1.0, -1.0, -30.0]), torch.tensor([-1.0, -2.0, -1.0])
    weights = torch.tensor([0.5, 0.25, 0.25])
    loss, metrics = policy_loss(objective, logp, old, torch.ones(3), weights, reference=logp - 1)
    assert metrics["loss/clip_high_frac"].item() == pytest.approx(0.25)
    assert metrics["loss/clamped_frac"].item() == pytest.approx(0.25)
    assert metrics["loss/kl"].item() == pytest.approx(1.0)
    assert loss.item() == pytest.approx(metrics["loss/policy"].item() + 0.5)
    assert all(value.dtype == torch.float32 and not value.requires_grad for value in metrics.values())


def test_token_mean_weighs_tokens_alike_and_sequence_mean_rollouts():
    # two rollouts of 2 and 10 tokens, losses 1 and 0: the mean over tokens is 1/6, over rollouts 1/2
    lengths, losses = torch.tensor([2, 10]), torch.tensor([1.0, 0.0])
    for aggregate, expected in {"token_mean": 1 / 6, "sequence_mean": 1 / 2}.items():
        weights = AGGREGATES[aggregate](lengths, total_tokens=12, total_rollouts=2)
        assert (weights * lengths * losses).sum().item() == pytest.approx(expected)
        assert (weights * lengths).sum().item() == pytest.approx(1.0)


@given(st.lists(st.integers(0, 3), min_size=TOKENS, max_size=TOKENS), st.sampled_from(sorted(AGGREGATES)))
def test_the_objective_does_not_depend_on_how_tokens_are_split_into_rows(row_of, aggregate):
    objective = Objective(surrogate="clip", clip_low=0.2, clip_high=0.28, dual_clip=3.0, kl_coef=0.05, kl_estimator="k3")
    advantages = group_zscore(torch.tensor(REWARDS), torch.tensor(GROUPS))[torch.tensor(OWNER)]
    weights = weights_of(aggregate)

    def run(rows):
        logp = torch.tensor(NOW, requires_grad=True)
        total = 0.0
        for row in rows:
            i = torch.tensor(row)
            loss, _ = policy_loss(objective, logp[i], torch.tensor(OLD)[i], advantages[i], weights[i], torch.tensor(REFERENCE)[i])
            loss.backward()
            total += loss.item()
        return total, logp.grad

    whole, gradient = run([list(range(TOKENS))])
    split, summed = run([row for r in range(4) if (row := [t for t in range(TOKENS) if row_of[t] == r])])
    assert split == pytest.approx(whole, rel=1e-6, abs=1e-6)
    assert torch.allclose(summed, gradient, atol=1e-6)


EXTREME = [0.0, 1e-4, 1.0, 5.0, 9.9, 10.1, 19.9, 20.1, 88.0, 100.0, 1e3, 1e4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dual", [None, 3.0])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_surrogates_stay_finite_however_far_the_policies_are_apart(dtype, dual, surrogate):
    for advantage in (-2.0, 0.0, 2.0):
        for delta in [*EXTREME, *(-x for x in EXTREME)]:
            if dtype is torch.float16 and dual is None and advantage < 0 and 11 < delta < 20:
                continue  # the true slope exceeds what this type can hold; log-probabilities are float32 wherever the loss is used
            logp = torch.tensor([delta - 1], dtype=dtype, requires_grad=True)
            loss, happened = SURROGATES[surrogate](
                logp, torch.tensor([-1.0], dtype=dtype), torch.tensor([advantage]), clip_low=0.2, clip_high=0.2, dual_clip=dual
            )
            loss.sum().backward()
            assert loss.dtype == torch.float32
            assert loss.isfinite().all() and logp.grad.isfinite().all(), (advantage, delta)
            assert happened["clamped_frac"].item() == (abs(delta) > 20)
            if abs(delta) > 20:
                assert logp.grad.item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kl_estimators_stay_finite_however_far_the_policies_are_apart(dtype, estimator):
    for delta in [*EXTREME, *(-x for x in EXTREME)]:
        logp = torch.tensor([-1.0 - delta], dtype=dtype, requires_grad=True)
        value = ESTIMATORS[estimator](logp, torch.tensor([-1.0], dtype=dtype))
        value.sum().backward()
        assert value.dtype == torch.float32
        assert value.isfinite().all() and logp.grad.isfinite().all(), delta
        assert estimator == "k1" or value.item() >= 0
