"""Which rollouts are trained, and how a batch is split for several updates. Rollouts of a group stay side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from ssrl.config import Config
from ssrl.types import Rollout, Status


def trainable(rollouts: Sequence[Rollout], *, failed: bool = False, alone: bool = False) -> list[Rollout]:
    """Rollouts without those one of whose calls failed (unless `failed`), and without groups of fewer than two (unless `alone`)."""
    groups = [[r for r in members if failed or r.status is not Status.FAILED] for members in by_group(rollouts)]
    return [r for members in groups if len(members) > 1 or alone for r in members]


def by_group(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    return [list(members) for _, members in itertools.groupby(rollouts, key=lambda r: r.group)]


def asked_of_each(config: Config) -> int:
    """How many rollouts of a question are sampled."""
    return config.reward.votes or config.rollout.n


def numbered(rollouts: Sequence[Rollout], number: Mapping[str, int], each: int) -> list[int]:
    """[R] the number of each rollout in the whole run, from the number of its group; `each`: sampled rollouts of a group."""
    return [number[r.group] * each + r.sample for r in rollouts]


def mini_batches(numbers: Sequence[int], updates: int) -> list[list[int]]:
    """Indices of the rollouts of each of `updates` mini-batches of whole groups.

    Args:
        numbers: [R] the number of each rollout's group in the whole run. It alone decides, so that the mini-batches do not depend on how
            the groups are shared out over processes, nor on which of them are dropped.
    """
    return [[i for i, number in enumerate(numbers) if number % updates == k] for k in range(updates)]
