"""Scores of a response's shape, in [0, 1].

`ssrl_format` is SSRL's published score, rule by rule (FACTS 1.4), its leniencies included: text between blocks, stray closing tags and
repeated answers pass, a bare think and answer earns 0.5. `self_search_format` is our own deviation, under a name of its own.
"""

from __future__ import annotations

import re

from ssrl.text.tags import TAGS, contents, scan
from ssrl.types import Block

PLACEHOLDERS = {
    Block.THINK: "your thoughts",
    Block.SEARCH: "your query",
    Block.INFORMATION: "your information",
    Block.ANSWER: "your answer",
}
"""What a prompt may show in place of content: a response that copies it earns nothing."""
MAX_THINKS = 8
FULL_THINKS = 2  # think blocks from which the score is no longer halved

_ANGLES = re.compile(r"<[^>]+>")
_EXACT = {tag for pair in TAGS.values() for tag in pair}


def ssrl_format(text: str) -> float:
    """SSRL's score: min(T/2, 1) · min(T, S+1)/max(T, S+1) for T think and S search blocks, 0 where a rule is broken."""
    text = text.strip()
    if any(found not in _EXACT for found in _ANGLES.findall(text)):
        return 0.0
    if not text.startswith("<think>") or not text.endswith("</answer>"):
        return 0.0
    tags = [str(tag) for tag in scan(text)]
    if tags[:2] != ["<think>", "</think>"] or tags[-2:] != ["<answer>", "</answer>"]:
        return 0.0
    if not all(_filled(block, content) for block in TAGS for content in contents(text, block)):
        return 0.0
    for position, tag in enumerate(tags):
        if tag == "<search>" and tags[position + 1 : position + 4] != ["</search>", "<information>", "</information>"]:
            return 0.0
    thinks, searches = tags.count("<think>"), tags.count("<search>")
    if searches != tags.count("<information>") or thinks > MAX_THINKS:
        return 0.0
    return min(thinks / FULL_THINKS, 1.0) * min(thinks, searches + 1) / max(thinks, searches + 1)


def ssrl_bool_format(text: str) -> float:
    """The Boolean of the paper's equation 7: 1 where SSRL's score is above 0."""
    return float(ssrl_format(text) > 0)


def self_search_format(text: str) -> float:
    """SSRL's score, but 0 without a closed search block, so that the shorter think and answer does not pay."""
    return ssrl_format(text) if contents(text, Block.SEARCH) else 0.0


def _filled(block: Block, content: str) -> bool:
    if not content.strip() or PLACEHOLDERS[block] in content.lower():
        return False
    return block is not Block.SEARCH or "\n" not in content
