"""The Lightning module: collect, score, update. One `training_step` is one batch of rollouts."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ssrl.algo.advantage import ADVANTAGES
from ssrl.algo.aggregate import AGGREGATES
from ssrl.algo.loss import Objective, policy_loss
from ssrl.config import Config
from ssrl.data.order import Draw
from ssrl.errors import UserError
from ssrl.policy.logprobs import row_logprobs
from ssrl.rollout.pack import Row, pack, trained_lengths
from ssrl.training import ranks
from ssrl.training.agent import Agent, group_name
from ssrl.training.metrics import engine_metrics, group_metrics, means, rollout_metrics
from ssrl.training.select import mini_batches, trainable
from ssrl.types import Rollout, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a training step leaves for the callbacks: metrics over all processes, and this process's rollouts."""

    metrics: dict[str, float]
    rollouts: list[Rollout]
    advantages: dict[tuple[str, int], float]  # by (group, sample); rollouts left out of the loss have none


class SearchRL(L.LightningModule):
    """A policy that learns from its own rollouts. Its state is the policy's weights, the optimiser, and four numbers."""

    def __init__(self, config: Config, agent: Agent, reference: PreTrainedModel | None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config, self.agent, self.policy = config, agent, agent.model
        self.uses_adapters = hasattr(agent.model, "peft_config")
        self._reference = (reference,)  # in a tuple, so that it is no submodule and in no checkpoint
        self.steps_done = 0
        self.cursor = 0  # questions drawn so far over all processes
        self.bad_in_row = 0
        self.best: tuple[float, int] | None = None  # best validation score, its step
        self.last: StepResult | None = None
        algo = config.algo
        self.objective = Objective(
            surrogate=algo.surrogate, clip_low=algo.clip_low, clip_high=algo.clip_high, dual_clip=algo.dual_clip,
            kl_coef=algo.kl_coef if algo.kl == "loss" else 0.0, kl_estimator=algo.kl_estimator)  # fmt: skip

    # One batch of rollouts

    def training_step(self, draws: Sequence[Draw], batch_index: int) -> None:
        step, started = self.steps_done + 1, time.perf_counter()
        rollouts = self.collect(draws, step)
        collected = time.perf_counter()
        kept = trainable(rollouts, failed=self.config.train.train_failed)
        advantages = self.advantages(kept)
        number = {group_name((step, draw.position)): draw.position for draw in draws}
        metrics = self.learn(kept, advantages, [number[r.group] for r in kept], step)
        updated = time.perf_counter()
        self.agent.sampler.publish()
        self.steps_done = step
        self.cursor += self.config.train.questions
        published = time.perf_counter()
        everyone = ranks.gathered(rollouts)
        tokens = sum(sum(r.sampled) for r in everyone)
        metrics |= rollout_metrics(everyone, "train") | group_metrics(everyone, "rollout")
        metrics |= engine_metrics(everyone, "engine") | self.agent.loop.engine.figures(step)
        metrics |= {
            "rollout/dropped": float(len(everyone) - len(ranks.gathered(kept))),
            "time/generate_s": collected - started,
            "time/update_s": updated - collected,
            "time/publish_s": published - updated,
            "time/step_s": published - started,
            "time/tokens_per_s": tokens / (published - started),
            "time/generated_tokens_per_s": tokens / (collected - started),
        }
        by_name = {(r.group, r.sample): a for r, a in zip(kept, advantages.tolist(), strict=True)}
        self.last = StepResult(metrics=metrics, rollouts=rollouts, advantages=by_name)

    def collect(self, draws: Sequence[Draw], step: int) -> list[Rollout]:
        """Scored rollouts of this process's questions."""
        c = self.config.rollout
        names = [(step, draw.position) for draw in draws]  # a question may occur twice in a batch, at the border of an epoch
        return self.agent.rollouts(
            [draw.question for draw in draws], names, n=c.n, run_seed=self.config.seed, step=step,
            sampling=Sampling(temperature=c.temperature, top_p=c.top_p, top_k=c.top_k))  # fmt: skip

    def advantages(self, rollouts: Sequence[Rollout]) -> Tensor:
        """[R] one a rollout, float32."""
        if not rollouts:
            return torch.zeros(0)
        index = {group: i for i, group in enumerate(dict.fromkeys(r.group for r in rollouts))}
        rewards = torch.tensor([r.score.total for r in rollouts], dtype=torch.float64)
        return ADVANTAGES[self.config.algo.advantage](rewards, torch.tensor([index[r.group] for r in rollouts]))

    # Updates

    def learn(self, rollouts: Sequence[Rollout], advantages: Tensor, numbers: Sequence[int], step: int) -> dict[str, float]:
        """All optimiser steps of one batch; metrics are their means. `numbers` [R]: of each rollout's group."""
        parts = mini_batches(numbers, self.config.algo.updates)
        batches = [self._batch([rollouts[i] for i in part], advantages[torch.tensor(part, dtype=torch.long)]) for part in parts]
        # the ratio is 1 in the first update of a batch, so old log-probabilities need a pass of their own only for later ones
        old = [None if k == 0 else [self._without_gradient(row) for row in batch.rows] for k, batch in enumerate(batches)]
        results = [self._update(batch, logps, step) for batch, logps in zip(batches, old, strict=True)]
        return means(results)

    def _batch(self, rollouts: list[Rollout], advantages: Tensor) -> _Batch:
        c = self.config
        lengths = trained_lengths(rollouts)
        total_tokens, total_rollouts = ranks.total([float(lengths.sum()), float(len(rollouts))], self.device)
        weights = AGGREGATES[c.algo.aggregate](lengths, total_tokens=int(total_tokens), total_rollouts=int(total_rollouts))
        no_signal_matters = self.objective.kl_coef or not c.train.skip_no_signal
        keep = None if no_signal_matters else (advantages != 0).tolist()
        rows = [row.to(self.device) for row in pack(rollouts, row_tokens=c.trainer.row_tokens, keep=keep)]
        return _Batch(rows=rows, advantages=advantages.to(self.device), weights=weights.to(self.device))

    def _update(self, batch: _Batch, old: list[Tensor] | None, step: int) -> dict[str, float]:
        """One optimiser step: every row is a forward and a backward pass, and gradients add up over rows and processes."""
        optimizer = self.optimizers()
        optimizer.zero_grad(set_to_none=False)
        torch.clear_autocast_cache()  # it may hold low-precision copies of the weights from before the last update
        count = int(ranks.largest(len(batch.rows), self.device))  # every process runs as many passes: fillers of weight 0
        alone = getattr(self.trainer.strategy, "block_backward_sync", nullcontext)  # gradients meet once, in the last pass
        sums: dict[str, float] = {}
        for i in range(count):
            real = i < len(batch.rows)
            row, within = (batch.rows[i], batch) if real else (_filler_row(self.device), _filler_batch(self.device))
            with nullcontext() if i == count - 1 else alone():
                loss, metrics = self._row_loss(row, within, old[i] if old is not None and real else None)
                self.manual_backward(loss * ranks.world_size())  # processes' gradients are averaged
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        names = sorted(sums)
        sums = dict(zip(names, ranks.total([sums[n] for n in names], self.device), strict=True))
        return self._normalised(sums) | self._optimise(optimizer, sums.get("loss/total", 0.0), batch, step)

    def _row_loss(self, row: Row, batch: _Batch, old: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy = self._logprobs(self.policy, row)
        old = logp.detach() if old is None else old
        reference = self._reference_logprobs(row) if self.objective.kl_coef else None
        weights = batch.weights[row.rollout]
        loss, metrics = policy_loss(self.objective, logp, old, batch.advantages[row.rollout], weights, reference)
        gap = old - row.sampled_logp  # NaN where the sampler gave none (mask=none trains engine tokens too)
        known = weights * ~gap.isnan()
        gap = gap.nan_to_num()
        metrics |= {
            "sum/weight": weights.sum(),
            "sum/entropy": (weights * entropy).sum(),
            "sum/known": known.sum(),
            "sum/mismatch_k1": (-known * gap).sum(),
            "sum/mismatch_abs": (known * gap.abs()).sum(),
            "sum/tokens": (weights > 0).sum(),
            "sum/inputs": torch.tensor(len(row.ids)),
        }
        return loss, metrics

    def _logprobs(self, model: torch.nn.Module, row: Row) -> tuple[Tensor, Tensor]:
        return row_logprobs(
            model, row.ids, row.positions, row.mask, row.source, row.target,
            temperature=self.config.rollout.temperature, chunk=self.config.trainer.logprob_chunk)  # fmt: skip

    @torch.no_grad()
    def _without_gradient(self, row: Row) -> Tensor:
        return self._logprobs(self.policy, row)[0]

    @torch.no_grad()
    def _reference_logprobs(self, row: Row) -> Tensor:
        if self.uses_adapters:
            with self.policy.disable_adapter():
                return self._logprobs(self.policy, row)[0]
        return self._logprobs(self._reference[0].to(self.device), row)[0]

    @staticmethod
    def _normalised(sums: dict[str, float]) -> dict[str, float]:
        """Metrics over the trained tokens that were computed; absent where there are none."""
        found = {name: value for name, value in sums.items() if name.startswith("loss/")}
        if weight := sums.get("sum/weight", 0.0):
            found["train/entropy"] = sums["sum/entropy"] / weight
        if known := sums.get("sum/known", 0.0):
            found["mismatch/k1"] = sums["sum/mismatch_k1"] / known
            found["mismatch/mean_abs"] = sums["sum/mismatch_abs"] / known
        return found | {"train/trained_tokens": sums.get("sum/tokens", 0.0), "train/input_tokens": sums.get("sum/inputs", 0.0)}

    def _optimise(self, optimizer: torch.optim.Optimizer, loss: float, batch: _Batch, step: int) -> dict[str, float]:
        """Step on a finite gradient; skip, count and keep the batch of any other. Gradients are equal on all processes by now."""
        parameters = [p for p in self.policy.parameters() if p.requires_grad]
        for p in parameters:
            if p.grad is None:  # no row had a signal: the step still decays weights and momentum, as with a gradient of zero
                p.grad = torch.zeros_like(p)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.config.train.grad_clip or float("inf")))
        bad = bool(ranks.largest(float(not np.isfinite(loss) or not np.isfinite(norm)), self.device))
        scheduler = self.lr_schedulers()
        rate = scheduler.get_last_lr()[0]
        if bad:
            self.bad_in_row += 1
            self._dump(batch, step)
            if self.bad_in_row >= self.config.train.max_bad_steps:
                raise UserError(
                    f"loss or gradient was not finite in {self.bad_in_row} steps in a row (step {step}: loss {loss}, gradient norm {norm}); "
                    "the last checkpoint is from before; lower train.lr or set trainer.precision=32-true"
                )
        else:
            self.bad_in_row = 0
            optimizer.step()
        scheduler.step()
        norms = {} if bad else {"loss/grad_norm": norm}
        return norms | {"train/lr": rate, "train/skipped_steps": float(bad)}

    def _dump(self, batch: _Batch, step: int) -> None:
        """Keep what made a step fail, for a look at it."""
        folder = self.trainer.default_root_dir
        torch.save({"step": step, "rows": batch.rows, "advantages": batch.advantages}, f"{folder}/bad-step-{step}-rank{ranks.rank()}.pt")

    def transfer_batch_to_device(self, batch: Sequence[Draw], device: torch.device, dataloader_idx: int) -> Sequence[Draw]:
        return batch  # questions hold no tensors

    def configure_optimizers(self) -> dict[str, object]:
        c = self.config.train
        parameters = [p for p in self.policy.parameters() if p.requires_grad]
        fused = parameters[0].device.type in ("cpu", "cuda")
        optimizer = torch.optim.AdamW(parameters, lr=c.lr, betas=tuple(c.betas), weight_decay=c.weight_decay, fused=fused)
        warmup = max(c.warmup_steps * self.config.algo.updates, 1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / warmup))
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    # State

    def on_save_checkpoint(self, checkpoint: dict[str, object]) -> None:
        checkpoint["ssrl"] = {
            "steps_done": self.steps_done, "cursor": self.cursor, "bad_in_row": self.bad_in_row, "best": self.best,
            "engine": self.agent.loop.engine.figures(self.steps_done),  # for the reader: it follows from the step
            "rng": {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}}  # fmt: skip

    def on_load_checkpoint(self, checkpoint: dict[str, object]) -> None:
        # A run is one pass over its remaining batches, whatever was done before; so Lightning's own loop counters do not apply.
        checkpoint.pop("loops", None)
        state = checkpoint["ssrl"]
        self.steps_done, self.cursor = state["steps_done"], state["cursor"]
        self.bad_in_row, self.best = state["bad_in_row"], state["best"]
        random.setstate(state["rng"]["python"])
        np.random.set_state(state["rng"]["numpy"])
        torch.set_rng_state(state["rng"]["torch"])

    def on_fit_start(self) -> None:
        self.agent.sampler.publish()  # the weights may come from a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """One mini-batch, packed."""

    rows: list[Row]
    advantages: Tensor  # [R]
    weights: Tensor  # [R] weight of each trained token of a rollout


def _filler_batch(device: torch.device) -> _Batch:
    return _Batch(rows=[], advantages=torch.zeros(1, device=device), weights=torch.zeros(1, device=device))


def _filler_row(device: torch.device) -> Row:
    """A row of two tokens for a process that has fewer rows than another."""
    one = torch.zeros(1, dtype=torch.long, device=device)
    two = torch.zeros(2, dtype=torch.long, device=device)
    mask = torch.ones(2, 2, dtype=torch.bool, device=device).tril()
    return Row(ids=two, positions=torch.arange(2, device=device), mask=mask, source=one, target=one, rollout=one, sampled_logp=one.float())
