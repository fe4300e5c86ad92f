"""The Lightning module: collect, score, update. One `training_step` is one batch of rollouts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ssrl.algo.filters import overlong_penalty
from ssrl.config import Config
from ssrl.data.order import Draw
from ssrl.errors import UserError
from ssrl.policy.critic import Critic
from ssrl.policy.hardware import keep_freed_memory
from ssrl.policy.shard import Scope, is_sharded, shard, whole
from ssrl.training import ranks
from ssrl.training.agent import Agent
from ssrl.training.balance import balanced
from ssrl.training.collect import Collector, Sampled
from ssrl.training.experience import Experience, Layout
from ssrl.training.files import load_into
from ssrl.training.learner import Learner
from ssrl.training.metrics import engine_metrics, group_metrics, rollout_metrics
from ssrl.training.select import asked_of_each, numbered
from ssrl.types import Rollout, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a training step leaves for the callbacks: metrics over all processes, and this process's rollouts."""

    metrics: dict[str, float]
    rollouts: list[Rollout]
    advantages: dict[tuple[str, int], float]  # of all processes by (group, sample), the mean over tokens; rollouts left out of the loss have none


class SearchRL(L.LightningModule):
    """A policy that learns from its own rollouts. Its state is the weights of policy and critic, their optimisers, and a few numbers."""

    def __init__(self, config: Config, agent: Agent, reference: PreTrainedModel | None, critic: Critic | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config, self.agent, self.policy, self.critic = config, agent, agent.model, critic
        self.learner = Learner(config, agent.model, reference, critic, scope=self)  # no module itself, so the reference is in no checkpoint
        self.collector = Collector(config, agent)
        self.steps_done = 0
        self.cursor = 0  # questions drawn so far over all processes
        self.bad_in_row = 0
        self.best: tuple[float, int] | None = None  # best validation score, its step
        self.validated: tuple[int, float] | None = None  # step and mean reward of the last validation
        self.last: StepResult | None = None

    @property
    def device(self) -> torch.device:
        """Where this process computes; pieces of weights may lie elsewhere."""
        return super().device if self._trainer is None else self.trainer.strategy.root_device

    def forward(self, work: Callable[[], Any]) -> Any:
        """What reads the weights runs under this module: if it is sharded, they are whole meanwhile."""
        return work()

    def configure_model(self) -> None:
        """Cut the weights over the processes where the strategy says so."""
        mesh, reference = self.device_mesh, self.learner.reference
        if mesh is None or is_sharded(self):
            return
        how = {"half": self.trainer.precision == "bf16-mixed", "offload": self.config.trainer.cpu_offload}
        trunks = [self.policy.get_decoder(), *([self.critic.trunk] if self.critic is not None and self.critic.trunk is not None else [])]
        shard(self, trunks, mesh["data_parallel"], **how)
        if reference is not None:
            self.learner.reference_scope = Scope(reference)
            shard(self.learner.reference_scope, [reference.get_decoder()], mesh["data_parallel"], **how)

    def publish(self) -> None:
        """Let the sampler take over the weights as they are now; a refusal on one process ends all."""
        ranks.together(self.agent.sampler.publish, self.device)

    # One batch of rollouts

    def training_step(self, draws: Sequence[Draw], batch_index: int) -> None:
        step, started = self.steps_done + 1, time.perf_counter()
        late = self.collector.ahead is not None
        collected = self.collector.collect(draws, step, self.trainer.datamodule.questions, self.device)
        collected_at = time.perf_counter()
        kept, number = collected.kept, collected.number
        if self.config.trainer.balance:
            kept, number = balanced(
                kept, number, updates=self.config.algo.updates, share_prompt=self.config.trainer.share_prompt,
                skip_flat=self.learner.skips_equal_rewards)  # fmt: skip
        if self.config.train.pipeline:
            self._sample_ahead()
        else:
            self.agent.sampler.rest()
        layout = Layout.of(kept, numbered(kept, number, asked_of_each(self.config)), self.device)
        metrics, experience = self.learner.learn(layout, self.rewards(kept), step, self.optimise)
        updated = time.perf_counter()
        self.collector.settle(self.device)
        settled = time.perf_counter()
        self.publish()
        self.steps_done = step
        self.cursor += self.config.train.questions
        published = time.perf_counter()
        everyone, trained = ranks.gathered(collected.rollouts), ranks.gathered(kept)
        tokens = sum(sum(r.sampled) for r in everyone)
        metrics |= rollout_metrics(everyone, "train") | group_metrics(trained, "rollout") | collected.metrics
        metrics |= engine_metrics(everyone, "engine") | self.agent.loop.engine.figures(step)
        metrics |= {
            "rollout/dropped": float(len(everyone) - len(trained)),
            "time/generate_s": collected.seconds,
            "time/update_s": updated - collected_at,
            "time/publish_s": published - settled,
            "time/step_s": published - started,
            "time/tokens_per_s": tokens / (published - started),
            "time/generated_tokens_per_s": tokens / collected.seconds,
        }
        if self.config.train.pipeline:
            metrics |= {"rollout/staleness": float(late), "time/wait_s": settled - updated}
        self.last = StepResult(metrics=metrics, rollouts=collected.rollouts, advantages=dict(ranks.gathered(list(_by_rollout(experience).items()))))

    def _sample_ahead(self) -> None:
        """Begin with the next step's rollouts, where there is one."""
        cursor = self.cursor + self.config.train.questions
        if self.steps_done + 1 < self.config.train.steps:
            self.collector.sample_ahead(self.trainer.datamodule.share(cursor), self.steps_done + 2, self.device)

    def rewards(self, rollouts: Sequence[Rollout]) -> Tensor:
        """[R] float64: what each rollout earned, less what it costs to be nearly cut off."""
        a, most = self.config.algo, self.config.rollout.max_response_tokens
        rewards = torch.tensor([r.score.total for r in rollouts], dtype=torch.float64)
        if not a.overlong_buffer:
            return rewards
        written = torch.tensor([sum(source is not Source.ENGINE for source in r.sources) for r in rollouts])
        return rewards + overlong_penalty(written, max_length=most, buffer=a.overlong_buffer * most, factor=a.overlong_penalty)

    # One optimiser step

    def optimise(self, losses: Iterator[tuple[Tensor, dict[str, Tensor]]], rows: int) -> dict[str, float]:
        """Add up the gradients of `rows` losses (of more where another process has more), over processes too, and step on a finite gradient.

        A loss or gradient that is not finite is skipped, counted and kept for a look at it. Gradients are equal on all processes by now.

        Returns:
            The metrics of the losses added up, and the step's own.
        """
        optimizers = self._optimizers()
        torch.clear_autocast_cache()  # it may hold low-precision copies of the weights from before the last update
        count = int(ranks.largest(float(rows), self.device))  # every process runs as many passes
        alone = getattr(self.trainer.strategy, "block_backward_sync", nullcontext)  # gradients meet once, in the last pass
        sums: dict[str, float] = {}
        for i in range(count):
            with nullcontext() if i == count - 1 else alone():
                loss, metrics = next(losses)
                self.manual_backward(loss * ranks.world_size())  # processes' gradients are averaged
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        names = sorted(sums)
        sums = dict(zip(names, ranks.total([sums[n] for n in names], self.device), strict=True))
        found = sums | self._step(optimizers, sums.get("loss/total", 0.0) + sums.get("critic/loss", 0.0))
        for optimizer in optimizers:
            optimizer.zero_grad()  # not before the next update: while rollouts are sampled their memory is the sampler's
        return found

    def _step(self, optimizers: Sequence[torch.optim.Optimizer], loss: float) -> dict[str, float]:
        """The policy's optimiser comes first, then the critic's."""
        step, norms = self.steps_done + 1, []
        for optimizer in optimizers:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for p in parameters:
                if p.grad is None:  # no row had a signal: the step still decays weights and momentum, as with a gradient of zero
                    p.grad = torch.zeros_like(p)
            norms.append(float(whole(torch.nn.utils.clip_grad_norm_(parameters, self.config.train.grad_clip or float("inf")))))
        bad = bool(ranks.largest(float(not np.isfinite([loss, *norms]).all()), self.device))
        rates = [scheduler.get_last_lr()[0] for scheduler in self._schedulers()]
        if bad:
            self.bad_in_row += 1
            self._dump(step)
            if self.bad_in_row >= self.config.train.max_bad_steps:
                raise UserError(
                    f"loss or gradient was not finite in {self.bad_in_row} steps in a row (step {step}: loss {loss}, gradient norm {norms[0]}); "
                    "the last checkpoint is from before; lower train.lr or set trainer.precision=32-true"
                )
        else:
            self.bad_in_row = 0
            critic_alone = len(optimizers) > 1 and step <= self.config.algo.critic.alone_steps
            for optimizer, scheduler in list(zip(optimizers, self._schedulers(), strict=True))[critic_alone:]:
                optimizer.step()
                scheduler.step()  # a warm-up counts the updates that were made
        found = {"train/lr": rates[0], "train/skipped_steps": float(bad)} | ({} if bad else {"loss/grad_norm": norms[0]})
        return found | ({"critic/grad_norm": norms[1]} if len(norms) > 1 and not bad else {})

    def _dump(self, step: int) -> None:
        """Keep what made a step fail, for a look at it."""
        torch.save({"step": step, "part": self.learner.part}, f"{self.trainer.default_root_dir}/bad-step-{step}-rank{ranks.rank()}.pt")

    def transfer_batch_to_device(self, batch: Sequence[Draw], device: torch.device, dataloader_idx: int) -> Sequence[Draw]:
        return batch  # questions hold no tensors

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        found = self.optimizers()
        return found if isinstance(found, list) else [found]

    def _schedulers(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        found = self.lr_schedulers()
        return found if isinstance(found, list) else [found]

    def configure_optimizers(self) -> list[dict[str, object]]:
        t, c = self.config.train, self.config.algo.critic
        found = [self._optimizer(self.policy, t.lr, t.warmup_steps)]
        return found if self.critic is None else [*found, self._optimizer(self.critic, c.lr, c.warmup_steps)]

    def _optimizer(self, part: torch.nn.Module, rate: float, warmup_steps: int) -> dict[str, object]:
        t, a = self.config.train, self.config.algo
        parameters = [p for p in part.parameters() if p.requires_grad]
        fused = parameters[0].device.type in ("cpu", "cuda")
        optimizer = torch.optim.AdamW(parameters, lr=rate, betas=tuple(t.betas), weight_decay=t.weight_decay, fused=fused)
        warmup = max(warmup_steps * a.updates * a.epochs, 1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / warmup))
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    # State

    def on_save_checkpoint(self, checkpoint: dict[str, object]) -> None:
        checkpoint["ssrl"] = {
            "steps_done": self.steps_done, "cursor": self.cursor, "bad_in_row": self.bad_in_row, "best": self.best,
            "kl_coef": self.learner.coefficient.value, "extra_cursor": self.collector.cursor, "ahead": self._all_ahead(),
            "engine": self.agent.loop.engine.figures(self.steps_done),  # for the reader: it follows from the step
            "rng": {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}}  # fmt: skip

    def _all_ahead(self) -> Sampled | None:
        """What was sampled ahead on all processes: a resumed run may have another number of them."""
        ahead = self.collector.ahead
        return ahead and replace(ahead, rollouts=ranks.gathered(ahead.rollouts))

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Go on with the policy (and critic) of a checkpoint; what was sampled ahead is of another one."""
        load_into(self, weights)
        self.collector.ahead = None
        self.publish()

    def on_load_checkpoint(self, checkpoint: dict[str, object]) -> None:
        # A run is one pass over its remaining batches, whatever was done before; so Lightning's own loop counters do not apply.
        checkpoint.pop("loops", None)
        state = checkpoint["ssrl"]
        self.steps_done, self.cursor = state["steps_done"], state["cursor"]
        self.bad_in_row, self.best = state["bad_in_row"], state["best"]
        self.learner.coefficient = replace(self.learner.coefficient, value=state["kl_coef"])
        self.collector.cursor = state["extra_cursor"]
        self.collector.ahead = state.get("ahead")  # checkpoints of before this was possible have none
        random.setstate(state["rng"]["python"])
        np.random.set_state(state["rng"]["numpy"])
        torch.set_rng_state(state["rng"]["torch"])

    def on_train_start(self) -> None:
        if self.device.type == "cpu":
            keep_freed_memory()
        if self.learner.reference is not None and not is_sharded(self):
            self.learner.reference.to(self.device)
        self.publish()  # the weights may come from a checkpoint, which a sharded run reads after its fit has started


def _by_rollout(e: Experience) -> dict[tuple[str, int], float]:
    """The mean advantage of each rollout that has trained tokens."""
    sums = torch.zeros(len(e.layout.rollouts), device=e.layout.device).index_add(0, e.layout.rollout, e.advantages)
    means = (sums / e.layout.lengths.clamp(min=1)).tolist()
    return {(r.group, r.sample): mean for r, mean in zip(e.layout.rollouts, means, strict=True)}
