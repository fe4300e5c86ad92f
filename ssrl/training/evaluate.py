"""Asking every question of a set: greedy for the headline metric, sampled for pass@1."""

from __future__ import annotations

from collections.abc import Sequence

from ssrl.training import ranks
from ssrl.training.agent import Agent
from ssrl.training.metrics import engine_metrics, rollout_metrics
from ssrl.types import Question, Rollout, Sampling


def evaluate(
    agent: Agent, questions: Sequence[Question], name: str, *, sampling: Sampling, n: int = 1, run_seed: int = 0
) -> tuple[dict[str, float], list[Rollout]]:
    """Metrics `<name>/em` … over all questions and n samples each, and the rollouts in the order of the questions.

    The questions are shared out over the processes and gathered again; none is dropped. The random choices depend on run seed and
    question, not on the step, and a curriculum stands at its beginning, so that two evaluations differ by the policy alone.
    """
    size, mine = ranks.world_size(), ranks.rank()
    part = [(i, q) for i, q in enumerate(questions) if i % size == mine]
    names = [("eval", name, q.id) for _, q in part]
    rollouts = ranks.together(
        lambda: agent.rollouts([q for _, q in part], names, n=n, sampling=sampling, run_seed=run_seed, step=0), agent.model.device
    )
    order = {q.id: i for i, q in enumerate(questions)}
    rollouts = sorted(ranks.gathered(rollouts), key=lambda r: (order[r.question.id], r.sample))
    return rollout_metrics(rollouts, name) | engine_metrics(rollouts, f"{name}/engine"), rollouts
