"""What happens to documents between whoever found them and the policy: taken in, sub-sampled, cleaned, joined, wrapped."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ssrl.errors import UserError
from ssrl.text.outside import one_line, plain
from ssrl.text.tags import TAGS, scan
from ssrl.types import Block, Document, SearchResult, SearchStatus, seed_for

MAX_CHARS = 20_000  # of one document that are kept: more than any token budget shows, little enough for a record of the rollout
NOTHING = "No information available"  # what the policy reads where nothing was found (FACTS 1.7)

_ELLIPSIS = re.compile(r" ?(?:\.{3,}|…) ?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """The text around documents, and how they are joined (`wrapper=`).

    Styles: `titled`: `Doc i(Title: "…") text` lines (FACTS 3.4), `Doc i: text` where a document has no title (FACTS 2.2); `numbered`:
    `1. text` lines; `bullets`: `- text` lines; `paragraph`: one line; `raw`: texts as they are, on lines of their own.
    """

    before: str = "\n\n<information>"
    after: str = "</information>\n\n"
    style: str = "titled"
    clean: bool = False  # make web snippets into sentences

    def __post_init__(self) -> None:
        opening, closing = TAGS[Block.INFORMATION]
        for key, text, tag in (("before", self.before, opening), ("after", self.after, closing)):
            if [str(found) for found in scan(text)] != [tag]:
                raise UserError(f"wrapper.{key}={text!r} must hold {tag} once and no other tag.")
        if self.style not in STYLES:
            raise UserError(f"wrapper.style={self.style} is unknown; choose one of {', '.join(STYLES)}.")

    def render(self, documents: Sequence[Document]) -> str:
        """The documents as text, without the tags."""
        if self.clean:
            documents = [replace(d, text=clean_snippet(d.text)) for d in documents]
        return STYLES[self.style]([d for d in documents if d.text.strip()]) or NOTHING


def take_in(result: SearchResult) -> SearchResult:
    """The result with texts that can be kept and shown: invisible characters taken out, over-long ones cut."""
    documents = tuple(replace(d, text=_taken(d.text), title=one_line(_taken(d.title)), id=_taken(d.id)) for d in result.documents)
    return replace(result, documents=documents, error=_taken(result.error))


def keep(result: SearchResult, how: str, seed: int) -> SearchResult:
    """The result with all of its documents, or with the first 1 to all of them (`random`), uniformly by the seed of its call."""
    if how == "all" or not result.documents:
        return result
    count = random.Random(seed_for(seed, "documents")).randint(1, len(result.documents))
    return replace(result, documents=result.documents[:count])


def clean_snippet(text: str) -> str:
    """A web snippet as sentences: its first line, without ellipses, beginning with a capital and ending in a full stop (FACTS 1.7)."""
    lines = text.strip().splitlines()
    if not lines:
        return ""
    text = _ELLIPSIS.sub(" ", one_line(lines[0])).strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def status_of(documents: Sequence[Document]) -> SearchStatus:
    return SearchStatus.OK if documents else SearchStatus.EMPTY


def _taken(text: str) -> str:
    return plain(text[:MAX_CHARS]).strip()


def _titled(number: int, document: Document) -> str:
    title = document.title.strip('"')
    return f'Doc {number}(Title: "{title}") {one_line(document.text)}' if title else f"Doc {number}: {one_line(document.text)}"


STYLES: dict[str, Callable[[Sequence[Document]], str]] = {
    "titled": lambda documents: "\n".join(_titled(i, d) for i, d in enumerate(documents, start=1)),
    "numbered": lambda documents: "\n".join(f"{i}. {one_line(d.text)}" for i, d in enumerate(documents, start=1)),
    "bullets": lambda documents: "\n".join(f"- {one_line(d.text)}" for d in documents),
    "paragraph": lambda documents: " ".join(one_line(d.text) for d in documents),
    "raw": lambda documents: "\n".join(d.text for d in documents),
}
