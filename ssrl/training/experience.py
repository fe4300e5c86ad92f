"""A batch of rollouts as the updates read it: flat tensors over trained tokens, laid out rollout after rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ssrl.rollout.pack import Row, pack, trained_lengths
from ssrl.types import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """R rollouts and their M trained tokens. Example: rollouts of 2, 0 and 1 tokens have starts [0, 2, 2] and rollout [0, 0, 2]."""

    rollouts: list[Rollout]
    groups: Tensor  # [R] 0 … G-1
    numbers: Tensor  # [R] of each rollout in the whole run, the same however they are shared out over processes
    lengths: Tensor  # [R] trained tokens
    starts: Tensor  # [R] index of the first of them
    rollout: Tensor  # [M]

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], numbers: Sequence[int], device: torch.device) -> Layout:
        """Rollouts of a group stand side by side. `numbers` [R]."""
        index = {group: i for i, group in enumerate(dict.fromkeys(r.group for r in rollouts))}
        lengths = trained_lengths(rollouts).to(device)
        return cls(
            rollouts=list(rollouts), groups=torch.tensor([index[r.group] for r in rollouts], dtype=torch.long, device=device),
            numbers=torch.tensor(list(numbers), dtype=torch.long, device=device), lengths=lengths, starts=lengths.cumsum(0) - lengths,
            rollout=torch.repeat_interleave(torch.arange(len(rollouts), device=device), lengths))  # fmt: skip

    @property
    def device(self) -> torch.device:
        return self.lengths.device

    def part(self, indices: Sequence[int], *, row_tokens: int, share_prompt: bool, keep: Sequence[bool] | None = None) -> Part:
        """The rows of some rollouts. `keep` [R of the part]: those that are computed; None: all."""
        rows = pack([self.rollouts[i] for i in indices], row_tokens=row_tokens, share_prompt=share_prompt, keep=keep)
        rows = [row.to(self.device) for row in rows]
        return Part(layout=self, indices=torch.tensor(list(indices), dtype=torch.long, device=self.device), rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of the rollouts, packed into rows."""

    layout: Layout
    indices: Tensor  # [P] of its rollouts in the layout
    rows: list[Row]

    @property
    def lengths(self) -> Tensor:
        """[P]"""
        return self.layout.lengths[self.indices]

    def tokens(self) -> Tensor:
        """Indices of all its trained tokens in the layout, rollout after rollout, computed or not."""
        return torch.cat([torch.arange(int(s), int(s + n), device=s.device) for s, n in zip(self.layout.starts[self.indices], self.lengths, strict=True)] or [self.indices])

    def of(self, row: Row) -> Tensor:
        """[M of the row] indices of a row's trained tokens in the layout."""
        return self.layout.starts[self.indices[row.rollout]] + row.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What the updates of one batch read, beside the rows."""

    layout: Layout
    advantages: Tensor  # [M] float32
    old_logp: Tensor  # [M] NaN where the first update finds it by itself, its ratio being 1
    values: Tensor | None = None  # [M] the critic's before the updates
    returns: Tensor | None = None  # [M] what it is to learn
