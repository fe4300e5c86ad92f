"""Surrogates on tokens small enough to work out by hand, and far apart enough to overflow."""

import math
from dataclasses import fields, replace

import pytest
import torch

from ssrl.algo.loss import policy_loss
from ssrl.algo.surrogate import SURROGATES
from ssrl.algo.tokens import Objective, Tokens
from ssrl.config import AlgoConfig

PLAIN = AlgoConfig()
OBJECTIVE = Objective(**{field.name: getattr(PLAIN, field.name) for field in fields(Objective)})
LOG2 = math.log(2)


def tokens(logp, advantages, **others):
    logp = torch.as_tensor(logp)
    count = len(logp)
    given = {
        "old_logp": torch.zeros_like(logp),
        "weights": torch.full((count,), 1 / count),
        "rollout": torch.arange(count),
        "share": 1 / count,
    }
    return Tokens(logp=logp, advantages=torch.tensor(advantages), **(given | others))


def test_the_clip_by_hand():
    # ratios 1, 2, 2 and 4 with bounds 0.8 and 1.2 and dual clip 3
    logp = torch.tensor([0.0, LOG2, LOG2, 2 * LOG2], requires_grad=True)
    loss, happened = SURROGATES["clip"](OBJECTIVE, tokens(logp, [1.0, 1.0, -1.0, -1.0]))
    assert loss.tolist() == pytest.approx([-1.0, -1.2, 2.0, 3.0])
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-1.0, 0.0, 2.0, 0.0])
    assert happened["clip_high_frac"].tolist() == [False, True, False, False]
    assert happened["clip_low_frac"].tolist() == [False] * 4
    assert happened["dual_clip_frac"].tolist() == [False, False, False, True]
    assert happened["clamped_frac"].tolist() == [False] * 4


def test_clip_higher_lets_a_token_rise_further_than_it_may_fall():
    o = replace(OBJECTIVE, clip_low=0.2, clip_high=0.28, dual_clip=None)
    loss, happened = SURROGATES["clip"](o, tokens([math.log(1.25), math.log(1.3), math.log(0.75)], [1.0, 1.0, -1.0]))
    assert loss.tolist() == pytest.approx([-1.25, -1.28, 0.8])
    assert happened["clip_high_frac"].tolist() == [False, True, False] and happened["clip_low_frac"].tolist() == [False, False, True]


def test_the_sequence_ratio_is_the_geometric_mean_and_its_tokens_share_the_gradient():
    # one rollout with ratios 1 and 4: s = 2; another of one token with s = 1/2
    logp = torch.tensor([0.0, 2 * LOG2, -LOG2], requires_grad=True)
    o = replace(OBJECTIVE, clip_low=0.9, clip_high=9.0, dual_clip=None)
    loss, happened = SURROGATES["sequence"](o, tokens(logp, [1.0, 1.0, -1.0], rollout=torch.tensor([4, 4, 6])))
    assert loss.tolist() == pytest.approx([-2.0, -2.0, 0.5])
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-2.0, -2.0, 0.5])  # two tokens, each with 1/2 of ds, in two losses
    _, clipped = SURROGATES["sequence"](replace(o, clip_high=0.5), tokens(logp, [1.0, 1.0, -1.0], rollout=torch.tensor([0, 0, 1])))
    assert clipped["clip_high_frac"].tolist() == [True, True, False]


def test_kl_cov_clips_nothing_and_penalises_the_selected():
    logp = torch.tensor([LOG2, LOG2, -LOG2], requires_grad=True)
    o = replace(OBJECTIVE, surrogate="kl_cov", cov_coef=0.5)
    loss, _ = SURROGATES["kl_cov"](o, tokens(logp, [3.0, 3.0, -1.0], selected=torch.tensor([False, True, True])))
    assert loss.tolist() == pytest.approx([-6.0, -6.0 + 0.5 * LOG2, 0.5 + 0.5 * LOG2])
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-6.0, -5.5, 0.5 - 0.5])


def test_clip_cov_gives_the_selected_no_gradient():
    logp = torch.tensor([0.0, 0.0], requires_grad=True)
    loss, happened = SURROGATES["clip_cov"](OBJECTIVE, tokens(logp, [2.0, 2.0], selected=torch.tensor([True, False])))
    loss.sum().backward()
    assert loss.tolist() == [0.0, -2.0] and logp.grad.tolist() == [0.0, -2.0]
    assert happened["selected_frac"].tolist() == [True, False]


