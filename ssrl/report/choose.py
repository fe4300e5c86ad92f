"""Which rollouts of a run a page shows: a bounded number, spread over the steps, and how they are packed into the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from ssrl.runlog.files import dumps
from ssrl.runlog.rollouts import read_rollouts, rollout_files
from ssrl.types import Block, Source

MOST_ROLLOUTS = 300
MOST_BYTES = 4_000_000
_STEPS_PER_SPLIT = 7
_SOURCE_DIGIT = {source.name.lower(): str(source.value) for source in Source}
_BLOCK_DIGIT = {block.name.lower(): str(block.value) for block in Block}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Packed rollouts, and from how many of the recorded files they come."""

    records: list[dict[str, Any]]
    files_read: int
    files: int


def choose(folder: Path, most: int = MOST_ROLLOUTS, most_bytes: int = MOST_BYTES) -> Chosen:
    """The first rollouts of up to 7 steps of every split, first and last step included: before, during and after training.

    A validation set is written in a fixed order, so the same questions are seen at every step.
    """
    files = rollout_files(folder / "rollouts")
    splits = dict.fromkeys(split for split, _, _ in files)
    taken = [file for split in splits for file in spread([file for file in files if file[0] == split], _STEPS_PER_SPLIT)]
    each = -(-most // max(1, len(taken)))
    read = []
    for split, _, path in sorted(taken, key=lambda file: (file[1], file[0])):
        read.append([packed(item, split) for item in islice(read_rollouts(path), 3 * each)])
    while sum(map(len, read)) > most:  # small files are shown whole; what they leave goes to the large ones
        longest = max(map(len, read))
        read = [part[: longest - 1] for part in read]
    records = [item for part in read for item in part]
    sizes = [len(dumps(item).encode()) for item in records]
    keep = list(range(len(records)))
    while sum(sizes[index] for index in keep) > most_bytes and len(keep) > 1:
        keep = spread(keep, len(keep) * 9 // 10)
    return Chosen(records=[records[index] for index in keep], files_read=len(taken), files=len(files))


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of the items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most <= 1:
        return [items[-1]]
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


def packed(item: dict[str, Any], split: str) -> dict[str, Any]:
    """A record with its per-token lists as strings, one character a token: digits for source, block, trained; base 36 for the turn."""
    tokens = item["tokens"]
    return {
        **{
            key: item[key] for key in ("step", "answers", "group", "sample", "status", "searches", "parts", "reward", "answer", "advantage")
        },
        "split": split,
        "question": item["question"]["text"],
        "set": item["question"]["source"],
        "prompt_tokens": item["prompt_tokens"],
        "text": tokens["text"],
        "source": "".join(map(_SOURCE_DIGIT.__getitem__, tokens["source"])),
        "block": "".join(map(_BLOCK_DIGIT.__getitem__, tokens["block"])),
        "turn": "".join("0123456789abcdefghijklmnopqrstuvwxyz"[min(turn, 35)] for turn in tokens["turn"]),
        "trained": "".join("1" if flag else "0" for flag in tokens["trained"]),
        "logprob": [None if value is None else round(value, 2) for value in tokens["logprob"]],
    }
