"""The rollouts of one training step: once for every question, or until the batch is full of questions that have something to teach.

They are sampled when the step begins, or beside the update of the step before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from ssrl.algo.filters import mixed_groups
from ssrl.config import GROUP_RELATIVE, Config
from ssrl.data.order import Draw, QuestionStream
from ssrl.training import ranks
from ssrl.training.agent import Agent, group_name
from ssrl.training.select import asked_of_each, by_group, trainable
from ssrl.training.vote import relabelled, unjudged, vote_metrics
from ssrl.types import Question, Rollout, Sampling, seed_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Scored rollouts, and how long they took."""

    rollouts: list[Rollout]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Of this process."""

    rollouts: list[Rollout]  # all that were sampled, as they were judged
    kept: list[Rollout]  # those of the groups that are trained, side by side
    number: dict[str, int]  # of each kept group in the whole run, whichever process has it
    metrics: dict[str, float]  # over all processes
    seconds: float  # of sampling, whenever it was done


class Collector:
    """Samples and scores.

    A checkpoint keeps two things of it: how many questions dynamic sampling has drawn beyond the planned ones, from a stream of their own, so
    that the planned order stays what it is; and what was sampled ahead.
    """

    def __init__(self, config: Config, agent: Agent) -> None:
        self.config, self.agent = config, agent
        self.cursor = 0
        self.ahead: Sampled | None = None  # the rollouts of the next step, of this process (from a checkpoint: of all)
        self._sampling: Future[Sampled] | None = None
        self._beside = ThreadPoolExecutor(max_workers=1)

    def sample_ahead(self, draws: Sequence[Draw], step: int, device: torch.device) -> None:
        """Begin to sample this process's share of a later step with the weights that the sampler has, beside what the caller does next."""

        def work() -> Sampled:
            if device.type == "cuda":
                torch.cuda.set_device(device)  # a thread begins on the first one
            return self._ask(draws, step, "")

        self._sampling = self._beside.submit(work)

    def settle(self, device: torch.device) -> None:
        """Wait until nothing is sampled beside; a refusal on one process ends all."""
        if self._sampling is not None:
            self.ahead, self._sampling = ranks.together(self._sampling.result, device, Exception), None

    def collect(self, draws: Sequence[Draw], step: int, questions: Sequence[Question], device: torch.device) -> Collected:
        """The rollouts of this process's share of a step's questions, `draws`; `questions`: all that more can be drawn from."""
        number = {group_name((step, draw.position)): draw.position for draw in draws}
        sampled, self.ahead = self.ahead or self._sample(draws, step, "", device), None
        judged, groups, votes = self._judged([r for r in sampled.rollouts if r.group in number])
        sampled = replace(sampled, rollouts=judged)
        if self.config.algo.dynamic_sampling:
            return self._fill(sampled, groups, votes, number, step, questions, device)
        kept = [r for group in groups for r in group]
        return Collected(rollouts=sampled.rollouts, kept=kept, number=number, metrics=self._vote_metrics([votes], device), seconds=sampled.seconds)

    def _judged(self, rollouts: list[Rollout]) -> tuple[list[Rollout], list[list[Rollout]], dict[str, float]]:
        """The rollouts as they are judged, what is to be trained of each group that can be, and what is known of the votes.

        With gold answers every question has its label and there are no votes.
        """
        c, reward = self.config, self.config.reward
        usable = by_group(trainable(rollouts, failed=c.train.train_failed, alone=c.algo.advantage not in GROUP_RELATIVE))
        if reward.label == "gold":
            return rollouts, usable, {}
        groups, votes = relabelled(usable, self.agent.reward, normalizer=reward.normalizer, min_share=reward.min_share)
        by_label = {(r.group, r.sample): r for group in groups for r in group}
        judged = [by_label.get((r.group, r.sample)) or unjudged(r) for r in rollouts]
        return judged, [group[: c.rollout.n] for group in groups], votes

    def _vote_metrics(self, votes: Sequence[dict[str, float]], device: torch.device) -> dict[str, float]:
        if self.config.reward.label == "gold":
            return {}
        sums = ranks.total([sum(vote[name] for vote in votes) for name in votes[0]], device)
        return vote_metrics(dict(zip(votes[0], sums, strict=True)))

    def _fill(
        self, sampled: Sampled, groups: list[list[Rollout]], votes: dict[str, float], places: dict[str, int], step: int, questions: Sequence[Question],
        device: torch.device,
    ) -> Collected:  # fmt: skip
        """Sample more until as many groups as the step has questions are mixed. [DAPO, arXiv 2503.14476, eq. 11]"""
        size, most = self.config.train.questions, self.config.algo.max_batches
        rollouts, seconds = sampled.rollouts, sampled.seconds
        mixed, polls = _mixed(groups), [votes]  # in the order of sampling, on this process
        batches, found = 1, self._count(mixed, device)
        drawn = {group: (1, place) for group, place in places.items()}  # batch and place in it, which do not depend on the processes
        while found < size and batches < most:
            stream = QuestionStream(questions, seed_for(self.config.seed, "more questions"), self.cursor)
            draws = stream.take(size)[ranks.rank() :: ranks.world_size()]
            extra = self._sample(draws, step, "more", device)
            self.cursor = stream.cursor
            drawn |= {group_name((step, "more", draw.position)): (batches + 1, draw.position) for draw in draws}
            judged, more, votes = self._judged(extra.rollouts)
            rollouts, seconds = rollouts + judged, seconds + extra.seconds
            mixed, polls = mixed + _mixed(more), [*polls, votes]
            batches, found = batches + 1, self._count(mixed, device)
        order = sorted(ranks.gathered([drawn[group[0].group] for group in mixed]))[:size]  # the first that were drawn, whoever has them
        number = {group[0].group: order.index(drawn[group[0].group]) for group in mixed if drawn[group[0].group] in order}
        kept = [group for group in mixed if group[0].group in number]
        sampled = ranks.total([float(len(by_group(rollouts)))], device)[0]
        metrics = {
            "rollout/batches": float(batches),
            "rollout/thrown_away_frac": 1 - min(found, size) / sampled,
            "rollout/unfilled": float(max(size - found, 0)),
        } | self._vote_metrics(polls, device)
        return Collected(
            rollouts=rollouts, kept=[r for group in kept for r in group], number=number, metrics=metrics, seconds=seconds)  # fmt: skip

    def _count(self, groups: Sequence[Sequence[Rollout]], device: torch.device) -> int:
        return int(ranks.total([float(len(groups))], device)[0])

    def _sample(self, draws: Sequence[Draw], step: int, kind: str, device: torch.device) -> Sampled:
        """The rollouts of this process's share of a batch."""
        return ranks.together(lambda: self._ask(draws, step, kind), device, Exception)

    def _ask(self, draws: Sequence[Draw], step: int, kind: str) -> Sampled:
        r, started = self.config.rollout, time.perf_counter()
        # a question may occur twice in a batch, at the border of an epoch, so a draw is named by its position
        names = [(step, kind, draw.position) if kind else (step, draw.position) for draw in draws]
        rollouts = self.agent.rollouts(
            [draw.question for draw in draws], names, n=asked_of_each(self.config), run_seed=self.config.seed, step=step,
            sampling=Sampling(temperature=r.temperature, top_p=r.top_p, top_k=r.top_k))  # fmt: skip
        return Sampled(rollouts=rollouts, seconds=time.perf_counter() - started)


def _mixed(groups: list[list[Rollout]]) -> list[list[Rollout]]:
    """The groups that hold a right and a wrong rollout, by exact match with the label."""
    if not groups:
        return []
    right = torch.tensor([r.score.parts.get("label_em", r.score.parts["em"]) for group in groups for r in group])
    of = torch.tensor([i for i, group in enumerate(groups) for _ in group])
    return [group for group, mixed in zip(groups, mixed_groups(right, of).tolist(), strict=True) if mixed]
