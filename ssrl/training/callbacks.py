"""What happens between steps: recording, validation, checkpoints, and stopping in good order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L

from ssrl.runlog.folder import RunFolder, State
from ssrl.runlog.mirrors import Mirrors
from ssrl.runlog.rollouts import record
from ssrl.training import ranks
from ssrl.training.agent import Agent
from ssrl.training.evaluate import evaluate
from ssrl.training.module import SearchRL
from ssrl.training.progress import Progress
from ssrl.types import Question, Rollout, Sampling


class Recorder(L.Callback):
    """Writes each step's metrics and rollouts into the run folder and its mirrors, and shows them."""

    def __init__(self, folder: RunFolder, mirrors: Mirrors, progress: Progress) -> None:
        self.folder, self.mirrors, self.progress = folder, mirrors, progress

    def on_train_batch_end(self, trainer: L.Trainer, module: SearchRL, *_: Any) -> None:
        result, step = module.last, module.steps_done
        rollouts = ranks.gathered([record_of(module.agent, r, step, result.advantages.get((r.group, r.sample))) for r in result.rollouts])
        if trainer.is_global_zero:
            self.write(result.metrics, step)
            self.folder.rollouts.append("train", step, rollouts)
            self.folder.set_status(State.RUNNING, step=step)
            self.progress.step(step, result.metrics)

    def write(self, metrics: dict[str, float], step: int) -> None:
        self.folder.append_metrics({"step": step, "time": time.time(), **metrics})
        self.mirrors.log(metrics, step)


class Validator(L.Callback):
    """Validates before the first step, every few steps and after the last, and keeps the best checkpoint by the mean EM over sets."""

    def __init__(self, recorder: Recorder, sets: dict[str, Sequence[Question]], *, every: int, sampling: Sampling, keep: int, best: Path) -> None:
        self.recorder, self.sets, self.every, self.sampling, self.keep, self.best = recorder, sets, every, sampling, keep, best

    def on_train_start(self, trainer: L.Trainer, module: SearchRL) -> None:
        if module.steps_done == 0:
            self._run(trainer, module)

    def on_train_batch_end(self, trainer: L.Trainer, module: SearchRL, *_: Any) -> None:
        if self.every and (module.steps_done % self.every == 0 or module.steps_done == module.config.train.steps):
            self._run(trainer, module)

    def _run(self, trainer: L.Trainer, module: SearchRL) -> None:
        if not self.every or not self.sets:
            return
        step, scores = module.steps_done, []
        for name, questions in self.sets.items():
            self.recorder.progress.phase(f"validating on {len(questions)} questions of {name}")
            metrics, rollouts = evaluate(
                module.agent, questions, f"val/{name}", sampling=self.sampling, run_seed=module.config.seed, step=step
            )
            scores.append(metrics[f"val/{name}/em"])
            if trainer.is_global_zero:
                self.recorder.write(metrics, step)
                self.recorder.folder.rollouts.append(f"val.{name}", step, [record_of(module.agent, r, step) for r in rollouts[: self.keep]])
                self.recorder.progress.validation(step, name, metrics)
        score = sum(scores) / len(scores)
        if module.best is None or score > module.best[0]:
            module.best = (score, step)
            trainer.save_checkpoint(self.best, weights_only=True)


class Checkpoints(L.Callback):
    """Saves `last` every few steps and where the run is to stop. Ctrl-C and SIGTERM let the step finish, save, and stop.

    The handler only sets a flag; all processes agree on it at the border of a step, so that nobody waits in a collective call.
    """

    def __init__(self, last: Path, *, every: int, announce: Callable[[str], None]) -> None:
        self.last, self.every, self.announce = last, every, announce
        self.asked = False
        self.saved_step = 0
        self._before: dict[signal.Signals, Any] = {}

    def setup(self, trainer: L.Trainer, module: SearchRL, stage: str) -> None:
        self._before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}

    def teardown(self, trainer: L.Trainer, module: SearchRL, stage: str) -> None:
        for s, handler in self._before.items():
            signal.signal(s, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.announce("stopping: this step is finished and saved first; press Ctrl-C again to stop at once")

    def on_train_start(self, trainer: L.Trainer, module: SearchRL) -> None:
        self.saved_step = module.steps_done

    def on_train_batch_end(self, trainer: L.Trainer, module: SearchRL, *_: Any) -> None:
        step = module.steps_done
        stop = bool(ranks.largest(float(self.asked), module.device))
        if stop or step % self.every == 0 or step == module.config.train.steps:
            trainer.save_checkpoint(self.last)
            self.saved_step = step
        trainer.should_stop = trainer.should_stop or stop


def record_of(agent: Agent, rollout: Rollout, step: int, advantage: float | None = None) -> dict[str, Any]:
    """A rollout as the run folder keeps it, with each token's text."""
    pieces = agent.loop.token_text.pieces(rollout.ids)
    return record(rollout, [piece.decode("utf-8", errors="replace") for piece in pieces], step, advantage)
