"""The retrieval server: the Search-R1 API (FACTS 3.4) over any retriever.

    POST /retrieve  {"queries": ["…", …], "topk": int or null, "return_scores": bool}
    with scores     {"result": [[{"document": {"id": "…", "contents": "…"}, "score": 1.5}, …], …]}
    without         {"result": [[{"id": "…", "contents": "…"}, …], …]}
    GET /health     {"status": "ok", "retriever": identity, …}

`result` has one list a query, in order; `contents` is the title in quotes, a newline and the text. `topk` may be missing or null (the
default), `return_scores` too (false), and every combination works. Other keys are ignored. An error is {"detail": "one sentence"}:
400 no JSON, 413 body too large, 422 wrong values, 502 the retriever failed, 504 it took too long. A failure is never an empty list.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from starlette.requests import ClientDisconnect

from ssrl.retrieval.batcher import Batcher
from ssrl.retrieval.corpus import titled
from ssrl.types import Document, Retriever, SearchResult, SearchStatus

T = TypeVar("T")
MAX_QUERY_CHARS = 4096  # a runaway query of a policy is cut, not refused: it must not fail the others of its request
KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", int: "a number", float: "a number", type(None): "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one request may ask for."""

    max_queries: int
    max_body_kb: int
    max_topk: int
    default_topk: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is in order."""

    queries: tuple[str, ...]
    topk: int
    return_scores: bool


def make_app(retriever: Retriever, *, max_queries: int, max_body_kb: int, max_topk: int, default_topk: int = 3) -> FastAPI:
    """The application; give it to `ssrl.retrieval.listen.serve`, or to any ASGI server that bounds slow clients itself."""
    bounds = Bounds(max_queries=max_queries, max_body_kb=max_body_kb, max_topk=max_topk, default_topk=min(default_topk, max_topk))
    batcher = Batcher(retriever)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()

    app = FastAPI(title="SSRL retrieval", openapi_url=None, lifespan=lifespan)  # without the pages that load scripts from elsewhere

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {
            "status": "ok", "retriever": retriever.identity, "default_topk": bounds.default_topk,
            "max_topk": bounds.max_topk, "max_queries": bounds.max_queries}  # fmt: skip

    @app.post("/retrieve")
    async def retrieve(request: Request) -> Response:
        try:
            asked = parse(await read_body(request, bounds.max_body_kb), bounds)
            answer = asyncio.wrap_future(batcher.submit(asked.queries, asked.topk)) if asked.queries else None
            results = await unless_gone(request, answer) if answer else []
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        check(results)
        return Response(json.dumps({"result": [render(result.documents, asked.return_scores) for result in results]}), media_type="application/json")

    return app


async def read_body(request: Request, most_kb: int) -> bytes:
    """The body, counted as it comes, whatever its headers say about its length.

    Raises:
        HTTPException: 413, as soon as it is larger than `most_kb`.
        ClientDisconnect: the client went away before it was complete.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_kb * 1024:
            raise HTTPException(413, f"the request is larger than {most_kb} KB; send fewer queries at a time")
    return bytes(body)


def parse(body: bytes, bounds: Bounds) -> Asked:
    """The request in a body.

    Raises:
        HTTPException: 400 or 422, with one sentence on the first thing that is wrong.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, 'the body is not JSON; send {"queries": ["…"], "topk": 3, "return_scores": true}') from None
    if not isinstance(asked, dict):
        raise HTTPException(422, f'the body is {KINDS[type(asked)]}; it must be an object such as {{"queries": ["…"]}}')
    queries, topk, return_scores = asked.get("queries"), asked.get("topk"), asked.get("return_scores")
    if not isinstance(queries, list):
        raise HTTPException(422, f'"queries" is {KINDS[type(queries)] if "queries" in asked else "missing"}; it must be a list of strings')
    for i, query in enumerate(queries):
        if not isinstance(query, str):
            raise HTTPException(422, f'"queries" holds {KINDS[type(query)]} at place {i}; it must be a list of strings')
    if len(queries) > bounds.max_queries:
        raise HTTPException(422, f"{len(queries)} queries are too many; send at most {bounds.max_queries} in one request")
    if topk is None:
        topk = bounds.default_topk
    if type(topk) is not int or not 1 <= topk <= bounds.max_topk:
        raise HTTPException(422, f'"topk" is {shown(topk)}; it must be a whole number from 1 to {bounds.max_topk}, or null for {bounds.default_topk}')
    if not isinstance(return_scores, bool | None):
        raise HTTPException(422, f'"return_scores" is {shown(return_scores)}; it must be true or false')
    return Asked(tuple(map(clean, queries)), topk, bool(return_scores))


def shown(value: Any) -> str:
    """A wrong value, short enough for a sentence."""
    text = json.dumps(value) if not isinstance(value, dict | list) else KINDS[type(value)]
    return text if len(text) <= 40 else f"{text[:40]}…"


def clean(query: str) -> str:
    """The query, cut to `MAX_QUERY_CHARS`, with what is no character (half of a surrogate pair) replaced by a question mark."""
    return query[:MAX_QUERY_CHARS].encode("utf-8", "replace").decode()


async def unless_gone(request: Request, answer: asyncio.Future[T]) -> T:
    """The answer; given up when the client goes, so that a client which tries again and again does not pile up work.

    Raises:
        ClientDisconnect: it is gone.
    """
    gone = asyncio.ensure_future(disconnected(request))
    await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not answer.done():
        answer.cancel()
        raise ClientDisconnect
    return answer.result()


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def check(results: Sequence[SearchResult]) -> None:
    """Refuse to answer when a query failed.

    Raises:
        HTTPException: 504 where all failures are timeouts, else 502.
    """
    failed = [result for result in results if result.status.failed]
    if failed:
        late = all(result.status is SearchStatus.TIMEOUT for result in failed)
        reason = failed[0].error or ("it took too long" if late else "no reason given")
        raise HTTPException(504 if late else 502, f"the retriever failed for {len(failed)} of {len(results)} queries: {reason}")


def render(documents: Sequence[Document], scores: bool) -> list[dict[str, Any]]:
    """The documents of one query as the API has them. A score that is missing or not finite is null, which JSON can say."""
    plain = [{"id": document.id, "contents": titled(document)} for document in documents]
    if not scores:
        return plain
    finite = [d.score if d.score is not None and math.isfinite(d.score) else None for d in documents]
    return [{"document": document, "score": score} for document, score in zip(plain, finite, strict=True)]
