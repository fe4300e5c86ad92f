"""From a rollout's reward to its advantage."""

from __future__ import annotations

import torch
from torch import Tensor


def group_zscore(rewards: Tensor, groups: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """GRPO: (r - mean of the group) / (sample standard deviation of the group + epsilon). [DeepSeekMath, arXiv 2402.03300, eq. 10; FACTS 1.3]

    Args:
        rewards: [R] one a rollout.
        groups: [R] integer group of each rollout, 0 … G-1; each group must have at least two rollouts.

    Returns:
        [R] float32. Zero for a group whose rewards are equal: the mean is subtracted in float64 and twice, because a residue
        of rounding would otherwise be blown up by the division.
    """
    groups = groups.long()
    size = torch.bincount(groups).double()
    if (size[groups] < 2).any():
        raise ValueError("a group-relative advantage needs at least two rollouts in every group")

    def mean(values: Tensor) -> Tensor:
        return torch.zeros_like(size).index_add_(0, groups, values)[groups] / size[groups]

    centred = rewards.double() - mean(rewards.double())
    centred = centred - mean(centred)
    std = (mean(centred**2) * size[groups] / (size[groups] - 1)).sqrt()
    return torch.where(std > 1e-9, centred / (std + epsilon), torch.zeros_like(centred)).float()


ADVANTAGES = {"group_zscore": group_zscore}
