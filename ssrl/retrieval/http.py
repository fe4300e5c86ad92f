"""A client of retrieval servers with the Search-R1 API: `python -m ssrl task=serve`, Search-R1's own, verl's. [FACTS 3.4]"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from ssrl.calls.caller import Caller, CallFailed
from ssrl.calls.http import Http
from ssrl.calls.urls import Urls, shown
from ssrl.errors import UserError
from ssrl.retrieval.results import results_of
from ssrl.types import Document, SearchResult

_HEALTH_S = 5.0
_QUERY_CHARS = 4096  # a runaway query is cut: it must not make the body too large and so fail the others of its batch


class HttpRetriever:
    """Documents from `POST {url}/retrieve`. Several `urls` hold the same index and share the load; `batch` queries make one call."""

    def __init__(self, urls: Sequence[str], caller: Caller, http: Http | None = None, batch: int = 32) -> None:
        bases = [url.strip().rstrip("/").removesuffix("/retrieve") for url in urls]
        self._urls = Urls(bases, key="retriever.urls", example="http://127.0.0.1:8000")
        self._caller = caller
        self._http = http or Http()
        self._batch = batch
        self.hint = "python -m ssrl task=serve retriever=bm25"

    @cached_property
    def identity(self) -> str:
        """The index that the servers name at /health, as `task=serve` does; their addresses where they do not. Asked once.

        Raises:
            UserError: they name different ones.
        """
        named = {shown(url): self._named(url) for url in self._urls.all}
        if len(set(named.values()) - {None}) > 1:
            raise UserError(f"the servers of retriever.urls hold different indexes ({named}); name only those of one index")
        index = next(iter(named.values()))
        return f"http {self._urls.identity if None in named.values() else index}"

    def _named(self, url: str) -> str | None:
        try:
            answer = self._http.get(f"{url}/health", timeout_s=_HEALTH_S)
        except CallFailed:
            return None
        index = answer.get("retriever") if isinstance(answer, dict) else None
        return index if isinstance(index, str) and index else None

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        """One result a query, in order; a failed call is the result of each of its queries."""
        batches = [list(queries[start : start + self._batch]) for start in range(0, len(queries), self._batch)]
        outcomes = self._caller.run([self._attempt(batch, topk) for batch in batches])
        return [result for batch, outcome in zip(batches, outcomes, strict=True) for result in results_of(outcome, len(batch))]

    def _attempt(self, queries: list[str], topk: int) -> Callable[[float], list[tuple[Document, ...]]]:
        body = {"queries": [query[:_QUERY_CHARS] for query in queries], "topk": topk, "return_scores": True}

        def attempt(left_s: float) -> list[tuple[Document, ...]]:
            answer = self._urls.ask(lambda url: self._http.post(f"{url}/retrieve", body, timeout_s=left_s))
            return documents_of(answer, len(queries), topk)

        return attempt


def documents_of(answer: Any, queries: int, topk: int) -> list[tuple[Document, ...]]:
    """The documents of each query in a server's answer, in either shape: with scores, or plain where the server ignored the wish.

    Raises:
        CallFailed: it has neither shape, or another number of results than queries.
    """
    rows = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) != queries or not all(isinstance(row, list) for row in rows):
        found = f"{len(rows)} results" if isinstance(rows, list) else f"a {type(answer).__name__} without a list `result`"
        raise CallFailed(f"the retrieval server answered {found} for {queries} queries, expected one list of documents a query")
    return [tuple(_document(item) for item in row[:topk]) for row in rows]


def _document(item: Any) -> Document:
    """{"document": {"id", "contents"}, "score"}, or {"id", "contents"} alone."""
    score = item.get("score") if isinstance(item, dict) else None
    plain = item["document"] if isinstance(item, dict) and isinstance(item.get("document"), dict) else item
    if not isinstance(plain, dict) or not isinstance(plain.get("contents"), str):
        raise CallFailed("the retrieval server answered a document without a string `contents`")
    title, text = split_contents(plain["contents"])
    known = isinstance(score, (int, float)) and not isinstance(score, bool) and abs(score) <= sys.float_info.max
    return Document(id=str(plain.get("id", "")), title=title, text=text, score=float(score) if known else None)


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of `contents`: the title in quotes, a newline, the text. A single line is text without a title."""
    title, newline, text = contents.partition("\n")
    if not newline:
        return "", contents
    title = title.strip()
    quoted = len(title) >= 2 and title[0] == title[-1] == '"'
    return title[1:-1] if quoted else title, text
