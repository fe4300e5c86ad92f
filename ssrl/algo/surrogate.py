"""Policy-gradient terms, one loss a token. Every function returns (loss [M], to be minimised; what happened to which token, [M] booleans)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssrl.algo.tokens import LOG_RATIO_LIMIT, Objective, Tokens, rollout_mean

Surrogate = Callable[[Objective, Tokens], tuple[Tensor, dict[str, Tensor]]]


def plain(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """-A · log π, shifted to have the value -A: the score function, without a ratio. [Williams, 1992]"""
    return -t.advantages.float() * (1 + t.logp.float() - t.logp.detach().float()), {}


def clip(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """max(-A ρ, -A clip(ρ, 1 - clip_low, 1 + clip_high)) with ρ = π / π_old, and at most dual_clip · |A| where A < 0.

    [PPO, arXiv 1707.06347, eq. 7; separate bounds: DAPO, arXiv 2503.14476, eq. 8; dual clip: arXiv 1912.09729, eq. 5]
    """
    loss, happened = _clipped(o, t.log_ratio().exp(), t.advantages.float())
    return loss, happened | {"clamped_frac": t.clamped()}


def sequence(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped loss with one ratio a rollout, s = exp(mean over its tokens of log π - log π_old); every token of the rollout carries it.

    With `aggregate: sequence_mean` it is GSPO's objective, and each token gets 1/|y| of the gradient of s. [arXiv 2507.18071, eq. 5 and 7]
    """
    mean = rollout_mean(t.logp.float() - t.old_logp.float(), t.rollout)
    loss, happened = _clipped(o, mean.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp(), t.advantages.float())
    return loss, happened | {"clamped_frac": mean.detach().abs() > LOG_RATIO_LIMIT}


def kl_cov(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """-A ρ, never clipped, + cov_coef · |log π - log π_old| on the selected tokens. [KL-Cov, arXiv 2505.22617, section 4.2; FACTS 1.11]"""
    log_ratio = t.log_ratio()
    loss = -t.advantages.float() * log_ratio.exp()
    penalised = torch.where(_selected(t), loss + o.cov_coef * log_ratio.abs(), loss)
    return penalised, {"selected_frac": _selected(t), "clamped_frac": t.clamped()}


def clip_cov(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped loss, 0 on the selected tokens. [Clip-Cov, arXiv 2505.22617, section 4.2; FACTS 1.11]"""
    loss, happened = clip(o, t)
    return torch.where(_selected(t), torch.zeros_like(loss), loss), happened | {"selected_frac": _selected(t)}


def outside(o: Objective, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """[M] booleans: where the lower, and where the upper bound takes a token's gradient."""
    return (ratio < 1 - o.clip_low) & (advantages < 0), (ratio > 1 + o.clip_high) & (advantages > 0)


def _clipped(o: Objective, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - o.clip_low, 1 + o.clip_high))
    low, high = outside(o, ratio, advantages)
    happened = {"clip_low_frac": low, "clip_high_frac": high}
    if o.dual_clip is not None:
        bound = -advantages * o.dual_clip
        happened["dual_clip_frac"] = (advantages < 0) & (loss > bound)
        loss = torch.where(advantages < 0, torch.minimum(loss, bound), loss)
    return loss, happened


def _selected(t: Tokens) -> Tensor:
    if t.selected is None:
        raise ValueError("this surrogate acts on selected tokens: select them with algo.covariance before the loss")
    return t.selected


SURROGATES: dict[str, Surrogate] = {"plain": plain, "clip": clip, "sequence": sequence, "kl_cov": kl_cov, "clip_cov": clip_cov}
