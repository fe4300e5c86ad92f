"""A policy that can be asked: model, tokenizer, sampler, episode loop and reward, put together for training, evaluation and questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ssrl.rewards.score import Reward
from ssrl.rollout.loop import EpisodeLoop, Task
from ssrl.types import Question, Rollout, Sampler, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What rollouts are made with."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    end_ids: frozenset[int]
    sampler: Sampler
    loop: EpisodeLoop
    reward: Reward

    def rollouts(
        self, questions: Sequence[Question], names: Sequence[tuple[object, ...]], *, n: int, sampling: Sampling, run_seed: int, step: int
    ) -> list[Rollout]:
        """Scored rollouts, the n of a question side by side as one group.

        Args:
            names: one a question; together with the sample's index it names the rollout's random choices and, joined, its group. Two
                occurrences of a question in one batch need different names.
        """
        tasks = [
            Task(
                question=question, group=group_name(name), sample=sample, seed_parts=(*name, sample),
                prompt_ids=prompt)
            for question, name in zip(questions, names, strict=True)
            for prompt in [self.loop.renderer.prompt_ids(question)]
            for sample in range(n)
        ]  # fmt: skip
        return [replace(r, score=self.reward(r)) for r in self.loop.run(tasks, sampling, run_seed=run_seed, step=step)]


def group_name(name: tuple[object, ...]) -> str:
    """The group of the rollouts of one question."""
    return "/".join(map(str, name))
