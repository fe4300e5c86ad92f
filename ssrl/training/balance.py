"""Sharing out a batch's groups over the processes, so that each has about as many tokens to compute in every update.

Whoever sampled a rollout need not train on it: a process waits for the slowest at the end of an update, and responses differ in length.
Groups stay whole, since their rollouts share a prompt and are compared with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ssrl.rollout.pack import inputs
from ssrl.training import ranks
from ssrl.training.select import by_group
from ssrl.types import Rollout


def balanced(
    mine: Sequence[Rollout], number: Mapping[str, int], *, updates: int, share_prompt: bool, skip_flat: bool
) -> tuple[list[Rollout], dict[str, int]]:
    """The rollouts that this process trains on, taken from all processes, and the numbers of their groups.

    Args:
        mine: what this process sampled and keeps, group by group.
        number: of each of its groups in the whole run; it decides the update that a group belongs to.
        skip_flat: whether groups whose rollouts all earned the same are not computed.
    """
    if ranks.world_size() == 1:
        return list(mine), dict(number)
    numbers = dict(ranks.gathered(list(number.items())))
    groups = sorted(by_group(ranks.gathered(list(mine))), key=lambda group: numbers[group[0].group])
    costs = [_cost(group, share_prompt, skip_flat) for group in groups]
    owners = shared_out(costs, [numbers[group[0].group] % updates for group in groups], ranks.world_size())
    taken = [group for group, owner in zip(groups, owners, strict=True) if owner == ranks.rank()]
    return [r for group in taken for r in group], {group[0].group: numbers[group[0].group] for group in taken}


def shared_out(costs: Sequence[int], update: Sequence[int], processes: int) -> list[int]:
    """The process that computes each group: in each update the most costly first, to whoever has least so far.

    The most loaded process has at most 4/3 of what the best sharing could give it. [Graham 1969, Bounds on Multiprocessing Timing Anomalies]
    """
    owner = [0] * len(costs)
    for one in sorted(set(update)):
        loads = [0] * processes
        members = [i for i, u in enumerate(update) if u == one]
        for i in sorted(members, key=lambda i: (-costs[i], i)):
            owner[i] = min(range(processes), key=lambda process: (loads[process], process))
            loads[owner[i]] += costs[i]
    return owner


def _cost(group: Sequence[Rollout], share_prompt: bool, skip_flat: bool) -> int:
    """Tokens of the rows that hold the group, where it is computed and lies in one row."""
    rewards = [r.score.total for r in group]
    computed = [r for r in group if any(r.trained)]
    if not computed or (skip_flat and min(rewards) == max(rewards)):
        return 0
    return len(group[0].prompt_ids) * (1 if share_prompt else len(computed)) + sum(map(inputs, computed))
