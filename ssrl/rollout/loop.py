"""The one episode loop: generate, ask the engine, go on. It serves every engine, and it is the only writer of rollouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ssrl.rollout.label import label, policy_view
from ssrl.rollout.render import Renderer
from ssrl.rollout.tokens import TokenText, text_of
from ssrl.text.tags import has_answer, neutralise, parse, pending_search
from ssrl.types import (
    Block,
    Completion,
    Engine,
    Finish,
    Question,
    Request,
    Rollout,
    Sampler,
    Sampling,
    Search,
    SearchCall,
    SearchResult,
    Segment,
    Source,
    Status,
    seed_for,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Token budgets."""

    context: int  # prompt and response together
    response: int  # whole response, engine text included
    turn: int | None  # one generation
    information: int  # documents of one answered search


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One rollout to make."""

    question: Question
    group: str
    sample: int
    prompt_ids: tuple[int, ...]
    seed_parts: tuple[object, ...]  # names every random choice of this rollout, see `seed_for`


@dataclass(slots=True)
class _Episode:
    """A rollout while it is being written."""

    task: Task
    ids: list[int] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    results: dict[int, SearchResult | None] = field(default_factory=dict)  # by the search's place among all that were written
    turn: int = 0
    thinking: bool = False  # the prompt has opened a thinking block of the model's own
    answered: int = 0
    status: Status | None = None

    def append(self, ids: Sequence[int], source: Source, logprobs: Sequence[float] | None = None, entropies: Sequence[float] | None = None) -> None:
        missing = [math.nan] * len(ids)
        self.ids += ids
        self.sources += [source] * len(ids)
        self.turns += [self.turn] * len(ids)
        self.logprobs += missing if logprobs is None else logprobs
        self.entropies += missing if entropies is None else entropies


class EpisodeLoop:
    """Makes rollouts of a policy with an engine. Hands out no tensors and keeps no state between calls."""

    def __init__(
        self, sampler: Sampler, engine: Engine, renderer: Renderer, limits: Limits, *, stop_at_answer: bool, mask: str = "tokens"
    ) -> None:
        self.sampler, self.engine, self.renderer, self.limits = sampler, engine, renderer, limits
        self.stop_at_answer, self.mask = stop_at_answer, mask
        self.token_text = TokenText(renderer.tokenizer)

    def run(self, tasks: Sequence[Task], sampling: Sampling, *, run_seed: int, step: int = 0) -> list[Rollout]:
        """One rollout a task, in order."""
        prefill = self.renderer.prefill_ids()
        episodes = [_Episode(task=task, thinking=self.renderer.opens_thinking(task.question)) for task in tasks]
        for episode in episodes:
            episode.append(prefill, Source.TEMPLATE)
        while active := [e for e in episodes if self._has_room(e)]:
            requests = [self._request(e, sampling, run_seed) for e in active]
            for episode, completion in zip(active, self.sampler.generate(requests), strict=True):
                self._take(episode, completion)
            self._search([e for e in active if e.status is None], run_seed, step)
            for episode in active:
                episode.turn += 1
        return [self._finish(episode) for episode in episodes]

    def _budget(self, e: _Episode) -> int:
        room = min(self.limits.response, self.limits.context - len(e.task.prompt_ids)) - len(e.ids)
        return min(room, self.limits.turn or room)

    def _has_room(self, e: _Episode) -> bool:
        if e.status is None and self._budget(e) < 1:
            e.status = Status.TRUNCATED
        return e.status is None

    def _may_search(self, e: _Episode) -> bool:
        return self.engine.answers and e.answered < self.engine.max_turns

    def _request(self, e: _Episode, sampling: Sampling, run_seed: int) -> Request:
        stop = ("</search>",) if self._may_search(e) else ()
        if self.stop_at_answer or self.engine.answers:
            stop += ("</answer>",)
        return Request(
            prompt_ids=e.task.prompt_ids + tuple(e.ids), max_new_tokens=self._budget(e), stop=stop, sampling=sampling,
            seed=seed_for(run_seed, "sample", *e.task.seed_parts, e.turn), want_entropy=self.engine.wants_entropy)  # fmt: skip

    def _take(self, e: _Episode, completion: Completion) -> None:
        e.append(completion.ids, Source.POLICY, completion.logprobs, completion.entropies)
        if completion.finish is Finish.EOS:
            e.status = Status.ANSWERED if self._answered(e) else Status.ENDED
        elif completion.finish is Finish.LENGTH:
            e.status = Status.TRUNCATED
        elif self._answered(e):  # a stop at a tag inside think is none
            e.status = Status.ANSWERED

    def _answered(self, e: _Episode) -> bool:
        return has_answer(self._view(e), thinking=e.thinking)

    def _view(self, e: _Episode) -> str:
        return policy_view(self.token_text.pieces(e.ids), e.sources)

    def _search(self, episodes: Sequence[_Episode], run_seed: int, step: int) -> None:
        """Ask the engine about every search that has just been written; a tag inside think is no search, and the policy goes on."""
        asking = [
            (e, self._call(e, run_seed, step))
            for e in episodes
            if self._may_search(e) and pending_search(self._view(e), thinking=e.thinking) is not None
        ]
        if not asking:
            return
        results = self.engine.search([call for _, call in asking])
        for (e, call), result in zip(asking, results, strict=True):
            e.results[call.index] = result
            if result is not None:
                self._insert(e, result)

    def _call(self, e: _Episode, run_seed: int, step: int) -> SearchCall:
        first, last = self._query_tokens(e)
        *before, query = _queries(self._view(e), e.thinking)
        task, index = e.task, len(before)
        return SearchCall(
            query=query, question=task.question, group=task.group, sample=task.sample,
            index=index, turn=e.turn, step=step, seed=seed_for(run_seed, "search", *task.seed_parts, index),
            logprobs=tuple(e.logprobs[first:last]),
            entropies=tuple(e.entropies[first:last]) if self.engine.wants_entropy else None)  # fmt: skip

    def _query_tokens(self, e: _Episode) -> tuple[int, int]:
        """The range of tokens that overlap the text of the last query."""
        pieces = self.token_text.pieces(e.ids)
        view = policy_view(pieces, e.sources)
        begin, end = view.rindex("<search>") + len("<search>"), view.rindex("</search>")
        ends = list(accumulate(map(len, pieces)))
        inside = [t for t, piece in enumerate(pieces) if piece and ends[t] > begin and ends[t] - len(piece) < end]
        return (inside[0], inside[-1] + 1)

    def _insert(self, e: _Episode, result: SearchResult) -> None:
        """Put the engine's documents behind the search, cut inside their wrapper by the token budget."""
        if result.status.failed:
            e.status = Status.FAILED
            return
        before, after = (self.renderer.text_ids(text) for text in self.engine.wrapper)
        documents = self.renderer.text_ids(neutralise(self.engine.render(result)))[: self.limits.information]
        e.append((*before, *documents, *after), Source.ENGINE)
        e.answered += 1

    def _finish(self, e: _Episode) -> Rollout:
        pieces = self.token_text.pieces(e.ids)
        blocks, trained = label(pieces, e.sources, self.mask, thinking=e.thinking)
        written = _queries(policy_view(pieces, e.sources), e.thinking)
        return Rollout(
            question=e.task.question, group=e.task.group, sample=e.task.sample, prompt_ids=e.task.prompt_ids, ids=tuple(e.ids),
            sources=tuple(e.sources), blocks=blocks, turns=tuple(e.turns), logprobs=tuple(e.logprobs), trained=trained,
            segments=_segments(pieces, e.sources), status=e.status,
            searches=tuple(Search(query=query, result=e.results.get(i)) for i, query in enumerate(written)))  # fmt: skip


def _queries(view: str, thinking: bool) -> list[str]:
    """All closed searches of a view in order; its length never shrinks while the response grows."""
    return [_utf8(span.inner).strip() for span in parse(view, thinking=thinking).spans if span.block is Block.SEARCH and span.closed]


def _utf8(view: str) -> str:
    """Text of a one-character-a-byte view."""
    return view.encode("latin-1").decode("utf-8", errors="replace")


def _segments(pieces: Sequence[bytes], sources: Sequence[Source]) -> tuple[Segment, ...]:
    """Runs of text with one source. A character split over two sources cannot occur: engine and template text are whole characters."""
    segments: list[Segment] = []
    start = 0
    for t in range(1, len(pieces) + 1):
        if t == len(pieces) or sources[t] is not sources[start]:
            segments.append(Segment(source=sources[start], text=text_of(pieces[start:t])))
            start = t
    return tuple(segments)
