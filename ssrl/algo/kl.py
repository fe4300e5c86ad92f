"""KL to the reference policy: estimators, one value a token, and the coefficient that follows a target.

[Schulman, "Approximating KL divergence", 2020]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from ssrl.algo.tokens import LOG_RATIO_LIMIT

K3_LIMIT = 10.0  # the published largest value of k3 (FACTS 1.3)


def k1(logp: Tensor, reference: Tensor) -> Tensor:
    """log π - log π_ref: unbiased, of either sign. As a loss its gradient is zero in expectation; it belongs in the reward."""
    return logp.float() - reference.float()


def k2(logp: Tensor, reference: Tensor) -> Tensor:
    """(log π - log π_ref)² / 2: biased, low variance; as a loss its gradient is that of the KL divergence."""
    return 0.5 * (logp.float() - reference.float()).square()


def k3(logp: Tensor, reference: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = log π_ref - log π, at most 10: never negative, unbiased below the limit, and without a gradient beyond it."""
    d = (reference.float() - logp.float()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)  # so that exp is finite
    return (d.exp() - d - 1).clamp(max=K3_LIMIT)


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """The weight of the KL term: fixed where there is no target, else pulled towards it. [Ziegler et al., arXiv 1909.08593, section 2.2]"""

    value: float
    target: float | None  # wanted KL in nats a token
    horizon: int  # rollouts over which the coefficient adapts; more move slower

    def after(self, kl: float, rollouts: int) -> Coefficient:
        """The coefficient of the next batch: value · (1 + clip(kl / target - 1, ±0.2) · rollouts / horizon).

        Args:
            kl: mean KL a token of the batch just sampled. One that is not finite changes nothing.
            rollouts: of that batch over all processes; they count as at most one horizon, so that the coefficient stays positive.
        """
        if self.target is None or not math.isfinite(kl):
            return self
        error = min(max(kl / self.target - 1, -0.2), 0.2)
        return replace(self, value=self.value * (1 + error * min(rollouts / self.horizon, 1)))
