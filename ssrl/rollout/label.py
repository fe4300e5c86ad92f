"""Blocks and the trained mask of a finished response, from byte offsets of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ssrl.text.tags import information_spans, label_spans, published_information_spans
from ssrl.types import Block, Source


def policy_view(pieces: Sequence[bytes], sources: Sequence[Source]) -> str:
    """The response with one character a byte and engine text blanked out, so that nothing an engine says can open or close a tag."""
    return b"".join(b" " * len(p) if s is Source.ENGINE else p for p, s in zip(pieces, sources, strict=True)).decode("latin-1")


def label(pieces: Sequence[bytes], sources: Sequence[Source], mask: str, *, thinking: bool = False) -> tuple[tuple[Block, ...], tuple[bool, ...]]:
    """The block of each token, and whether it is trained.

    Args:
        pieces: [T] bytes of each token.
        sources: [T] who wrote it.
        mask: `tokens`: sampled tokens outside of `<information>…</information>`, where a token that overlaps the span is inside;
            `none`: every token of the response; `paper`: sampled tokens outside of what the published mask finds.
        thinking: the prompt has already opened a think block.

    Returns:
        [T] blocks, [T] trained.
    """
    text = policy_view(pieces, sources) + " "  # so that a block that never closes also holds the tokens without text at its end
    ends = list(accumulate(map(len, pieces)))
    starts = [0, *ends[:-1]]
    blocks = [Block.INFORMATION if source is Source.ENGINE else Block.OUTSIDE for source in sources]
    inside = [False] * len(pieces)
    for first, last, block in label_spans(text, thinking=thinking):
        for t in _overlapping(starts, ends, first, last):
            if sources[t] is not Source.ENGINE:
                blocks[t] = block
    for first, last in information_spans(text):
        for t in _overlapping(starts, ends, first, last):
            inside[t], blocks[t] = True, Block.INFORMATION
    if mask == "none":
        return tuple(blocks), (True,) * len(pieces)
    if mask == "paper":
        inside = [False] * len(pieces)
        for first, last in published_information_spans(text):
            for t in _overlapping(starts, ends, first, last):
                inside[t] = True
    return tuple(blocks), tuple(s is Source.POLICY and not i for s, i in zip(sources, inside, strict=True))


def _overlapping(starts: Sequence[int], ends: Sequence[int], first: int, last: int) -> list[int]:
    return [t for t, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < last and end > first]
