"""Rollouts of forced length by one of our samplers, with the episode loop and without: our sides of `generation.py`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ours import asked, forced

from ssrl.calls.health import Health
from ssrl.config import Config
from ssrl.engines.documents import Wrapper
from ssrl.engines.fullsim import FullSim
from ssrl.engines.real import FullReal
from ssrl.rollout.episode import Task
from ssrl.rollout.loop import EpisodeLoop
from ssrl.rollout.render import Renderer
from ssrl.types import Completion, Document, Engine, Finish, Question, Request, Sampler, Sampling, SearchResult, SearchStatus, seed_for

Done = tuple[int, float]  # tokens that the sampler wrote, and seconds inside of it
PASSAGE = (
    "The river rises in the hills north of the old town, runs east through three lakes and reaches the sea after about two hundred "
    "kilometres. Its valley has been farmed since the Bronze Age. A railway follows it from the second lake to the harbour, and the weir at "
    "the mill, built in 1874, supplied the first electric light of the county."
)


class Instant:
    """A retriever that answers every query at once with one passage."""

    identity, hint = "one passage", ""

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        return [SearchResult(status=SearchStatus.OK, documents=(Document(title=query, text=PASSAGE),)) for query in queries]


class Between:
    """Between the loop and its sampler, so that all lengths are forced: stop strings are looked for and never found.

    `shown`: what the loop is shown of each first generation in place of the tokens that were drawn, as many. The sampler goes on behind
    those that it drew, and so finds them in its cache, if it has one.
    """

    def __init__(self, sampler: Sampler, shown: Sequence[tuple[int, ...]] | None = None) -> None:
        self.sampler, self.shown = sampler, shown
        self.calls: list[list[Request]] = []
        self.first: list[Completion] = []
        self.inside = 0.0

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        asked = [replace(r, prompt_ids=self._drawn(i, r.prompt_ids), stop=tuple("\0" * len(text) for text in r.stop)) for i, r in enumerate(requests)]
        started = time.perf_counter()
        found = self.sampler.generate(asked)
        self.inside += time.perf_counter() - started
        self.calls.append(asked)
        if self.shown is None or self.first:
            return found
        self.first = found
        return [replace(c, ids=ids, finish=Finish.STOP) for c, ids in zip(found, self.shown, strict=True)]

    def _drawn(self, index: int, ids: tuple[int, ...]) -> tuple[int, ...]:
        if not self.first:
            return ids
        begin, drawn = len(self.calls[0][index].prompt_ids), self.first[index].ids
        return ids[:begin] + drawn + ids[begin + len(drawn) :]


class Turns:
    """The kinds of work, each a call that returns what was written and the time inside of the sampler."""

    def __init__(self, config: Config) -> None:
        agent = forced(config, given=False)
        self.sampler, self.limits, self.seed = agent.sampler, agent.loop.limits, config.seed
        self.sampling = Sampling(temperature=config.rollout.temperature)
        self.renderer, questions = asked(config)
        self.tasks = [
            Task(question=question, group=str(i), sample=sample, prompt_ids=prompt, seed_parts=(i, sample))
            for i, question in enumerate(questions)
            for prompt in [self.renderer.prompt_ids(question)]
            for sample in range(config.rollout.n)
        ]
        self.half = -(-self.limits.response // 2)
        self.calls: list[list[Request]] = []  # of the last rollouts in two turns

    def plain(self) -> Done:
        requests = [
            Request(
                prompt_ids=t.prompt_ids, max_new_tokens=self.limits.response, sampling=self.sampling,
                seed=seed_for(self.seed, "sample", *t.seed_parts, 0))
            for t in self.tasks
        ]  # fmt: skip
        return self._called([requests])

    def two_calls(self) -> Done:
        return self._called([[replace(request, stop=()) for request in requests] for requests in self.calls])

    def one_turn(self) -> Done:
        return self._looped(Between(self.sampler), FullSim(), None)

    def two_turns(self) -> Done:
        between = Between(self.sampler, [searching(self.renderer, task.question, self.half) for task in self.tasks])
        done = self._looped(between, FullReal(Instant(), Health(1.0, 1, ""), Wrapper(), max_turns=1), self.half)
        self.calls = between.calls
        return done

    def _called(self, calls: Sequence[Sequence[Request]]) -> Done:
        started = time.perf_counter()
        tokens = sum(len(completion.ids) for requests in calls for completion in self.sampler.generate(requests))
        return tokens, time.perf_counter() - started

    def _looped(self, between: Between, engine: Engine, turn: int | None) -> Done:
        loop = EpisodeLoop(between, engine, self.renderer, replace(self.limits, turn=turn), stop_at_answer=True)
        rollouts = loop.run(self.tasks, self.sampling, run_seed=self.seed)
        return sum(sum(rollout.sampled) for rollout in rollouts), between.inside


def searching(renderer: Renderer, question: Question, length: int) -> tuple[int, ...]:
    """So many tokens of a thought, and of a search for the question at their end."""
    opening, closing = renderer.text_ids("<search>"), renderer.text_ids("</search>")
    room = length - len(opening) - len(closing)
    if room < 1:
        raise SystemExit(f"a turn of {length} tokens has no room for a search: give --new at least {2 * (length - room + 1)}")
    query = renderer.text_ids(question.text)[:room]
    return renderer.text_ids(" so")[:1] * (room - len(query)) + opening + query + closing
