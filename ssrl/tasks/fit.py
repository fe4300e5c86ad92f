"""The parts of a training run in order: prepare, measure before, train, measure after, close."""

from __future__ import annotations

import logging
import time
import warnings
from datetime import timedelta
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import DDPStrategy, Strategy
from rich.console import Console

from ssrl.check_trainer import FLEX_ON_CPU
from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.policy.hardware import determinism, precision
from ssrl.policy.load import load_model
from ssrl.processes import is_first_process
from ssrl.report.page import write_page
from ssrl.runlog.folder import RunFolder, State
from ssrl.runlog.identity import resolved
from ssrl.runlog.manifest import build_manifest
from ssrl.runlog.mirrors import Mirrors, open_mirrors
from ssrl.tasks.build import (
    build_agent,
    build_critic,
    build_evaluating,
    build_policy,
    device_of,
    engine_identity,
    ping,
    place,
    short_enough,
)
from ssrl.tasks.checkpoint import checkpoint_path
from ssrl.tasks.measure import measure
from ssrl.tasks.show import relative, show_run
from ssrl.tasks.sources import Sources
from ssrl.training.callbacks import Checkpoints, Interruption, Recorder, Validator
from ssrl.training.data import QuestionData
from ssrl.training.files import AtomicCheckpointIO, load_into, read_rest, read_weights
from ssrl.training.guard import Guard
from ssrl.training.module import SearchRL
from ssrl.training.progress import Progress
from ssrl.training.sharding import Sharded
from ssrl.types import Sampling

_PATIENCE = timedelta(days=1)  # processes that are started at once wait for the first, which measures before training


