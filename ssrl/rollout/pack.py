"""Packing rollouts into rows of tokens: the prompt of a group once, its responses behind it, several groups in one row.

    row        P P P P | a a a | b b | c c c c || Q Q | d d d | e
    position   0 1 2 3   4 5 6   4 5   4 5 6 7    0 1   2 3 4   2

A response token sees its group's prompt and what its own response has before it. Positions restart, so a row gives the same hidden
states as separate padded sequences. Nothing is padded, and tokens behind a rollout's last trained one are left out: they cannot
influence the loss.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ssrl.types import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One packed row of L tokens that holds M trained tokens of several rollouts; each rollout lies in one row only."""

    ids: Tensor  # [L]
    positions: Tensor  # [L]
    group: Tensor  # [L] 0 … in the row
    segment: Tensor  # [L] 0: the group's prompt, else the number of the response in its group
    source: Tensor  # [M] position in the row whose hidden state predicts the trained token
    target: Tensor  # [M] the trained token
    rollout: Tensor  # [M] index of its rollout in the batch
    place: Tensor  # [M] how many trained tokens its rollout has before it
    sampled_logp: Tensor  # [M] the sampler's log-probability

    def to(self, device: torch.device) -> Row:
        return Row(**{name: getattr(self, name).to(device) for name in self.__slots__})


def trained_lengths(rollouts: Sequence[Rollout]) -> Tensor:
    """[R] number of trained tokens of each rollout: |y| in the papers' formulas."""
    return torch.tensor([sum(rollout.trained) for rollout in rollouts], dtype=torch.long)


def pack(rollouts: Sequence[Rollout], *, row_tokens: int, share_prompt: bool = True, keep: Sequence[bool] | None = None) -> list[Row]:
    """Rows of at most `row_tokens` tokens for all rollouts that have a trained token (and, where given, are to be kept).

    Rollouts of a group must stand side by side. A group that does not fit is continued in another row, with its prompt again; a single
    sequence longer than the budget gets a row of its own. Without `share_prompt` every rollout has its prompt before it.
    """
    chosen = [(i, r) for i, r in enumerate(rollouts) if any(r.trained) and (keep is None or keep[i])]
    rows: list[list[list[tuple[int, Rollout]]]] = []  # row -> stretches of one group -> members
    used = row_tokens
    for _, members in itertools.groupby(chosen, key=lambda item: item[1].group):
        fresh = True
        for item in members:
            size, prompt = inputs(item[1]), len(item[1].prompt_ids)
            if used + size + (prompt if fresh else 0) > row_tokens:
                rows.append([])
                used, fresh = 0, True
            if fresh:
                rows[-1].append([])
                used += prompt
            rows[-1][-1].append(item)
            used, fresh = used + size, not share_prompt
    return [_row(row) for row in rows]


def inputs(rollout: Rollout) -> int:
    """Response tokens that must be read: all before the last trained one."""
    return max(t for t, trained in enumerate(rollout.trained) if trained)


def _row(stretches: Sequence[Sequence[tuple[int, Rollout]]]) -> Row:
    ids: list[int] = []
    positions: list[int] = []
    group_of: list[int] = []
    segment_of: list[int] = []  # 0: the group's prompt
    picks: list[tuple[int, int, int, int, float]] = []
    for group, members in enumerate(stretches):
        prompt = members[0][1].prompt_ids
        last_of_prompt = len(ids) + len(prompt) - 1
        _extend(ids, positions, group_of, segment_of, prompt, 0, group, 0)
        for segment, (index, rollout) in enumerate(members, start=1):
            if rollout.prompt_ids != prompt:
                raise ValueError(f"rollouts of group {rollout.group!r} have different prompts")
            start = len(ids)
            _extend(ids, positions, group_of, segment_of, rollout.ids[: inputs(rollout)], len(prompt), group, segment)
            picks += [(start + t - 1 if t else last_of_prompt, token, index, k, logp) for k, (t, token, logp) in enumerate(_trained(rollout))]
    source, target, rollout, place, logp = zip(*picks, strict=True)
    return Row(
        ids=torch.tensor(ids), positions=torch.tensor(positions), group=torch.tensor(group_of), segment=torch.tensor(segment_of),
        source=torch.tensor(source), target=torch.tensor(target), rollout=torch.tensor(rollout), place=torch.tensor(place), sampled_logp=torch.tensor(logp))  # fmt: skip


def _extend(ids: list, positions: list, groups: list, segments: list, tokens: Sequence[int], start: int, group: int, segment: int) -> None:
    ids.extend(tokens)
    positions.extend(range(start, start + len(tokens)))
    groups.extend([group] * len(tokens))
    segments.extend([segment] * len(tokens))


def _trained(rollout: Rollout) -> Iterator[tuple[int, int, float]]:
    return ((t, rollout.ids[t], rollout.logprobs[t]) for t, trained in enumerate(rollout.trained) if trained)
