"""Which rollouts are trained, and how a batch is split for several updates. Rollouts of a group stay side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ssrl.types import Rollout, Status


def trainable(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Rollouts without those whose engine failed, and without groups that this leaves with fewer than two."""
    groups = [[r for r in members if r.status is not Status.FAILED] for members in by_group(rollouts)]
    return [r for members in groups if len(members) > 1 for r in members]


def by_group(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    return [list(members) for _, members in itertools.groupby(rollouts, key=lambda r: r.group)]


def mini_batches(rollouts: Sequence[Rollout], updates: int) -> list[list[int]]:
    """Indices of the rollouts of each of `updates` mini-batches of whole groups, as equal in number of groups as can be."""
    groups, start = [], 0
    for members in by_group(rollouts):
        groups.append(list(range(start, start + len(members))))
        start += len(members)
    return [[i for group in groups[k::updates] for i in group] for k in range(updates)]
