"""What every function of the objective reads: the choices of an `algo=` file, and the trained tokens of one packed row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # exp(20) is finite in every type that losses are computed in; no gradient where clamped

Total = Callable[[Tensor], Tensor]  # the element-wise sum of a small tensor over all processes
Gather = Callable[[Tensor], Tensor]  # the 1-D tensors of all processes one after another; their lengths may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The choices that act on tokens. Names and meanings are those of `AlgoConfig`."""

    surrogate: str
    clip_low: float
    clip_high: float
    dual_clip: float | None
    cov_ratio: float
    cov_coef: float
    cov_low: float
    cov_high: float
    correction: str
    correction_cap: float
    kl_estimator: str
    kl_coef: float  # acts where tokens carry a reference, that is, where the KL term is in the loss
    entropy_coef: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """M trained tokens of whole rollouts. Tokens that are not trained are absent, so they can influence nothing.

    Example: two rollouts of 2 and 1 trained tokens have rollout = [0, 0, 1].
    """

    logp: Tensor  # [M] log-probabilities now, at the sampling temperature, with gradient
    old_logp: Tensor  # [M] those of the policy that the batch was sampled with, by the trainer
    advantages: Tensor  # [M]
    weights: Tensor  # [M] from `algo.aggregate`
    rollout: Tensor  # [M] index of the token's rollout; a rollout's tokens are contiguous and in order
    share: float  # what a token counts in a metric: 1 / (trained tokens of the optimiser step on all processes); 0 in a filler
    reference: Tensor | None = None  # [M] the reference policy's log-probabilities
    sampler_logp: Tensor | None = None  # [M] the sampler's log-probabilities
    entropy: Tensor | None = None  # [M] full-vocabulary entropy in nats, with gradient
    selected: Tensor | None = None  # [M] bool, from `algo.covariance`

    def log_ratio(self) -> Tensor:
        """[M] log π - log π_old in float32, clamped to ±20 before any exp."""
        return (self.logp.float() - self.old_logp.float()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)

    def clamped(self) -> Tensor:
        """[M] bool: where `log_ratio` is clamped, and so gives no gradient."""
        return (self.logp.float() - self.old_logp.float()).detach().abs() > LOG_RATIO_LIMIT


def rollout_sum(values: Tensor, rollout: Tensor) -> Tensor:
    """[M] the sum of the values of each token's rollout."""
    size = int(rollout.max()) + 1 if len(rollout) else 0
    return values.new_zeros(size).index_add(0, rollout, values)[rollout]


def rollout_mean(values: Tensor, rollout: Tensor) -> Tensor:
    """[M] the mean of the values of each token's rollout."""
    return rollout_sum(values, rollout) / rollout_sum(torch.ones_like(values), rollout)
