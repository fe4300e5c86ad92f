"""Engines that ask a retriever: always (full-real, FACTS 3.2), or for the first K searches of a rollout (Sim2Real, FACTS 1.7)."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from ssrl.engines.answering import Answering, Watch
from ssrl.engines.documents import Wrapper, keep, take_in
from ssrl.errors import UserError
from ssrl.types import Retriever, SearchCall, SearchResult

PROBE = "capital of France"


class FullReal(Answering):
    """Every search is answered, up to `max_turns`. Equal queries of a batch are asked once."""

    name = "fullreal"

    def __init__(
        self, retriever: Retriever, health: Watch, wrapper: Wrapper, *, topk: int = 3, documents: str = "all", max_turns: int = 4, retry_message: str = ""
    ) -> None:
        super().__init__(health, wrapper, max_turns=max_turns, retry_message=retry_message)
        self.retriever, self.topk, self.documents = retriever, topk, documents

    @property
    def identity(self) -> dict[str, str]:
        shown = {"style": self._wrapper.style, "clean": str(self._wrapper.clean).lower(), "documents": self.documents}
        return {"engine": self.name, "retriever": self.retriever.identity, "topk": str(self.topk), "max_turns": str(self.max_turns), **shown}

    def search(self, calls: Sequence[SearchCall]) -> list[SearchResult | None]:
        return list(self._ask(calls))

    def _ask(self, calls: Sequence[SearchCall]) -> list[SearchResult]:
        queries = list(dict.fromkeys(call.query for call in calls))
        if not queries:
            return []
        results = self.retriever.retrieve(queries, self.topk)
        self.health.note(result.status for result in results)
        first = {query: take_in(result) for query, result in zip(queries, results, strict=True)}
        repeated = {query: replace(result, cached=True, latency_s=0.0) for query, result in first.items()}
        # Sub-sampled last, by each call's own seed: neither a cache nor a repeated query gives two rollouts the same draw.
        return [keep(first.pop(call.query, repeated[call.query]), self.documents, call.seed) for call in calls]

    def ping(self) -> float:
        start = time.perf_counter()
        (result,) = self.retriever.retrieve([PROBE], 1)
        if result.status.failed:
            raise UserError(f"engine={self.name}: {self.retriever.identity} does not answer ({result.error or result.status}); {self.retriever.hint}")
        return time.perf_counter() - start


class Sim2Real(FullReal):
    """The first K searches of a rollout are answered; then the policy goes on by itself.

    Args:
        k: searches that are answered; None: all.
        count: what uses K up. `searches`: answered ones; `turns`: as published, also generations that ended in no action.
    """

    name = "sim2real"
    may_decline = True

    def __init__(
        self, retriever: Retriever, health: Watch, wrapper: Wrapper, *, k: int | None = 3, count: str = "searches", topk: int = 3,
        documents: str = "all", retry_message: str = "",
    ) -> None:  # fmt: skip
        turns = sys.maxsize if k is None else k
        super().__init__(retriever, health, wrapper, topk=topk, documents=documents, max_turns=turns, retry_message=retry_message)
        self.k, self.count = k, count
        self.count_invalid = count == "turns"

    @property
    def identity(self) -> dict[str, str]:
        k = "all" if self.k is None else str(self.k)
        return {name: value for name, value in super().identity.items() if name != "max_turns"} | {"k": k, "count": self.count}
