"""What rewards see of a response.

Only the policy is scored. An engine's block counts as one well-formed information block whose content is not read: it is replaced by a
fixed one, so no document, however hostile, can change a score. Where a merged `><` has closed the search, the policy has written that block's
first character, which goes with it. Text that our template added (a prefilled `<think>`) belongs to the response.

Models with a thinking mode of their own (Qwen3) first write a native block that ends in `</think>` too, opened by them or by the chat
template in the prompt. It is not part of our grammar: with `native_thinking` the scored text begins after the first `</think>`, and a native
block that never closes leaves nothing to score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from ssrl.text.tags import scan
from ssrl.types import Block, Segment, Source

# Not blank, no placeholder, and without a word that could equal an answer.
ENGINE_BLOCK = "<information>...</information>"
_BEGUN = re.compile(r"(?<=</search>)(\s*)<\Z")


def scored_segments(segments: Sequence[Segment], native_thinking: bool = False) -> list[Segment]:
    """The segments with the engine's text replaced and the native thinking block cut off."""
    shown = [_shown(segment, following) for segment, following in zip_longest(segments, segments[1:])]
    if not native_thinking:
        return shown
    text = "".join(segment.text for segment in shown)
    cut = next((tag.end for tag in scan(text) if tag.closing and tag.block is Block.THINK), len(text))
    kept = []
    for segment in shown:
        kept.append(Segment(source=segment.source, text=segment.text[cut:]))
        cut = max(0, cut - len(segment.text))
    return kept


def _shown(segment: Segment, following: Segment | None) -> Segment:
    if segment.source is Source.ENGINE:
        return replace(segment, text=ENGINE_BLOCK)
    if segment.source is Source.POLICY and following is not None and following.source is Source.ENGINE:
        return replace(segment, text=_BEGUN.sub(r"\1", segment.text))
    return segment


def scoring_text(segments: Sequence[Segment], native_thinking: bool = False) -> str:
    """The response as rewards and answer extraction read it."""
    return "".join(segment.text for segment in scored_segments(segments, native_thinking))


def self_written_information(segments: Sequence[Segment], native_thinking: bool = False) -> bool:
    """Whether the policy wrote an information tag itself: the mechanism of self-search, a violation where an engine answers."""
    written = (segment.text for segment in scored_segments(segments, native_thinking) if segment.source is Source.POLICY)
    return any(tag.block is Block.INFORMATION for text in written for tag in scan(text))
