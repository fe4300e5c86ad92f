"""DAPO's two shapings of a batch: which groups have something to teach, and what a response costs that is nearly cut off."""

from __future__ import annotations

import torch
from torch import Tensor


def mixed_groups(outcomes: Tensor, groups: Tensor) -> Tensor:
    """[G] bool: groups that hold a right and a wrong rollout. [DAPO, arXiv 2503.14476, eq. 11]

    Args:
        outcomes: [R] exact match of each rollout, 0 or 1; not the whole reward, whose format part differs nearly always.
        groups: [R] integer group of each rollout, 0 … G-1.
    """
    size = torch.bincount(groups.long())
    right = torch.zeros_like(size).index_add(0, groups.long(), (outcomes > 0).long())
    return (right > 0) & (right < size)


def overlong_penalty(lengths: Tensor, *, max_length: int, buffer: float, factor: float) -> Tensor:
    """[R] to be added to rewards: 0 up to max_length - buffer tokens, then falling linearly to -factor at max_length. [DAPO, eq. 13]

    Args:
        lengths: [R] response tokens of each rollout.
        buffer: tokens over which the penalty grows; above 0.
    """
    return factor * ((max_length - buffer - lengths.float()) / buffer).clamp(-1, 0)
