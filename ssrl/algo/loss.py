"""The objective of one packed row: surrogate, KL and aggregation put together. This is the whole algorithm on one screen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssrl.algo.kl import ESTIMATORS
from ssrl.algo.surrogate import SURROGATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The choices of an `algo=` file that act on tokens."""

    surrogate: str
    clip_low: float
    clip_high: float
    dual_clip: float | None
    kl_coef: float  # 0: no KL term
    kl_estimator: str


def policy_loss(
    objective: Objective, logp: Tensor, old_logp: Tensor, advantages: Tensor, weights: Tensor, reference: Tensor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Σ over trained tokens of weight * (surrogate + kl_coef * KL).

    Args:
        logp: [M] log-probabilities of the row's trained tokens at the sampling temperature, with gradient.
        old_logp: [M] the same at sampling time, without gradient.
        advantages: [M] of each token's rollout.
        weights: [M] from `algo.aggregate`; they sum to 1 over all rows and processes of one optimiser step.
        reference: [M] the reference policy's log-probabilities, or None where kl_coef is 0.

    Returns:
        The row's share of the loss, and metrics that add up over rows to means: loss/policy, loss/kl, loss/clip_…_frac.
    """
    token_loss, happened = SURROGATES[objective.surrogate](
        logp, old_logp, advantages, clip_low=objective.clip_low, clip_high=objective.clip_high, dual_clip=objective.dual_clip
    )
    metrics = {"loss/policy": (weights * token_loss).sum().detach()}
    metrics |= {f"loss/{name}": (weights * tokens).sum().detach() for name, tokens in happened.items()}
    if reference is not None:
        kl = ESTIMATORS[objective.kl_estimator](logp, reference)
        metrics["loss/kl"] = (weights * kl).sum().detach()
        token_loss = token_loss + objective.kl_coef * kl
    loss = (weights * token_loss).sum()
    metrics["loss/total"] = loss.detach()
    return loss, {name: value.to(torch.float32) for name, value in metrics.items()}
