"""The one episode loop: generate, ask the engine, go on. It serves every engine, and it is the only writer of rollouts.

What follows a generation:

    it ends with                 while the engine may still answer             after its last turn
    a well-formed search         the engine is asked, which uses up a turn:    may_decline: not looked at, the policy goes on by itself;
                                 documents, or the policy writes them itself   else OUT_OF_TURNS, and nobody is asked
    an answer                    ANSWERED                                      ANSWERED
    the end token, no answer     the retry message, if the engine has one      ENDED
                                 (`count_invalid`: this too uses up a turn);
                                 else ENDED
    a tag that is no action      the policy goes on; ENDED where it does       the same
                                 nothing else
    no room                      TRUNCATED                                     TRUNCATED

Every search that the engine is asked about uses up a turn, also where it declines. A block that the policy left open stays open behind a
retry message. The prompt is never cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ssrl.rollout.episode import Episode, Task
from ssrl.rollout.render import Renderer
from ssrl.rollout.tokens import TokenText
from ssrl.text.outside import harmless
from ssrl.types import (
    Completion,
    Engine,
    Finish,
    Request,
    Rollout,
    Sampler,
    Sampling,
    Search,
    SearchCall,
    SearchResult,
    Source,
    Status,
    seed_for,
)

_CHARS_PER_TOKEN = 16  # of text from outside that are looked at; a token of ordinary text has 2 to 5
_IDLE = 64  # stops at tags that were no action, after which a rollout is over: each costs a generation of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Token budgets."""

    context: int  # prompt and response together
    response: int  # what the policy writes over all turns, prefilled text included
    turn: int | None  # one generation
    information: int  # documents of one answered search


class EpisodeLoop:
    """Makes rollouts of a policy with an engine. Hands out no tensors and keeps no state between calls."""

    def __init__(
        self, sampler: Sampler, engine: Engine, renderer: Renderer, limits: Limits, *, stop_at_answer: bool, mask: str = "tokens"
    ) -> None:
        self.sampler, self.engine, self.renderer, self.limits = sampler, engine, renderer, limits
        self.stop_at_answer, self.mask = stop_at_answer, mask
        self.token_text = TokenText(renderer.tokenizer)
        self.listener: Callable[[Sequence[int]], None] | None = None  # told the tokens of documents as they are put in
        self._must_answer = engine.answers and not engine.may_decline

    def run(self, tasks: Sequence[Task], sampling: Sampling, *, run_seed: int, step: int = 0) -> list[Rollout]:
        """One rollout a task, in order."""
        prefill = self.renderer.prefill_ids()
        episodes = [Episode(task=t, token_text=self.token_text, thinking=self.renderer.opens_thinking(t.question)) for t in tasks]
        for episode in episodes:
            episode.append(prefill, Source.TEMPLATE)
        while active := [e for e in episodes if self._has_room(e)]:
            requests = [self._request(e, sampling, run_seed) for e in active]
            for episode, completion in zip(active, self.sampler.generate(requests), strict=True):
                self._take(episode, completion)
            self._search([e for e in active if e.status is None], run_seed, step)
            for episode in active:
                episode.turn += 1
        return [episode.finished(self.mask) for episode in episodes]

    def _room(self, e: Episode) -> int:
        """Tokens that still fit the context."""
        return self.limits.context - len(e.task.prompt_ids) - len(e.ids)

    def _own_room(self, e: Episode) -> int:
        """Tokens that the policy may still write, in this and all further turns."""
        return min(self._room(e), self.limits.response - sum(source is not Source.ENGINE for source in e.sources))

    def _has_room(self, e: Episode) -> bool:
        if e.status is None and self._own_room(e) < 1:
            e.status = Status.TRUNCATED
        return e.status is None

    def _may_search(self, e: Episode) -> bool:
        return self.engine.answers and e.used < self.engine.max_turns

    def _request(self, e: Episode, sampling: Sampling, run_seed: int) -> Request:
        stop = ("</search>",) if self._may_search(e) or self._must_answer else ()
        if self.stop_at_answer or self.engine.answers:
            stop += ("</answer>",)
        room = self._own_room(e)
        return Request(
            prompt_ids=e.task.prompt_ids + tuple(e.ids), max_new_tokens=min(room, self.limits.turn or room), stop=stop, sampling=sampling,
            seed=seed_for(run_seed, "sample", *e.task.seed_parts, e.turn), entropy=self.engine.entropy if self._may_search(e) else None)  # fmt: skip

    def _take(self, e: Episode, completion: Completion) -> None:
        e.append(completion.ids, Source.POLICY, completion.logprobs, completion.entropies)
        if completion.finish is Finish.LENGTH:
            e.status = Status.TRUNCATED
        elif e.answered():  # a stop at a tag inside think is none
            e.status = Status.ANSWERED
        elif completion.finish is Finish.EOS:
            self._invalid(e)
        elif self._must_answer and not self._may_search(e) and e.searching():
            e.status = Status.OUT_OF_TURNS
        elif e.turn - len(e.asked) - e.retries >= _IDLE:
            e.status = Status.ENDED

    def _invalid(self, e: Episode) -> None:
        """A generation has ended with neither a search nor an answer: let the policy try again where the engine says so."""
        message = self.engine.retry_message
        if not message or not self._may_search(e) or e.retries >= self.engine.max_turns:
            e.status = Status.ENDED
            return
        ids = self.renderer.retry_ids(message, e.ids[-1])
        if len(ids) > self._own_room(e):
            e.status = Status.TRUNCATED
            return
        e.append(ids, Source.TEMPLATE)
        e.retries += 1
        e.used += self.engine.count_invalid

    def _search(self, episodes: Sequence[Episode], run_seed: int, step: int) -> None:
        """Ask the engine, once for all, about every search that has just been written."""
        asking = [(e, self._call(e, run_seed, step)) for e in episodes if self._may_search(e) and e.searching()]
        if not asking:
            return
        results = self.engine.search([call for _, call in asking])
        for (e, call), result in zip(asking, results, strict=True):
            e.used += 1
            e.asked[call.index] = Search(query=call.query, result=result, truncated=result is not None and self._insert(e, result))

    def _call(self, e: Episode, run_seed: int, step: int) -> SearchCall:
        *before, (query, _) = e.queries()
        task, index = e.task, len(before)
        return SearchCall(
            query=query, question=task.question, group=task.group, sample=task.sample, index=index, turn=e.turn, step=step,
            seed=seed_for(run_seed, "search", *task.seed_parts, index), queries=e.uncertainties(self.engine.entropy is not None))  # fmt: skip

    def _insert(self, e: Episode, result: SearchResult) -> bool:
        """Put the documents behind the search, cut inside their wrapper by the budgets; returns whether they were cut."""
        if result.status.failed:
            e.status = Status.FAILED
            return False
        opening, closing = self.engine.wrapper
        if e.view.endswith("<"):  # of a merged `><`, which has begun the tag of the engine's block
            opening = opening.lstrip().removeprefix("<")
        before, after = self.renderer.text_ids(opening), self.renderer.text_ids(closing)
        text = self.engine.render(result)
        documents = self.renderer.text_ids(harmless(text, max_chars := self.limits.information * _CHARS_PER_TOKEN))
        room = min(self.limits.information, self._room(e) - len(before) - len(after))
        if room < 0:
            e.status = Status.TRUNCATED
            return True
        shown = (*before, *documents[:room], *after)
        e.append(shown, Source.ENGINE)
        if self.listener is not None:
            self.listener(shown)
        return len(documents) > room or len(text) > max_chars
