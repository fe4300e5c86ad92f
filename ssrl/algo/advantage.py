"""From rewards to advantages. Rollout-level estimators give one number a rollout, token-level ones one a token.

Tokens that are not trained are absent, so trajectories are compact: what an engine wrote between two of them costs neither discount nor
value. Sums are in float64, results in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssrl.algo.tokens import Total


def group_zscore(rewards: Tensor, groups: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """GRPO: (r - mean of the group) / (sample standard deviation of the group + epsilon). [DeepSeekMath, arXiv 2402.03300, eq. 10; FACTS 1.3]

    Args:
        rewards: [R] one a rollout.
        groups: [R] integer group of each rollout, 0 … G-1; each group must have at least two rollouts.

    Returns:
        [R] float32. Zero for a group whose rewards are equal: the mean is subtracted in float64 and twice, because a residue
        of rounding would otherwise be blown up by the division.
    """
    size = _sizes(groups, least=2)
    centred = _centred(rewards, groups)
    std = (_means(centred**2, groups) * size / (size - 1)).sqrt()
    return torch.where(std > 1e-9, centred / (std + epsilon), torch.zeros_like(centred)).float()


def group_mean(rewards: Tensor, groups: Tensor) -> Tensor:
    """[R] r - mean of the group, at least two rollouts each. [Dr. GRPO, arXiv 2503.20783, section 3.2]"""
    _sizes(groups, least=2)
    return _centred(rewards, groups).float()


def leave_one_out(rewards: Tensor, groups: Tensor) -> Tensor:
    """[R] r - mean of the group's other rewards = n / (n - 1) * (r - mean of the group). [RLOO, arXiv 2402.14740; FACTS 1.11]"""
    size = _sizes(groups, least=2)
    return (_centred(rewards, groups) * size / (size - 1)).float()


def reward(rewards: Tensor, groups: Tensor) -> Tensor:
    """[R] r itself: REINFORCE without a baseline."""
    return rewards.float()


ADVANTAGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "group_zscore": group_zscore,
    "group_mean": group_mean,
    "leave_one_out": leave_one_out,
    "reward": reward,
}


def token_rewards(rewards: Tensor, rollout: Tensor, kl: Tensor | None = None, coef: float = 0.0) -> Tensor:
    """[M] float64: the reward on the last trained token of its rollout, minus coef * KL on every token.

    Args:
        rewards: [R]
        rollout: [M] index of each trained token's rollout; contiguous and in order.
        kl: [M] an estimate of the KL to the reference policy, where it is in the reward.
    """
    last = torch.cat([rollout[1:] != rollout[:-1], rollout.new_ones(1, dtype=torch.bool)])[: len(rollout)]
    found = torch.where(last, rewards.double()[rollout], 0.0)
    return found if kl is None else found - coef * kl.double()


def discounted(values: Tensor, rollout: Tensor, discount: float) -> Tensor:
    """[M] float64 s with s_t = x_t + discount * s_{t+1} within each rollout, in log2(length) passes: after each, s_t holds its next `reach` terms."""
    found, reach = values.double(), 1
    while reach < len(found) and (same := rollout[reach:] == rollout[:-reach]).any():
        more = torch.where(same, discount**reach * found[reach:], 0.0)
        found = torch.cat([found[:-reach] + more, found[-reach:]])
        reach *= 2
    return found


def gae(token_reward: Tensor, values: Tensor, rollout: Tensor, *, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation: A_t = Σ_l (gamma lam)^l δ_{t+l} with δ_t = r_t + gamma V_{t+1} - V_t. [arXiv 1506.02438, eq. 16]

    Args:
        token_reward: [M] from `token_rewards`.
        values: [M] the critic's value of the state before each trained token; 0 follows the last one.
        rollout: [M]

    Returns:
        [M] advantages and [M] returns A + V, which the critic learns.
    """
    values = values.detach().double()
    same = torch.cat([rollout[1:] == rollout[:-1], rollout.new_zeros(1, dtype=torch.bool)])[: len(rollout)]
    after = torch.where(same, values.roll(-1), 0.0)
    advantages = discounted(token_reward.double() + gamma * after - values, rollout, gamma * lam)
    return advantages.float(), (advantages + values).float()


def reinforce_pp(token_reward: Tensor, rollout: Tensor, *, gamma: float, total: Total) -> Tensor:
    """[M] REINFORCE++: the discounted return from each token on, whitened over all tokens of the batch. [arXiv 2501.03262; FACTS 1.11]

    With its baseline variant the token rewards come from `group_mean`ed rewards.
    """
    return whiten(discounted(token_reward, rollout, gamma), total)


def whiten(values: Tensor, total: Total) -> Tensor:
    """[M] (x - mean) / sqrt(variance + 1e-8) over the tokens of all processes, with the population variance.

    Zero where all values are equal, and so for a single token; a process without tokens takes part.

    Args:
        values: [M] of all trained tokens of this process.
        total: sums a small tensor over processes.
    """
    values = values.double()
    count = total(values.new_tensor([float(len(values))])).clamp(min=1)
    centred = values - total(values.sum()[None]) / count
    centred = centred - total(centred.sum()[None]) / count  # what rounding left of the mean
    variance = total(centred.square().sum()[None]) / count
    return torch.where(variance > 1e-18, centred / (variance + 1e-8).sqrt(), torch.zeros_like(centred)).float()


def _sizes(groups: Tensor, *, least: int) -> Tensor:
    """[R] float64 size of each rollout's group."""
    size = torch.bincount(groups.long()).double()[groups.long()]
    if (size < least).any():
        raise ValueError("a group-relative advantage needs at least two rollouts in every group")
    return size


def _means(values: Tensor, groups: Tensor) -> Tensor:
    groups = groups.long()
    size = torch.bincount(groups).double()
    return (torch.zeros_like(size).index_add(0, groups, values) / size)[groups]


def _centred(rewards: Tensor, groups: Tensor) -> Tensor:
    """[R] float64, in two passes: the second takes away what rounding left of the mean."""
    centred = rewards.double() - _means(rewards.double(), groups)
    return centred - _means(centred, groups)
