"""From the outcome of a call to the results of its queries."""

from __future__ import annotations

from ssrl.calls.caller import Outcome
from ssrl.types import Document, SearchResult, SearchStatus


def results_of(outcome: Outcome[list[tuple[Document, ...]]], queries: int) -> list[SearchResult]:
    """One result for each of the `queries` of one call: its documents, or the call's failure."""
    if outcome.value is None:
        return [SearchResult(status=outcome.status, latency_s=outcome.latency_s, error=outcome.error)] * queries
    return [
        SearchResult(status=SearchStatus.OK if documents else SearchStatus.EMPTY, documents=documents, latency_s=outcome.latency_s)
        for documents in outcome.value
    ]
