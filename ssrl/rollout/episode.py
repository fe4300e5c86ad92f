"""One rollout while it is being written, and what can be read off it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ssrl.rollout.label import label, policy_view
from ssrl.rollout.tokens import TokenText, text_of
from ssrl.text.tags import TAGS, Span, has_answer, parse, pending_search
from ssrl.types import Block, Question, Rollout, Search, Segment, Source, Status, Uncertainty


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One rollout to make."""

    question: Question
    group: str
    sample: int
    prompt_ids: tuple[int, ...]
    seed_parts: tuple[object, ...]  # names every random choice of this rollout, see `seed_for`


@dataclass(slots=True, kw_only=True)
class Episode:
    """The tokens so far, each with its source, turn and numbers, and how far the rollout has come."""

    task: Task
    token_text: TokenText
    thinking: bool  # the prompt has opened a thinking block of the model's own
    ids: list[int] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    view: str = ""  # see `policy_view`
    asked: dict[int, Search] = field(default_factory=dict)  # by the search's place among all that were written
    turn: int = 0  # generations so far
    used: int = 0  # of the engine's turns
    retries: int = 0
    status: Status | None = None

    def append(self, ids: Sequence[int], source: Source, logprobs: Sequence[float] | None = None, entropies: Sequence[float] | None = None) -> None:
        missing = [math.nan] * len(ids)
        self.ids += ids
        self.sources += [source] * len(ids)
        self.turns += [self.turn] * len(ids)
        self.logprobs += missing if logprobs is None else logprobs
        self.entropies += missing if entropies is None else entropies
        self.token_text.extend(self.pieces, self.ids)
        self.view = policy_view(self.pieces, self.sources)

    def answered(self) -> bool:
        return has_answer(self.view, thinking=self.thinking)

    def searching(self) -> bool:
        """Whether a search has just been written; a tag inside think is none."""
        return pending_search(self.view, thinking=self.thinking) is not None

    def queries(self) -> list[tuple[str, Span]]:
        """All closed searches in order; their number never shrinks while the response grows."""
        spans = parse(self.view, thinking=self.thinking).spans
        return [(_utf8(span.inner).strip(), span) for span in spans if span.block is Block.SEARCH and span.closed]

    def uncertainties(self, with_entropies: bool) -> tuple[Uncertainty, ...]:
        """How sure the policy was of each query: of the tokens that overlap the text between its tags."""
        ends = list(accumulate(map(len, self.pieces)))
        starts = [0, *ends[:-1]]
        found = []
        for _, span in self.queries():
            begin = span.start + len(TAGS[Block.SEARCH][0])
            inside = range(bisect_right(ends, begin), bisect_left(starts, begin + len(span.inner)))
            own = [t for t in inside if self.sources[t] is Source.POLICY]
            entropies = tuple(self.entropies[t] for t in own) if with_entropies else None
            found.append(Uncertainty(logprobs=tuple(self.logprobs[t] for t in own), entropies=entropies))
        return tuple(found)

    def finished(self, mask: str) -> Rollout:
        blocks, trained = label(self.pieces, self.sources, mask, thinking=self.thinking)
        searches = (self.asked.get(i, Search(query=query)) for i, (query, _) in enumerate(self.queries()))
        return Rollout(
            question=self.task.question, group=self.task.group, sample=self.task.sample, prompt_ids=self.task.prompt_ids, ids=tuple(self.ids),
            sources=tuple(self.sources), blocks=blocks, turns=tuple(self.turns), logprobs=tuple(self.logprobs), trained=trained,
            segments=_segments(self.pieces, self.sources), status=self.status, searches=tuple(searches))  # fmt: skip


def _utf8(view: str) -> str:
    """Text of a one-character-a-byte view."""
    return view.encode("latin-1").decode("utf-8", errors="replace")


def _segments(pieces: Sequence[bytes], sources: Sequence[Source]) -> tuple[Segment, ...]:
    """Runs of text with one source. A character that a budget cut in two becomes a replacement character in each."""
    segments: list[Segment] = []
    start = 0
    for t in range(1, len(pieces) + 1):
        if t == len(pieces) or sources[t] is not sources[start]:
            segments.append(Segment(source=sources[start], text=text_of(pieces[start:t])))
            start = t
    return tuple(segments)
