"""What happens between steps: recording, validation, checkpoints, and stopping in good order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch

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
            if short := int(result.metrics.get("rollout/unfilled", 0)):
                size, batches = module.config.train.questions, int(result.metrics["rollout/batches"])
                self.progress.say(
                    f"step {step}: {size - short} of {size} questions had right and wrong rollouts after {batches} batches (algo.max_batches); "
                    "it was trained on those"
                )

    def write(self, metrics: dict[str, float], step: int) -> None:
        self.folder.append_metrics({"step": step, "time": time.time(), **metrics})
        self.mirrors.log(metrics, step)


class Validator(L.Callback):
    """Validates before the first step, every few steps and after the last, and keeps the best checkpoint by the mean EM over sets.

    `agent` is the module's policy with whoever answers searches in evaluation.
    """

    def __init__(
        self, recorder: Recorder, agent: Agent, sets: dict[str, Sequence[Question]], *, every: int, sampling: Sampling, keep: int, best: Path
    ) -> None:
        self.agent = agent
        self.recorder, self.sets, self.every, self.sampling, self.keep, self.best = recorder, sets, every, sampling, keep, best

    def on_train_epoch_start(self, trainer: L.Trainer, module: SearchRL) -> None:
        if module.steps_done == 0:  # there is one epoch; at `on_train_start` the module has not published yet
            self._run(trainer, module)

    def on_train_batch_end(self, trainer: L.Trainer, module: SearchRL, *_: Any) -> None:
        if self.every and (module.steps_done % self.every == 0 or module.steps_done == module.config.train.steps):
            self._run(trainer, module)

    def _run(self, trainer: L.Trainer, module: SearchRL) -> None:
        if not self.every or not self.sets:
            return
        step, scores, rewards = module.steps_done, [], []
        for name, questions in self.sets.items():
            self.recorder.progress.phase(f"validating on {len(questions)} questions of {name}")
            metrics, rollouts = evaluate(
                self.agent, questions, f"val/{name}", sampling=self.sampling, run_seed=module.config.seed
            )
            scores.append(metrics[f"val/{name}/em"])
            rewards.append(metrics[f"val/{name}/reward"])
            if trainer.is_global_zero:
                self.recorder.write(metrics, step)
                self.recorder.folder.rollouts.append(f"val.{name}", step, [record_of(self.agent, r, step) for r in rollouts[: self.keep]])
                self.recorder.progress.validation(step, name, metrics)
        score = sum(scores) / len(scores)
        module.validated = (step, sum(rewards) / len(rewards))
        if module.best is None or score > module.best[0]:
            module.best = (score, step)
            trainer.save_checkpoint(self.best, weights_only=True)


class Interruption(L.Callback):
    """Ctrl-C and SIGTERM ask the run to stop at the border of a step; asked twice, it stops at once.

    The handler only sets a flag: nobody waits for another process inside it. It must come first among the callbacks, and takes the
    signals over when training starts, after Lightning has put its own handlers there.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.announce = announce
        self.signal = 0  # the signal that asked
        self._before: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: L.Trainer, module: SearchRL) -> None:
        self._before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}

    def on_train_end(self, trainer: L.Trainer, module: SearchRL) -> None:
        self._restore()

    def on_exception(self, trainer: L.Trainer, module: SearchRL, exception: BaseException) -> None:
        if isinstance(exception, KeyboardInterrupt):
            self._before.pop(signal.SIGINT, None)  # stays ignored: see `_ask`
        self._restore()

    def agreed(self, device: torch.device) -> bool:
        """Whether any process was asked; all of them call this at the same point."""
        self.signal = int(ranks.largest(float(self.signal), device))
        return self.signal > 0

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a third one must not tear what the second one makes: status, lock, terminal
            raise KeyboardInterrupt
        self.signal = number
        self.announce("stopping: this step is finished and saved first; press Ctrl-C again to stop at once")

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())


class Checkpoints(L.Callback):
    """Saves `last` every few steps, after the last step, where the run was asked to stop, and with each new best.

    Without the last of these, a killed run would go on from before the step of its best checkpoint, and know of another best.
    """

    def __init__(self, last: Path, interruption: Interruption, *, every: int) -> None:
        self.last, self.interruption, self.every = last, interruption, every

    def on_train_batch_end(self, trainer: L.Trainer, module: SearchRL, *_: Any) -> None:
        step = module.steps_done
        stop = self.interruption.agreed(module.device)
        improved = module.best is not None and module.best[1] == step
        if stop or improved or trainer.should_stop or step % self.every == 0 or step == module.config.train.steps:
            trainer.save_checkpoint(self.last)
        trainer.should_stop = trainer.should_stop or stop


def record_of(agent: Agent, rollout: Rollout, step: int, advantage: float | None = None) -> dict[str, Any]:
    """A rollout as the run folder keeps it, with each token's text."""
    pieces = agent.loop.token_text.pieces(rollout.ids)
    return record(rollout, [piece.decode("utf-8", errors="replace") for piece in pieces], step, advantage)