class Fit:
    """One run, from its configuration to its summary. On several processes every one walks through it; the first writes."""

    def __init__(self, config: Config, sources: Sources, folder: RunFolder) -> None:
        self.config, self.sources, self.folder = config, sources, folder
        self.started = time.monotonic()
        _quiet_libraries()
        if config.trainer.threads:
            torch.set_num_threads(config.trainer.threads)
        self.last, self.best = checkpoint_path(folder.path, "last"), checkpoint_path(folder.path, "best")
        self.resume = self.last.exists()
        self.last_step = read_rest(self.last)["ssrl"]["steps_done"] if self.resume else 0
        self.trains = self.last_step < config.train.steps  # else only the figures of a run that has done its steps are missing
        self.first = is_first_process()
        self.console = Console()
        self.progress = Progress(self.console, config.train.steps, quiet=not self.first)
        self.mirrors = Mirrors()

    def prepare(self) -> None:
        """Build everything and say what will run."""
        c = self.config
        L.seed_everything(c.seed, verbose=False)  # new adapters are random
        device = device_of(c)
        if c.model.attention == "flex" and device.type == "cpu":  # trainer=auto found no GPU
            raise UserError(FLEX_ON_CPU)
        loaded = build_policy(c)
        place(loaded.model, c)  # the sampler's copy is laid out for where the policy is
        agent = build_agent(c, loaded)
        self.evaluating = build_evaluating(c, agent, loaded)
        if self.first:
            for sentence in ping(agent, self.evaluating):
                self.progress.say(sentence)
        limit = c.rollout.max_prompt_tokens
        over_long: dict[str, int] = {}
        self.questions, over_long["train"] = short_enough(agent, self.sources.train, limit, f"data={c.data.name}")
        self.vals, self.tests = {}, {}
        for part, sets, kept in (("val", self.sources.val, self.vals), ("test", self.sources.test, self.tests)):
            for name, questions in sets.items():
                kept[name], over_long[f"{part}/{name}"] = short_enough(agent, questions, limit, f"data.{part}.{name}")
        self.module = SearchRL(c, agent, self._reference(), build_critic(c, loaded))
        if self.first:
            self.mirrors = open_mirrors(c.logger.names, self.folder.path, c.name, resolved(c), c.logger.project, c.logger.wandb_mode)
            self._manifest(over_long)
            self.folder.rewind(self.last_step if self.resume else -1)
        self.trainer = self._trainer()
        self._introduce(agent.loop.renderer.prompt_ids(self.questions[0]))

    def _reference(self) -> Any:
        """The reference policy, only where a KL term needs it; adapters need none, since switched off they are the reference."""
        c = self.config
        if c.algo.kl == "none" or not c.algo.kl_coef or c.model.lora.rank:
            return None
        reference = load_model(c.model.path, revision=c.model.revision, dtype=c.model.dtype, attention=c.model.attention).model
        return reference.requires_grad_(False)

    def _trainer(self) -> L.Trainer:
        c = self.config
        recorder = Recorder(self.folder, self.mirrors, self.progress)
        validator = Validator(
            recorder, self.evaluating, self.vals, every=c.eval.every, sampling=Sampling(temperature=c.eval.temperature), keep=c.eval.keep_rollouts, best=self.best
        )
        self.interruption = Interruption(self.progress.say)
        guard = Guard(c.guard, self.best, self.progress.say)
        checkpoints = Checkpoints(self.last, self.interruption, every=c.train.save_every)
        t = c.trainer
        try:
            return L.Trainer(
                accelerator=t.accelerator, devices=t.devices, num_nodes=t.num_nodes, strategy=strategy_of(c),
                precision=precision(t.precision, device_of(c).type), max_epochs=1, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=0,
                deterministic=determinism(t.deterministic), default_root_dir=self.folder.path,
                callbacks=[self.interruption, recorder, validator, guard, checkpoints], plugins=[AtomicCheckpointIO()])  # fmt: skip
        except (MisconfigurationException, ValueError, ImportError) as error:  # not here, unknown, or without its package
            reason = " ".join(str(error).split())
            raise UserError(
                f"trainer.devices={t.devices} with trainer.accelerator={t.accelerator} is not possible on this machine ({reason}); type trainer.devices=1, or trainer=cpu"
            ) from error

    def _manifest(self, over_long: dict[str, int]) -> None:
        c = self.config
        data = {**self.sources.manifest, "over_long_prompts": over_long}
        self.folder.write_manifest(build_manifest(c, seeds={"run": c.seed}, data=data, engine=engine_identity(self.module.agent, self.evaluating)))

    def _introduce(self, prompt: tuple[int, ...]) -> None:
        c, say = self.config, self.progress.say
        say(f"[bold]{c.name}[/bold] seed {c.seed}, recipe {c.recipe}, in {relative(self.folder.path)}")
        say(
            f"{len(self.questions)} training questions; {c.train.questions} x {c.rollout.n} rollouts a step at temperature {c.rollout.temperature:g}, "
            f"prompts of about {len(prompt)} tokens, at most {c.rollout.max_response_tokens} new ones; {c.train.steps} steps at learning rate {c.train.lr:g}; "
            f"sampling in {str(self.module.agent.sampler.dtype).removeprefix('torch.')}, updates in {self.trainer.precision}"
        )
        if self.resume:
            say(f"continuing after step {self.last_step}")

    def measure(self, moment: str) -> None:
        """Figures on the test sets, once before training and once with the best checkpoint (the last, without validation); kept in `summary.json`."""
        if moment == "before" and (self.resume or not self.first):
            return  # measured when the run began; further processes join only when training starts
        c, step = self.config, 0 if moment == "before" else self.module.steps_done
        figures = measure(c, self.evaluating, self.tests, step=step, folder=self.folder, progress=self.progress)
        if self.first:
            summary = self.folder.summary() or {"before": {}, "after": {}, "test_sets": [f"test/{name}" for name in self.tests]}
            best = {"best_step": self.module.best[1]} if moment == "after" and self.module.best else {}
            counts = {"train questions": len(self.questions), **{f"test questions {n}": len(q) for n, q in self.tests.items()}}
            self.folder.write_summary({**summary, moment: figures, **best, "counts": counts, "samples": c.eval.samples})

    def train(self) -> None:
        """Run the remaining steps and take the best checkpoint.

        Raises:
            SystemExit: the run was asked to stop; the step that it was in is finished and saved.
        """
        c, weights = self.config, self.best
        if self.trains:
            self.progress.phase(f"step {self.last_step + 1} of {c.train.steps}")
            self._fit(QuestionData(self.questions, seed=c.seed, steps=c.train.steps, size=c.train.questions))
            self.interruption.agreed(self.module.device)  # one process may have been asked during the last save
        elif self.resume:
            self.module.steps_done = self.last_step
            self.module.best = read_rest(self.last)["ssrl"]["best"]
            weights = self.best if self.best.exists() else self.last  # nothing is trained that would have read them
        if self.interruption.signal and self.first:
            self.progress.close()
            self.progress.say(f"stopped after step {self.module.steps_done} of {c.train.steps}, saved; repeat the same command to continue")
            raise SystemExit(128 + self.interruption.signal)
        if self.interruption.signal:
            raise SystemExit(0)  # Lightning takes any other code for a crash and kills the first process
        if weights.exists():
            load_into(self.module, read_weights(weights))
        place(self.module, c)  # Lightning leaves it on the CPU
        self.module.publish()

    def _fit(self, data: QuestionData) -> None:
        try:
            self.trainer.fit(self.module, datamodule=data, ckpt_path=self.last if self.resume else None, weights_only=False)
        except OSError as error:
            raise UserError(f"writing to {relative(self.folder.path)} failed ({error}); make room and repeat the command: it continues") from error
        except SystemExit as end:  # what Lightning makes of Ctrl-C
            raise KeyboardInterrupt from end

    def finish(self) -> None:
        """Write the page and show the table."""
        self.progress.close()
        if not self.first:
            return
        self.folder.set_status(State.DONE, step=self.module.steps_done)
        write_page(self.folder.path)
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        show_run(self.console, self.folder)
        self.progress.say(f"{minutes}:{seconds:02d} minutes in all")

    def __enter__(self) -> Fit:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let go of the terminal and the mirrors, however the run ended; the mirrors are told whether it did so in good order."""
        self.progress.close()
        self.mirrors.close(ok=kind is None)


def strategy_of(config: Config) -> Strategy | str:
    """How several processes share the work; one alone leaves it to Lightning unless its weights are to be sharded."""
    t = config.trainer
    processes = t.devices * t.num_nodes
    if t.strategy == "fsdp":
        return Sharded(processes=processes, cuda=device_of(config).type == "cuda", timeout=_PATIENCE)
    return t.strategy if processes == 1 else DDPStrategy(timeout=_PATIENCE)


def _quiet_libraries() -> None:
    """Notices of libraries that say nothing about an experiment, or describe what is meant to be so."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for text in (
        ".*does not have many workers.*",
        ".*`IterableDataset` has `__len__` defined.*",  # one worker, exact length
        ".*module\\(s\\) in eval mode.*",  # no dropout in RL
        ".*overridden `transfer_batch_to_device`.*",
        ".*srun.*",
        ".*isinstance\\(treespec, LeafSpec\\).*",
    ):
        warnings.filterwarnings("ignore", text)
