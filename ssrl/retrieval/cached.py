"""A retriever that asks another one only what nobody has asked before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from ssrl.calls.cache import Cache
from ssrl.types import Document, Retriever, SearchResult, SearchStatus


class CachedRetriever:
    """`inner` behind `cache`, keyed by (identity of `inner`, query, topk). Failures are not kept; an equal query in one batch is asked once."""

    def __init__(self, inner: Retriever, cache: Cache) -> None:
        self._inner = inner
        self._cache = cache
        self.hint = inner.hint

    @property
    def identity(self) -> str:
        return self._inner.identity

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        """One result a query, in order; those that needed no call have `cached` set."""
        found = {query: self._stored(query, topk) for query in queries}
        missing = [query for query, result in found.items() if result is None]
        if missing:
            fresh = dict(zip(missing, self._inner.retrieve(missing, topk), strict=True))
            for query, result in fresh.items():
                if not result.status.failed:
                    self._cache.put(self._key(query, topk), [asdict(document) for document in result.documents])
            found |= fresh
        results = []
        for query in queries:
            results.append(found[query])
            if not found[query].status.failed:
                found[query] = replace(found[query], cached=True)  # what a further equal query of the batch gets
        return results

    def _key(self, query: str, topk: int) -> dict[str, object]:
        return {"retriever": self.identity, "query": query, "topk": topk}

    def _stored(self, query: str, topk: int) -> SearchResult | None:
        start = time.monotonic()
        value = self._cache.get(self._key(query, topk))
        if value is None:
            return None
        documents = tuple(Document(**document) for document in value)
        status = SearchStatus.OK if documents else SearchStatus.EMPTY
        return SearchResult(status=status, documents=documents, latency_s=time.monotonic() - start, cached=True)
