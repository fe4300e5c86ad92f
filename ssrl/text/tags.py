"""The one grammar of a response: four blocks, eight exact tags, one state machine.

    OUTSIDE --<x>--> x --</x>--> OUTSIDE

Inside think every other tag is plain text until `</think>`, so a tag that the policy only mentions is never an action. Inside another
block an opening tag ends that block unclosed and opens the next one: a forgotten closing tag spoils two blocks, not the rest of the text.
The machine reads left to right without looking ahead, so a block once closed stays what it is, however the text goes on.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from ssrl.types import Block

BLOCKS = {"think": Block.THINK, "search": Block.SEARCH, "information": Block.INFORMATION, "answer": Block.ANSWER}
TAGS: dict[Block, tuple[str, str]] = {block: (f"<{name}>", f"</{name}>") for name, block in BLOCKS.items()}
"""The opening and the closing tag of each block."""

_TAG = re.compile(rf"<(/?)({'|'.join(BLOCKS)})>")
# One alternative for white space at each place, so that no text makes the matching slow.
_RESEMBLES = re.compile(rf"<\s*(?:/\s*)?(?:{'|'.join(BLOCKS)})\b[^<>]*(>?)", re.IGNORECASE)
# Full-width, small and mathematical forms of ASCII, one character for one.
_ASCII = {
    code: form
    for code in (*range(0xFE50, 0xFE70), *range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800))
    if len(form := unicodedata.normalize("NFKC", chr(code))) == 1 and form.isascii()
}
_ONE_LINE_INFORMATION = re.compile(r"<information>.*?</information>")
# What the token that completes a stop string may carry beyond it: white space, or the `<` of a merged `><`.
_TOKEN_REST = re.compile(r"\s*<?")


@dataclass(frozen=True, slots=True)
class Tag:
    """One exact tag; text[start:end] is the tag itself."""

    name: str
    closing: bool
    start: int
    end: int

    @property
    def block(self) -> Block:
        return BLOCKS[self.name]

    def __str__(self) -> str:
        return TAGS[self.block][self.closing]


@dataclass(frozen=True, slots=True)
class Span:
    """One block of a response; text[start:end] includes the tags that it has."""

    block: Block
    start: int
    end: int
    inner: str  # the text between the tags, as it is
    closed: bool
    problem: str = ""  # why the block is not well-formed; empty where it is


@dataclass(frozen=True, slots=True)
class Parsed:
    """The blocks of a response in order, and everything that is wrong with them, stray closing tags included."""

    spans: tuple[Span, ...]
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Open:
    block: Block
    start: int
    inner: int
    problem: str = ""


def scan(text: str) -> list[Tag]:
    """All exact tags in order. `<Think>`, `<search lang=en>` and `< answer>` are not tags."""
    return [Tag(match[2], bool(match[1]), *match.span()) for match in _TAG.finditer(text)]


def neutralise(text: str) -> str:
    """Text from outside with the angle brackets of anything that resembles one of our tags made harmless (‹ ›).

    Case, spacing, attributes, a missing closing bracket and full-width or mathematical letters do not hide a tag. Invisible characters
    are taken out before (`ssrl.text.outside`).
    """
    marked = list(text)
    for match in _RESEMBLES.finditer(text.translate(_ASCII)):
        marked[match.start()] = "‹"
        if match[1]:
            marked[match.start(1)] = "›"
    return "".join(marked)


def parse(text: str, *, thinking: bool = False) -> Parsed:
    """The blocks of `text`. `thinking`: the prompt has already opened a think block, so the text begins inside it."""
    spans: list[Span] = []
    problems: list[str] = []
    current = _Open(Block.THINK, 0, 0) if thinking else None

    def leave(current: _Open, inner_end: int, end: int, closed: bool, problem: str) -> None:
        inner = text[current.inner : inner_end]
        if closed and not inner.strip():
            problem = f"{TAGS[current.block][0]} is empty"
        problem = current.problem or problem
        spans.append(Span(current.block, current.start, end, inner, closed, problem))
        if problem:
            problems.append(problem)

    for tag in scan(text):
        if current is None:
            if tag.closing:
                problems.append(f"{tag} closes nothing")
            else:
                current = _Open(tag.block, tag.start, tag.end)
            continue
        opening = TAGS[current.block][0]
        if tag.closing and tag.block is current.block:
            leave(current, tag.start, tag.end, True, "")
            current = None
        elif current.block is Block.THINK:
            if tag.block is Block.THINK:
                current.problem = "<think> opens inside <think>"
        elif tag.closing:
            current.problem = current.problem or f"{tag} stands inside {opening}"
        else:
            leave(current, tag.start, tag.start, False, f"{opening} is not closed before {tag}")
            current = _Open(tag.block, tag.start, tag.end, f"{tag} opens inside {opening}")
    if current is not None:
        leave(current, len(text), len(text), False, f"{TAGS[current.block][0]} is never closed")
    return Parsed(tuple(spans), tuple(problems))


def pending_search(text: str, *, thinking: bool = False) -> str | None:
    """The query, stripped, where `text` has just closed a well-formed search block; else None.

    White space or one `<` may follow the tag: they are what the last token can carry beyond it.
    """
    spans = parse(text, thinking=thinking).spans
    if not spans or spans[-1].block is not Block.SEARCH or spans[-1].problem:
        return None
    return spans[-1].inner.strip() if _TOKEN_REST.fullmatch(text, spans[-1].end) else None


def has_answer(text: str, *, thinking: bool = False) -> bool:
    """Whether `text` closes an answer block outside of think."""
    return any(span.block is Block.ANSWER and span.closed for span in parse(text, thinking=thinking).spans)


def pairs(text: str, block: Block) -> list[tuple[Tag, Tag | None]]:
    """Each opening tag of `block` with the next closing tag of its kind, whatever stands between; only the last can lack one.

    This is the reading of the published scores and of the information mask, which ask for pairs and not for a well-formed sequence.
    """
    found: list[tuple[Tag, Tag | None]] = []
    opening: Tag | None = None
    for tag in scan(text):
        if tag.block is not block:
            continue
        if tag.closing and opening is not None:
            found.append((opening, tag))
            opening = None
        elif not tag.closing and opening is None:
            opening = tag
    return found if opening is None else [*found, (opening, None)]


def contents(text: str, block: Block) -> list[str]:
    """The raw text inside each closed pair of `block`."""
    return [text[opening.end : closing.start] for opening, closing in pairs(text, block) if closing is not None]


def information_spans(text: str) -> list[tuple[int, int]]:
    """The characters [start, end) of every information block, tags included, inside think too; an unclosed one reaches the end of the text.

    The loss mask is made of these, so it must not depend on a forgotten `</think>`.
    """
    return [(opening.start, closing.end if closing else len(text)) for opening, closing in pairs(text, Block.INFORMATION)]


def published_information_spans(text: str) -> list[tuple[int, int]]:
    """The characters that SSRL's published mask covers, with its two defects: a block of several lines is not found, and a block whose
    text occurred before is looked for from the beginning, so that only its first occurrence is covered (FACTS 1.6)."""
    found = (text.find(match[0]) for match in _ONE_LINE_INFORMATION.finditer(text))
    return sorted({(start, text.index(TAGS[Block.INFORMATION][1], start) + len(TAGS[Block.INFORMATION][1])) for start in found})


def label_spans(text: str, *, thinking: bool = False) -> list[tuple[int, int, Block]]:
    """Disjoint character spans [start, end) in order, each with its block; what lies between them is outside. Information wins over all."""
    information = information_spans(text)
    labels = [(start, end, Block.INFORMATION) for start, end in information]
    for span in parse(text, thinking=thinking).spans:
        cursor = span.start
        for start, end in information:
            if end <= cursor or start >= span.end:
                continue
            if cursor < start:
                labels.append((cursor, start, span.block))
            cursor = end
        if cursor < span.end:
            labels.append((cursor, span.end, span.block))
    return sorted(labels)
