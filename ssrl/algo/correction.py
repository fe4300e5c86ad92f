"""Truncated importance sampling between the sampler's and the trainer's probabilities of the same tokens: factors of the surrogate.

Every function returns ([M] float32 factors without gradient, [M] booleans where the cap cut). [Yao et al., "Your Efficient RL Framework
Secretly Brings You Off-Policy RL Training", 2025; the method: Ionides, "Truncated Importance Sampling", 2008]
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssrl.algo.tokens import LOG_RATIO_LIMIT, Objective, Tokens, rollout_sum

Correction = Callable[[Objective, Tokens], tuple[Tensor, dict[str, Tensor]]]


def none(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    return torch.ones_like(t.weights, dtype=torch.float32), {}


def token(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """min(π_old / π_sampler, cap) of each token."""
    return _capped(_gap(t), o.correction_cap)


def sequence(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """min(Π over the rollout's tokens of π_old / π_sampler, cap), on each of its tokens: unbiased but for the cap, of higher variance."""
    return _capped(rollout_sum(_gap(t), t.rollout), o.correction_cap)


def _gap(t: Tokens) -> Tensor:
    if t.sampler_logp is None:
        raise ValueError("a correction needs the sampler's log-probabilities")
    return t.old_logp.detach().float() - t.sampler_logp.float()


def _capped(log_ratio: Tensor, cap: float) -> tuple[Tensor, dict[str, Tensor]]:
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return ratio.clamp(max=cap), {"correction_capped_frac": ratio > cap}


CORRECTIONS: dict[str, Correction] = {"none": none, "token": token, "sequence": sequence}
