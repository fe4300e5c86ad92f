"""Estimators of the KL divergence to the reference policy, one value a token. [Schulman, "Approximating KL divergence", 2020]"""

from __future__ import annotations

from torch import Tensor

_K3_LIMIT = 10.0  # the published clamp of d (FACTS 1.3); before exp, so that the gradient is finite too


def k1(logp: Tensor, reference: Tensor) -> Tensor:
    """log π - log π_ref: unbiased, of either sign."""
    return logp.float() - reference.float()


def k2(logp: Tensor, reference: Tensor) -> Tensor:
    """(log π - log π_ref)² / 2: biased, low variance."""
    return 0.5 * (logp.float() - reference.float()).square()


def k3(logp: Tensor, reference: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = log π_ref - log π clamped to ±10: unbiased, never negative. No gradient where clamped."""
    d = (reference.float() - logp.float()).clamp(-_K3_LIMIT, _K3_LIMIT)
    return d.exp() - d - 1


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
