"""Policy-gradient terms, one loss a token. Every function returns (loss [M], what happened to which token)."""

from __future__ import annotations

import torch
from torch import Tensor

_LOG_RATIO_LIMIT = 20.0  # exp(20) is finite in every type that losses are computed in; no gradient where clamped


def log_ratio(logp: Tensor, old_logp: Tensor) -> Tensor:
    """log π - log π_old in float32, clamped to ±20 before any exp. [M]"""
    return (logp.float() - old_logp.float()).clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)


def clip(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clipped surrogate with separate bounds, and dual clip for negative advantages.

    [Schulman et al., arXiv 1707.06347, eq. 7; clip-higher: DAPO, arXiv 2503.14476, eq. 8; dual clip: Ye et al., arXiv 1912.09729, eq. 5]

    Args:
        logp: [M] log-probabilities of the trained tokens now, with gradient.
        old_logp: [M] those at the time of sampling.
        advantages: [M] of each token's rollout.

    Returns:
        [M] losses (to be minimised), and the boolean tokens {"clip_low_frac", "clip_high_frac", "dual_clip_frac", "clamped_frac"}.
    """
    advantages = advantages.float()
    ratio = log_ratio(logp, old_logp).exp()
    plain, clipped = -advantages * ratio, -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(plain, clipped)
    happened = {
        "clip_low_frac": (ratio < 1 - clip_low) & (advantages < 0),
        "clip_high_frac": (ratio > 1 + clip_high) & (advantages > 0),
        "clamped_frac": (logp.float() - old_logp.float()).abs() > _LOG_RATIO_LIMIT,
    }
    if dual_clip is not None:
        bound = -advantages * dual_clip
        happened["dual_clip_frac"] = (advantages < 0) & (loss > bound)
        loss = torch.where(advantages < 0, torch.minimum(loss, bound), loss)
    return loss, happened


SURROGATES = {"clip": clip}
