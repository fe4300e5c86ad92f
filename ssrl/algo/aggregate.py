"""How token losses become one number: the weight of every token, fixed once per optimiser step over all processes.

A loss is then the plain sum of weight * token loss, so it depends on no micro-batch size, accumulation or number of processes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_mean(lengths: Tensor, *, total_tokens: int, total_rollouts: int) -> Tensor:
    """[R] weight of each rollout's tokens, given [R] numbers of trained tokens: 1 / (all trained tokens of the batch): long rollouts weigh more. [DAPO, eq. 8; the published SSRL aggregation, FACTS 1.3]"""
    return torch.full(lengths.shape, 1 / max(total_tokens, 1), device=lengths.device)


def sequence_mean(lengths: Tensor, *, total_tokens: int, total_rollouts: int) -> Tensor:
    """[R] 1 / (rollouts * trained tokens of the rollout): every rollout weighs the same. [GRPO, arXiv 2402.03300, eq. 3]"""
    return 1 / (lengths.float().clamp(min=1) * max(total_rollouts, 1))


AGGREGATES = {"token_mean": token_mean, "sequence_mean": sequence_mean}
