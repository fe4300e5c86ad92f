"""The advantage of every trained token of a batch, by the name of its estimator: what happens between scoring and the updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ssrl.algo.advantage import ADVANTAGES, gae, group_mean, reinforce_pp, token_rewards, whiten
from ssrl.algo.tokens import Total


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """R rollouts of whole groups on this process, and their M trained tokens. A rollout without a trained token still counts in its group."""

    rewards: Tensor  # [R]
    groups: Tensor  # [R] 0 … G-1
    rollout: Tensor  # [M] contiguous and in order
    kl: Tensor | None = None  # [M] KL estimate of each token, where the KL term is in the reward
    kl_coef: float = 0.0
    values: Tensor | None = None  # [M] the critic's, for `gae`
    gamma: float = 1.0
    lam: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What the updates use."""

    advantages: Tensor  # [M] float32
    returns: Tensor | None = None  # [M] float32, where there is a critic to learn them


def assign(estimator: str, batch: Batch, *, whitened: bool, total: Total) -> Credit:
    """The advantages of a whole batch, before it is split into mini-batches.

    With the KL term in the reward, an estimator of rollouts compares r - kl_coef * (sum of the rollout's KL); one of tokens takes
    kl_coef * KL from each token's reward.

    Args:
        estimator: a key of CREDITS.
        whitened: whiten the advantages over all trained tokens of all processes, whatever the estimator.
        total: sums a small tensor over processes.
    """
    credit = CREDITS[estimator](batch, total)
    return Credit(advantages=whiten(credit.advantages, total), returns=credit.returns) if whitened else credit


def _of_rollouts(estimator: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Batch, Total], Credit]:
    def credit(b: Batch, total: Total) -> Credit:
        rewards = b.rewards.double()
        if b.kl is not None:
            rewards = rewards - b.kl_coef * torch.zeros_like(rewards).index_add(0, b.rollout, b.kl.double())
        return Credit(advantages=estimator(rewards, b.groups)[b.rollout])

    return credit


def _reinforce_pp(b: Batch, total: Total) -> Credit:
    return Credit(advantages=reinforce_pp(token_rewards(b.rewards, b.rollout, b.kl, b.kl_coef), b.rollout, gamma=b.gamma, total=total))


def _reinforce_pp_baseline(b: Batch, total: Total) -> Credit:
    rewards = token_rewards(group_mean(b.rewards, b.groups), b.rollout, b.kl, b.kl_coef)
    return Credit(advantages=reinforce_pp(rewards, b.rollout, gamma=b.gamma, total=total))


def _gae(b: Batch, total: Total) -> Credit:
    if b.values is None:
        raise ValueError("gae needs a critic's values")
    rewards = token_rewards(b.rewards, b.rollout, b.kl, b.kl_coef)
    advantages, returns = gae(rewards, b.values, b.rollout, gamma=b.gamma, lam=b.lam)
    return Credit(advantages=advantages, returns=returns)


CREDITS: dict[str, Callable[[Batch, Total], Credit]] = {
    **{name: _of_rollouts(estimator) for name, estimator in ADVANTAGES.items()},
    "reinforce_pp": _reinforce_pp,
    "reinforce_pp_baseline": _reinforce_pp_baseline,
    "gae": _gae,
}