def test_the_plain_surrogate_is_the_score_function_wherever_the_policy_was_sampled():
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss, happened = SURROGATES["plain"](OBJECTIVE, tokens(logp, [2.0, -3.0], old_logp=torch.tensor([-9.0, 5.0])))
    loss.sum().backward()
    assert loss.tolist() == [-2.0, 3.0] and logp.grad.tolist() == [-2.0, 3.0] and happened == {}


@pytest.mark.parametrize("surrogate", ["kl_cov", "clip_cov"])
def test_tokens_must_be_selected_before_a_loss_that_acts_on_selected_tokens(surrogate):
    with pytest.raises(ValueError, match="select them"):
        SURROGATES[surrogate](OBJECTIVE, tokens([0.0], [1.0]))


FAR = [0.0, 1e-4, 1.0, 5.0, 9.9, 10.1, 19.9, 20.1, 88.0, 100.0, 1e3, 1e4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dual", [None, 3.0])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_surrogates_stay_finite_however_far_the_policies_are_apart(dtype, dual, surrogate):
    o = replace(OBJECTIVE, dual_clip=dual)
    for advantage in (-2.0, 0.0, 2.0):
        for delta in [*FAR, *(-x for x in FAR)]:
            if dtype is torch.float16 and 11 < delta < 20:
                continue  # the true slope exceeds what this type can hold; log-probabilities are float32 wherever the loss is used
            logp = torch.tensor([delta - 1], dtype=dtype, requires_grad=True)
            old = torch.tensor([-1.0], dtype=dtype)
            loss, happened = SURROGATES[surrogate](o, tokens(logp, [advantage], old_logp=old, selected=torch.tensor([True])))
            loss.sum().backward()
            assert loss.dtype == torch.float32
            assert loss.isfinite().all() and logp.grad.isfinite().all(), (advantage, delta)
            if surrogate != "plain":
                assert happened["clamped_frac"].item() == (abs(delta) > 20)
                assert abs(delta) <= 20 or logp.grad.item() == 0


def test_the_loss_adds_its_terms_and_its_metrics_are_means_over_tokens():
    o = replace(OBJECTIVE, dual_clip=None, kl_coef=0.5, kl_estimator="k1", entropy_coef=0.25, correction="token", correction_cap=2.0)
    logp, old = torch.tensor([-1.0, -1.0, -30.0]), torch.tensor([-1.0, -2.0, -1.0])
    t = tokens(logp, [1.0, 1.0, 1.0], old_logp=old, weights=torch.tensor([0.5, 0.25, 0.25]), reference=logp - 1, entropy=torch.tensor([2.0, 0.0, 4.0]),
               sampler_logp=old - torch.tensor([0.0, LOG2 / 2, 5.0]))  # fmt: skip
    loss, metrics = policy_loss(o, t)
    assert metrics["loss/policy"].item() == pytest.approx(-0.5 - 0.25 * 1.2 * math.sqrt(2) - 0.25 * 2 * math.exp(-20))
    assert metrics["loss/clip_high_frac"].item() == pytest.approx(1 / 3)
    assert metrics["loss/clamped_frac"].item() == pytest.approx(1 / 3)
    assert metrics["loss/correction_capped_frac"].item() == pytest.approx(1 / 3)
    assert metrics["loss/correction_mean"].item() == pytest.approx((1 + math.sqrt(2) + 2) / 3)
    assert metrics["loss/kl"].item() == pytest.approx(1.0)
    assert loss.item() == pytest.approx(metrics["loss/policy"].item() + 0.5 - 0.25 * 2.0)
    assert all(value.dtype == torch.float32 and not value.requires_grad for value in metrics.values())


def test_the_entropy_bonus_pulls_towards_more_entropy_and_is_refused_where_it_could_not():
    o = replace(OBJECTIVE, entropy_coef=0.25)
    entropy, logp = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([-1.0, -1.0], requires_grad=True)
    policy_loss(o, tokens(logp, [0.0, 0.0], old_logp=torch.tensor([-1.0, -1.0]), entropy=entropy))[0].backward()
    assert entropy.grad.tolist() == pytest.approx([-0.125, -0.125])
    for useless in (None, entropy.detach()):
        with pytest.raises(ValueError, match="entrop"):
            policy_loss(o, tokens(logp, [0.0, 0.0], entropy=useless))
