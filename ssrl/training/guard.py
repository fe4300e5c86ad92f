"""Watching for collapse: what is seen is said, and where configured the run stops or goes back to its best checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import lightning as L

from ssrl.config import GuardConfig
from ssrl.training.files import read_weights
from ssrl.training.module import SearchRL

_BASELINE = 3  # training steps whose mean the later ones are compared with


class Watch:
    """Sentences about what has gone wrong. Each trouble is told once, and again only after it had passed."""

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self.state: dict[str, Any] = {"best": 0.0, "low": 0, "first": [], "told": []}  # best: of the rewards above 0

    def validated(self, reward: float) -> str | None:
        """After a validation; `reward`: the mean over its sets."""
        c, s = self.config, self.state
        s["best"] = max(s["best"], reward)
        s["low"] = s["low"] + 1 if s["best"] > 0 and reward < c.reward_frac * s["best"] else 0
        return self._once(
            "reward", s["low"] >= c.patience,
            f"validation reward was below {c.reward_frac:g} of its best, {s['best']:.3f}, {s['low']} times in a row (now {reward:.3f})")  # fmt: skip

    def trained(self, metrics: Mapping[str, float]) -> list[str]:
        """After a training step."""
        c, first = self.config, self.state["first"]
        now = {name: metrics.get(f"train/{name}") for name in ("entropy", "response_tokens", "searches")}
        if len(first) < _BASELINE:
            first.append(now)
            return []
        found = []
        for name, words in (("entropy", "entropy"), ("response_tokens", "response length"), ("searches", "searches per rollout")):
            known = [row[name] for row in first if row[name] is not None]
            if not known or now[name] is None:
                continue
            before = fmean(known)
            if name == "searches":
                bad, verb = before >= 0.5 and now[name] < c.searches_frac * before, "fell"
            else:
                factor = c.entropy_factor if name == "entropy" else c.length_factor
                bad, verb = now[name] > factor * before, "rose"
            found.append(self._once(name, bad, f"{words} {verb} from {before:.3g} in the first steps to {now[name]:.3g}"))
        return [sentence for sentence in found if sentence]

    def sampled(self, metrics: Mapping[str, float]) -> str | None:
        """After a training step, about who sampled for it."""
        gap = metrics.get("mismatch/mean_abs", 0.0)
        return self._once(
            "mismatch", gap > self.config.mismatch,
            f"log-probabilities of sampler and update differ by {gap:.3g} on average (mismatch/mean_abs): "
            "the sampler has other weights, or computes them otherwise")  # fmt: skip

    def _once(self, name: str, bad: bool, sentence: str) -> str | None:
        told = self.state["told"]
        if not bad:
            if name in told:
                told.remove(name)
            return None
        if name in told:
            return None
        told.append(name)
        return sentence


class Guard(L.Callback):
    """Looks at every training step and validation. It must come behind the validator and before what saves checkpoints."""

    def __init__(self, config: GuardConfig, best: Path, announce: Callable[[str], None]) -> None:
        self.action, self.best, self.announce = config.action, best, announce
        self.watch = Watch(config)

    def on_train_batch_end(self, trainer: L.Trainer, module: SearchRL, *_: Any) -> None:
        found = self.watch.trained(module.last.metrics)
        if module.validated is not None and module.validated[0] == module.steps_done:
            low = self.watch.validated(module.validated[1])
            found += [low] if low else []
        for sentence in found:
            self._act(sentence, trainer, module)
        if told := self.watch.sampled(module.last.metrics):
            self._act(told, trainer, module, curable=False)

    def _act(self, sentence: str, trainer: L.Trainer, module: SearchRL, *, curable: bool = True) -> None:
        """`curable`: earlier weights would help."""
        said = f"guard: step {module.steps_done}: {sentence}"
        if self.action == "stop":
            self.announce(f"{said}; the run stops (guard.action=stop), its best checkpoint is kept")
            trainer.should_stop = True
        elif self.action == "rollback" and curable and self.best.exists():
            module.restore(read_weights(self.best))
            self.announce(f"{said}; back to the best checkpoint, of step {module.best[1]} (guard.action=rollback)")
        else:
            self.announce(f"{said} (guard.action=stop{' or rollback' if curable else ''} would act)")

    def state_dict(self) -> dict[str, Any]:
        return self.watch.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.watch.state = state
