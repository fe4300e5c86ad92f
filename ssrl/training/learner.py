"""The updates of one batch: what is known of its tokens before them, then epochs of mini-batches, one optimiser step each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ssrl.algo.advantage import ADVANTAGES
from ssrl.algo.aggregate import AGGREGATES
from ssrl.algo.covariance import SELECTIONS, token_keys
from ssrl.algo.credit import Batch, assign
from ssrl.algo.kl import ESTIMATORS, Coefficient
from ssrl.algo.loss import policy_loss
from ssrl.algo.tokens import LOG_RATIO_LIMIT, Objective, Tokens
from ssrl.algo.value import explained_variance, value_loss
from ssrl.config import GROUP_RELATIVE, Config
from ssrl.policy.critic import Critic
from ssrl.policy.logprobs import row_hidden, token_logprobs
from ssrl.rollout.pack import Row
from ssrl.training import ranks
from ssrl.training.experience import Experience, Layout, Part
from ssrl.training.metrics import means
from ssrl.training.select import asked_of_each, mini_batches
from ssrl.types import seed_for

Step = Callable[[Iterator[tuple[Tensor, dict[str, Tensor]]], int], dict[str, float]]
"""Makes an optimiser step of the losses of some rows, at least as many as the number given; returns the sums of their metrics and its own."""


Around = Callable[[Callable[[], Any]], Any]
"""Calls a function of no arguments and returns its result."""


def _alone(work: Callable[[], Any]) -> Any:
    return work()


class Learner:
    """The objective of an `algo=` file, acting on a policy. What a checkpoint keeps of it is the weight of the KL term."""

    def __init__(
        self, config: Config, policy: PreTrainedModel, reference: PreTrainedModel | None, critic: Critic | None, scope: Around = _alone
    ) -> None:
        """`scope` runs whatever reads weights of policy and critic: where they are sharded, they are whole under it alone."""
        self.config, self.policy, self.reference, self.critic = config, policy, reference, critic
        self.scope, self.reference_scope = scope, _alone
        a = config.algo
        self.objective = Objective(**{field.name: getattr(a, field.name) for field in fields(Objective)})
        self.coefficient = Coefficient(value=0.0 if a.kl == "none" else a.kl_coef, target=a.kl_target, horizon=a.kl_horizon)
        self.selects = SELECTIONS.get(a.surrogate)
        self.part: Part | None = None  # of the last update, for a look at one that failed

    def learn(self, layout: Layout, rewards: Tensor, step: int, optimise: Step) -> tuple[dict[str, float], Experience]:
        """All optimiser steps of one batch; the metrics are their means. A mini-batch of which no process has a rollout makes none.

        Args:
            rewards: [R] float64.
            optimise: makes one of them.
        """
        a = self.config.algo
        self.objective = replace(self.objective, kl_coef=self.coefficient.value if a.kl == "loss" else 0.0)
        experience, parts, found = self._experience(layout, rewards)
        results = [self._update(experience, part, (step, epoch, k), optimise) for epoch in range(a.epochs) for k, part in enumerate(parts)]
        metrics = means(results) | found
        if a.kl != "none" and a.kl_target is not None:
            metrics["train/kl_coef"] = self.coefficient.value
            count = ranks.total([float(len(layout.rollouts))], layout.device)[0]
            self.coefficient = self.coefficient.after(metrics.get("loss/kl", float("nan")), int(count))
        return metrics, experience

    @property
    def skips_no_signal(self) -> bool:
        """Whether rollouts without an advantage are not computed: nothing else but the advantage may give them a gradient."""
        a = self.config.algo
        kl = a.kl == "reward" or (a.kl == "loss" and a.kl_coef)
        needed = kl or a.whiten or self.selects or a.entropy_coef or a.correction != "none" or a.advantage not in ADVANTAGES
        return self.config.train.skip_no_signal and not needed

    @property
    def skips_equal_rewards(self) -> bool:
        """Whether a group is not computed if all of its rollouts scored the same: it is then without an advantage."""
        a = self.config.algo
        return self.skips_no_signal and a.advantage in GROUP_RELATIVE and not a.overlong_buffer

    # Before the updates

    def _experience(self, layout: Layout, rewards: Tensor) -> tuple[Experience, list[Part], dict[str, float]]:
        """Advantages of all tokens, what each update computes, and the log-probabilities and values that the updates compare with.

        All passes read the rows of the updates: in low precision, what a token is packed with changes its numbers.
        """
        a, found = self.config.algo, {}
        batch = Batch(
            rewards=rewards.to(layout.device), groups=layout.groups, rollout=layout.rollout, kl_coef=self.coefficient.value, gamma=a.gamma, lam=a.lam)  # fmt: skip
        credit = assign(a.advantage, batch, whitened=False, total=self._total) if self.skips_no_signal else None  # of rewards alone
        parts = self._parts(layout, None if credit is None else credit.advantages)
        everything = a.kl == "reward" or a.epochs > 1 or self.selects is not None or not self.config.trainer.skip_old_pass
        old = self._pass(layout, parts if everything else parts[1:], self._logprobs)  # the first update's own ratio is 1
        kl = None
        if a.kl == "reward" and self.coefficient.value:
            kl = ESTIMATORS[a.kl_estimator](old, self._pass(layout, parts, self._reference_logprobs))
            found["loss/kl"] = self._mean(kl)
        values = self._pass(layout, parts, self._values) if self.critic is not None else None
        if credit is None:
            credit = assign(a.advantage, replace(batch, kl=kl, values=values), whitened=a.whiten, total=self._total)
        if values is not None:
            explained = explained_variance(values, credit.returns, self._total)
            found |= {"critic/value_mean": self._mean(values)} | ({} if explained is None else {"critic/explained_variance": explained})
        return Experience(layout=layout, advantages=credit.advantages, old_logp=old, values=values, returns=credit.returns), parts, found

    def _parts(self, layout: Layout, advantages: Tensor | None) -> list[Part]:
        """The rows of each mini-batch. `advantages` [M]: rollouts without any are left out; None: all are computed."""
        t, keep = self.config.trainer, None
        if advantages is not None:
            keep = (torch.zeros(len(layout.rollouts), device=layout.device).index_add(0, layout.rollout, advantages.abs()) > 0).tolist()
        return [
            layout.part(indices, row_tokens=t.row_tokens, share_prompt=t.share_prompt, keep=None if keep is None else [keep[i] for i in indices])
            for indices in mini_batches((layout.numbers // asked_of_each(self.config)).tolist(), self.config.algo.updates)
        ]

    @torch.no_grad()
    def _pass(self, layout: Layout, parts: Sequence[Part], of_row: Callable[[Row], Tensor]) -> Tensor:
        """[M of the layout] what `of_row` gives for the trained tokens in the parts' rows, NaN elsewhere."""
        torch.clear_autocast_cache()  # it may hold low-precision copies of the weights from before the last update
        out = torch.full((len(layout.rollout),), float("nan"), device=layout.device)
        rows = [(part.of(row), row) for part in parts for row in part.rows]
        count = int(ranks.largest(float(len(rows)), layout.device))  # sharded weights are gathered by all processes together
        for at, row in rows:
            out[at] = of_row(row)
        for _ in range(count - len(rows)):
            of_row(_filler_row(layout.device))
        return out

    # One update

    def _update(self, e: Experience, part: Part, name: tuple[int, int, int], optimise: Step) -> dict[str, float]:
        a, layout = self.config.algo, e.layout
        self.part = part
        tokens, rollouts = ranks.total([float(part.lengths.sum()), float(len(part.indices))], layout.device)
        if not rollouts:  # a step would be one of momentum and weight decay alone, and count in the warm-up
            return {}
        weights = torch.zeros(len(layout.rollouts), device=layout.device)
        weights[part.indices] = AGGREGATES[a.aggregate](
            part.lengths, total_tokens=int(tokens), total_rollouts=int(rollouts),
            constant_length=a.constant_length or self.config.rollout.max_response_tokens)  # fmt: skip
        share = 1 / max(tokens, 1.0)
        selected = self._selected(e, part, name) if self.selects else None

        def losses() -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
            for row in part.rows:
                at = part.of(row)
                yield self._row(row, Tokens(
                    logp=row.sampled_logp, old_logp=e.old_logp[at], advantages=e.advantages[at], weights=weights[layout.rollout[at]],
                    rollout=row.rollout, share=share, sampler_logp=row.sampled_logp, selected=None if selected is None else selected[at],
                ), e.values[at] if e.values is not None else None, e.returns[at] if e.returns is not None else None)  # fmt: skip
            while True:  # for a process that has fewer rows than another
                row = _filler_row(layout.device)
                one = torch.zeros(1, device=layout.device)
                filler = Tokens(logp=one, old_logp=one * float("nan"), advantages=one, weights=one, rollout=row.rollout, share=0.0, sampler_logp=one,
                                selected=None if selected is None else one.bool())  # fmt: skip
                yield self._row(row, filler, one, one)

        return _normalised(optimise(losses(), len(part.rows)))

    def _selected(self, e: Experience, part: Part, name: tuple[int, int, int]) -> Tensor:
        """[M of the layout] bool: the tokens of the mini-batch that a covariance rule acts on, by one threshold over all processes."""
        _, epoch, k = name
        layout, at = e.layout, part.tokens()
        now = e.old_logp if epoch == k == 0 else self._pass(layout, [part], self._logprobs)
        tokens = Tokens(
            logp=now[at], old_logp=e.old_logp[at], advantages=e.advantages[at], weights=torch.zeros_like(now[at]), rollout=layout.rollout[at], share=0.0)  # fmt: skip
        selected = torch.zeros(len(layout.rollout), dtype=torch.bool, device=layout.device)
        keys = token_keys(layout.numbers, layout.rollout)[at]
        seed = seed_for(self.config.seed, "selection", *name)
        selected[at] = self.selects(self.objective, tokens, keys, seed=seed, total=self._total, gather=self._gather)
        return selected

    def _row(self, *row: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return self.scope(lambda: self._loss(*row))

    def _loss(self, row: Row, t: Tokens, old_values: Tensor | None, returns: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of one row, with gradient, and metrics that add up."""
        a = self.config.algo
        hidden = row_hidden(self.policy.get_decoder(), row)
        logp, entropy = self._head(self.policy, hidden, row, entropy_gradient=bool(a.entropy_coef))
        old = torch.where(t.old_logp.isnan(), logp.detach(), t.old_logp)
        reference = self._reference_logprobs(row) if a.kl == "loss" and self.objective.kl_coef else None
        loss, metrics = policy_loss(self.objective, replace(t, logp=logp, old_logp=old, entropy=entropy, reference=reference))
        if self.critic is not None:
            values = self.critic(hidden, row)
            of_critic, more = value_loss(values, old_values, returns, torch.full_like(values, t.share), clip=a.critic.value_clip)
            loss, metrics = loss + (a.critic.coef if a.critic.shared else 1.0) * of_critic, metrics | more
        gap = old - row.sampled_logp  # NaN where the sampler gave none (mask=none trains engine tokens too)
        known = t.share * ~gap.isnan()
        gap = gap.nan_to_num()
        ratio = gap.clamp(max=LOG_RATIO_LIMIT).exp()
        outside = (ratio < 1 - a.clip_low) | (ratio > 1 + a.clip_high)
        return loss, metrics | {
            "sum/weight": torch.tensor(t.share * len(logp)),
            "sum/entropy": (t.share * entropy.detach()).sum(),
            "sum/known": known.sum(),
            "sum/mismatch/k1": (-known * gap).sum(),
            "sum/mismatch/k3": (known * ESTIMATORS["k3"](-gap, torch.zeros_like(gap))).sum(),
            "sum/mismatch/mean_abs": (known * gap.abs()).sum(),
            "sum/mismatch/frac_outside": (known * outside).sum(),
            "sum/tokens": torch.tensor(float(len(logp) if t.share else 0)),
            "sum/inputs": torch.tensor(len(row.ids)),
        }

    # Forward passes of a row, [M]

    def _head(self, model: PreTrainedModel, hidden: Tensor, row: Row, **options: bool) -> tuple[Tensor, Tensor]:
        return token_logprobs(
            hidden, model.get_output_embeddings(), row.target, temperature=self.config.rollout.temperature,
            chunk=self.config.trainer.logprob_chunk, **options)  # fmt: skip

    def _of(self, model: PreTrainedModel, row: Row) -> Tensor:
        return self._head(model, row_hidden(model.get_decoder(), row), row)[0]

    def _logprobs(self, row: Row) -> Tensor:
        return self.scope(lambda: self._of(self.policy, row))

    @torch.no_grad()
    def _reference_logprobs(self, row: Row) -> Tensor:
        if hasattr(self.policy, "peft_config"):  # adapters switched off are the reference
            with self.policy.disable_adapter():
                return self._of(self.policy, row)
        return self.reference_scope(lambda: self._of(self.reference, row))

    def _values(self, row: Row) -> Tensor:
        def values() -> Tensor:
            hidden = row_hidden(self.policy.get_decoder(), row) if self.critic.trunk is None else None
            return self.critic(hidden, row)

        return self.scope(values)

    # Over processes

    @staticmethod
    def _total(values: Tensor) -> Tensor:
        return torch.tensor(ranks.total(values.tolist(), values.device), dtype=values.dtype, device=values.device)

    @staticmethod
    def _gather(values: Tensor) -> Tensor:
        return torch.cat([part.to(values.device) for part in ranks.gathered([values.cpu()])])  # a GPU's tensor would be opened on that GPU by all

    def _mean(self, values: Tensor) -> float:
        total, count = ranks.total([float(values.double().sum()), float(len(values))], values.device)
        return total / max(count, 1.0)


def _normalised(sums: dict[str, Any]) -> dict[str, float]:
    """Metrics over the trained tokens that were computed; absent where there are none."""
    found = {name: value for name, value in sums.items() if not name.startswith("sum/")}
    if weight := sums.get("sum/weight", 0.0):
        found["train/entropy"] = sums["sum/entropy"] / weight
    if known := sums.get("sum/known", 0.0):
        found |= {name.removeprefix("sum/"): value / known for name, value in sums.items() if name.startswith("sum/mismatch/")}
    return found | {"train/trained_tokens": sums.get("sum/tokens", 0.0), "train/input_tokens": sums.get("sum/inputs", 0.0)}


def _filler_row(device: torch.device) -> Row:
    """A row of two tokens."""
    one = torch.zeros(1, dtype=torch.long, device=device)
    two = torch.zeros(2, dtype=torch.long, device=device)
    return Row(
        ids=two, positions=torch.arange(2, device=device), group=two, segment=two, source=one, target=one, rollout=one, place=one,
        sampled_logp=one.float())  # fmt: skip
