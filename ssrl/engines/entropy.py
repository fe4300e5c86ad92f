"""Entropy-guided search: a retriever answers where the policy is less sure of its query than it was of the ones before. [FACTS 1.8]

The published signal is the mean of -p·log2 p over the query's sampled tokens. It is no entropy: it vanishes for p near 0 as for p near 1.
It keeps its own name, `plog2p`; `entropy` is what the name says. A first query is always answered. What is compared comes from the call
alone, so nothing is kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from ssrl.engines.answering import Watch
from ssrl.engines.documents import Wrapper
from ssrl.engines.real import FullReal
from ssrl.errors import UserError
from ssrl.types import Retriever, SearchCall, SearchResult, Uncertainty


def mean_entropy(query: Uncertainty) -> float:
    """Nats: the mean entropy of the distributions from which the query's tokens were drawn, of the kind that was asked for."""
    return fmean(query.entropies)


def surprisal(query: Uncertainty) -> float:
    """Nats: the mean of -log p of the sampled tokens."""
    return -fmean(query.logprobs)


def plog2p(query: Uncertainty) -> float:
    """Bits: the published mean of -p·log2 p of the sampled tokens."""
    return fmean(-math.exp(logprob) * logprob / math.log(2) for logprob in query.logprobs)


SIGNALS: dict[str, Callable[[Uncertainty], float]] = {
    "entropy": mean_entropy,
    "topk_entropy": mean_entropy,
    "surprisal": surprisal,
    "plog2p": plog2p,
}


def rises(signals: Sequence[float], window: int, threshold: float) -> bool:
    """Whether the last signal exceeds the mean of up to `window` before it by more than the threshold; the first always does."""
    *before, current = signals
    return not before or current - fmean(before[-window:]) > threshold


class EntropyGuided(FullReal):
    """Answers the first query of a rollout, and later ones whose signal rises; declines the others. `max_turns` counts the queries asked."""

    name = "entropy"
    may_decline = True

    def __init__(
        self, retriever: Retriever, health: Watch, wrapper: Wrapper, *, signal: str = "entropy", signal_topk: int = 20, window: int = 1,
        threshold: float = 0.0, topk: int = 3, documents: str = "all", max_turns: int = 4, retry_message: str = "",
    ) -> None:  # fmt: skip
        super().__init__(retriever, health, wrapper, topk=topk, documents=documents, max_turns=max_turns, retry_message=retry_message)
        if signal not in SIGNALS:
            raise UserError(f"engine.signal={signal} is unknown; choose one of {', '.join(SIGNALS)}.")
        if window < 1:
            raise UserError(f"engine.window={window} must be at least 1.")
        self.signal, self.window, self.threshold = signal, window, threshold
        self.entropy = {"entropy": 0, "topk_entropy": signal_topk}.get(signal)

    @property
    def identity(self) -> dict[str, str]:
        return super().identity | {"signal": self.signal, "window": str(self.window), "threshold": f"{self.threshold:g}"}

    def search(self, calls: Sequence[SearchCall]) -> list[SearchResult | None]:
        uncertain = [self._uncertain(call) for call in calls]
        results = iter(self._ask([call for call, asked in zip(calls, uncertain, strict=True) if asked]))
        return [next(results) if asked else None for asked in uncertain]

    def _uncertain(self, call: SearchCall) -> bool:
        measured = [SIGNALS[self.signal](query) for query in call.queries if query.logprobs]  # an empty search has no tokens
        return rises(measured, self.window, self.threshold)
