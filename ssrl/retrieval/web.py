"""The web as three services see it: Google through Serper (used by SSRL) or SerpApi (used by ZeroSearch), and a SearxNG of one's own.

Documents are the titles and snippets of the organic results, so that the services are comparable; pages are not fetched. [FACTS 1.7, 2.5]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ssrl.calls.caller import Caller, CallFailed
from ssrl.calls.http import Http
from ssrl.calls.keys import key_from
from ssrl.calls.urls import Urls
from ssrl.retrieval.results import results_of
from ssrl.types import Document, SearchResult, SearchStatus

_QUERY_CHARS = 1000  # the services refuse longer ones; a policy may write anything


class Serper:
    """Google through Serper.dev. The key is read from SERPER_API_KEY.

    Raises:
        UserError: there is no key; it says what to export.
    """

    def __init__(self, caller: Caller, http: Http | None = None, url: str = "https://google.serper.dev/search") -> None:
        self._headers = {"X-API-KEY": key_from("SERPER_API_KEY", where="https://serper.dev")}
        self._caller = caller
        self._http = http or Http()
        self._url = url
        self.identity = "serper google"
        self.hint = "check the account at https://serper.dev and type: export SERPER_API_KEY=…"

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        return one_call_each(self._caller, self._ask, queries, topk)

    def _ask(self, query: str, topk: int, left_s: float) -> tuple[Document, ...]:
        answer = self._http.post(self._url, {"q": query, "num": topk}, timeout_s=left_s, headers=self._headers)
        return documents_of("Serper", answer, "organic", topk, text="snippet", address="link")


class SerpApi:
    """Google through SerpApi.com. The key is read from SERPAPI_API_KEY.

    Raises:
        UserError: there is no key; it says what to export.
    """

    def __init__(self, caller: Caller, http: Http | None = None, url: str = "https://serpapi.com/search.json") -> None:
        self._key = key_from("SERPAPI_API_KEY", where="https://serpapi.com")
        self._caller = caller
        self._http = http or Http()
        self._url = url
        self.identity = "serpapi google"
        self.hint = "check the account at https://serpapi.com and type: export SERPAPI_API_KEY=…"

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        return one_call_each(self._caller, self._ask, queries, topk)

    def _ask(self, query: str, topk: int, left_s: float) -> tuple[Document, ...]:
        params = {"engine": "google", "q": query, "num": topk, "api_key": self._key}
        answer = self._http.get(self._url, params=params, timeout_s=left_s)
        problem = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(problem, str) and "organic_results" not in answer:
            if "hasn't returned any results" in problem:  # what an empty page is called here
                return ()
            raise CallFailed(f"SerpApi answered: {problem.replace(self._key, '<secret>')[:200]}")
        return documents_of("SerpApi", answer, "organic_results", topk, text="snippet", address="link")


class SearxNG:
    """Any search engines through one's own SearxNG servers, whose settings must allow the format json. No key."""

    def __init__(self, urls: Sequence[str], caller: Caller, http: Http | None = None) -> None:
        bases = [url.strip().rstrip("/").removesuffix("/search") for url in urls]
        self._urls = Urls(bases, key="retriever.urls", example="http://127.0.0.1:8080")
        self._caller = caller
        self._http = http or Http()
        self.identity = f"searxng {self._urls.identity}"
        self.hint = "docker run -p 8080:8080 searxng/searxng, with `json` under search.formats in its settings.yml"

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        return one_call_each(self._caller, self._ask, queries, topk)

    def _ask(self, query: str, topk: int, left_s: float) -> tuple[Document, ...]:
        params = {"q": query, "format": "json"}
        answer = self._urls.ask(lambda url: self._http.get(f"{url}/search", params=params, timeout_s=left_s))
        return documents_of("SearxNG", answer, "results", topk, text="content", address="url")


Ask = Callable[[str, int, float], tuple[Document, ...]]  # query, topk, seconds left


def one_call_each(caller: Caller, ask: Ask, queries: Sequence[str], topk: int) -> list[SearchResult]:
    """One result a query, in order. A blank query, which every service refuses, finds nothing and is not sent; a very long one is cut."""

    def attempt_of(query: str) -> Callable[[float], list[tuple[Document, ...]]]:
        return lambda left_s: [ask(query, topk, left_s)]

    cleaned = [query.encode("utf-8", "replace").decode().strip()[:_QUERY_CHARS] for query in queries]
    outcomes = iter(caller.run([attempt_of(query) for query in cleaned if query]))
    return [results_of(next(outcomes), 1)[0] if query else SearchResult(status=SearchStatus.EMPTY) for query in cleaned]


def documents_of(service: str, answer: Any, field: str, topk: int, *, text: str, address: str) -> tuple[Document, ...]:
    """The first `topk` entries of `answer[field]` that have a text or a title; no such field: none were found."""
    entries = answer.get(field, []) if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CallFailed(f"{service} answered something other than an object with a list `{field}`")
    documents = (
        Document(title=_string(entry.get("title")), text=_string(entry.get(text)), id=_string(entry.get(address))) for entry in entries
    )
    return tuple(document for document in documents if document.title or document.text)[:topk]


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
