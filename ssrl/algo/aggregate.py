"""How token losses become one number: the weight of every token, fixed once per optimiser step over all processes.

A loss is then the plain sum of weight * token loss, so it depends on no micro-batch size, accumulation or number of processes.
Every function takes [R] numbers of trained tokens and returns [R] weights of each rollout's tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Aggregate = Callable[..., Tensor]  # (lengths, *, total_tokens, total_rollouts, constant_length) -> [R]


def token_mean(lengths: Tensor, *, total_tokens: int, total_rollouts: int, constant_length: int) -> Tensor:
    """1 / (trained tokens of the batch): long rollouts weigh more. [DAPO, arXiv 2503.14476, eq. 8; the published SSRL choice, FACTS 1.3]"""
    return _weights(lengths, max(total_tokens, 1))


def sequence_mean(lengths: Tensor, *, total_tokens: int, total_rollouts: int, constant_length: int) -> Tensor:
    """1 / (rollouts * trained tokens of the rollout): every rollout weighs the same. [GRPO, arXiv 2402.03300, eq. 3]"""
    return 1 / (lengths.float().clamp(min=1) * max(total_rollouts, 1))


def sequence_sum(lengths: Tensor, *, total_tokens: int, total_rollouts: int, constant_length: int) -> Tensor:
    """1 / rollouts: the mean over rollouts of the sums over their tokens, the gradient of log π(y|x). [RLOO, arXiv 2402.14740]"""
    return _weights(lengths, max(total_rollouts, 1))


def constant(lengths: Tensor, *, total_tokens: int, total_rollouts: int, constant_length: int) -> Tensor:
    """1 / (rollouts * constant_length): no bias towards short right or long wrong rollouts. [Dr. GRPO, arXiv 2503.20783, section 3.2]"""
    return _weights(lengths, max(total_rollouts, 1) * constant_length)


def _weights(lengths: Tensor, denominator: int) -> Tensor:
    return torch.full(lengths.shape, 1 / denominator, device=lengths.device)


AGGREGATES: dict[str, Aggregate] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
    "constant": constant,
}
