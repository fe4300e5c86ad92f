"""Where a generation ends by its stop strings: the shortest prefix of its ids whose text holds one."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase


def holds_stop(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stop: Sequence[str]) -> bool:
    """Whether the last token completed a stop string: the tail is long enough for any, since a token is at least one byte."""
    tail = tokenizer.decode(ids[-max(len(text.encode()) for text in stop) - 1 :])
    return any(text in tail for text in stop)


def shortest_holding(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stop: Sequence[str]) -> int | None:
    """Length of the shortest prefix of ids whose text holds a stop string; None where none does."""

    def holds(length: int) -> bool:
        text = tokenizer.decode(ids[:length])
        return any(one in text for one in stop)

    if not stop or not holds(len(ids)):
        return None
    low, high = 0, len(ids)  # the prefix of length low holds none, the one of length high does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
