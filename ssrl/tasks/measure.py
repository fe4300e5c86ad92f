"""The reported figures of an agent: greedy on every test set, and pass@1 from samples at the training temperature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ssrl.config import Config
from ssrl.processes import is_first_process
from ssrl.runlog.folder import RunFolder
from ssrl.training.agent import Agent
from ssrl.training.callbacks import record_of
from ssrl.training.evaluate import evaluate
from ssrl.training.progress import Progress
from ssrl.types import Question, Sampling


def measure(
    config: Config, agent: Agent, tests: Mapping[str, Sequence[Question]], *, step: int, folder: RunFolder, progress: Progress
) -> dict[str, float]:
    """`test/<set>/<metric>` for every set; the greedy rollouts are written to the run folder."""
    figures: dict[str, float] = {}
    for name, questions in tests.items():
        prefix = f"test/{name}"
        progress.phase(f"testing on {len(questions)} questions of {name}")
        greedy = Sampling(temperature=config.eval.temperature)
        found, rollouts = evaluate(agent, questions, prefix, sampling=greedy, run_seed=config.seed)
        figures |= found
        if config.eval.samples:
            r = config.rollout
            sampled, _ = evaluate(
                agent, questions, prefix, n=config.eval.samples, run_seed=config.seed,
                sampling=Sampling(temperature=r.temperature, top_p=r.top_p, top_k=r.top_k))  # fmt: skip
            figures[f"{prefix}/pass@1"] = sampled[f"{prefix}/em"]
        if is_first_process():
            folder.rollouts.replace(f"test.{name}", step, [record_of(agent, r, step) for r in rollouts])
    return figures
