"""A language model behind any server with the OpenAI chat API: vLLM, SGLang, llama.cpp, a hosted one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from ssrl.calls.cache import Cache
from ssrl.calls.caller import Caller, CallFailed, Outcome
from ssrl.calls.http import Http
from ssrl.calls.keys import key_from
from ssrl.calls.urls import Urls
from ssrl.types import ChatReply, ChatRequest, SearchStatus

_SEEDS = 2**31  # servers in C or JavaScript misread larger ones


class OpenAIChat:
    """The chat protocol over `POST {url}/chat/completions`, one call a request, each with its own seed.

    `urls` are base URLs that end in /v1 and serve the same `model`; they share the load. A key, where the servers want one, is read
    from OPENAI_API_KEY. With a `cache`, a request of equal text and seed is answered once.
    """

    def __init__(
        self, urls: Sequence[str], model: str, temperature: float, max_tokens: int, caller: Caller,
        cache: Cache | None = None, http: Http | None = None,
    ) -> None:  # fmt: skip
        urls = [url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1" for url in urls]
        self._urls = Urls(urls, key="simulator.urls", example="http://127.0.0.1:6001/v1")
        self._settings = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._caller = caller
        self._cache = cache
        self._http = http or Http()
        key = key_from("OPENAI_API_KEY")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.identity = f"openai {model} temperature={temperature:g} max_tokens={max_tokens}"
        self.hint = f"vllm serve {shlex.quote(model)} --port {urlsplit(self._urls.all[0]).port or 6001}"

    def reply(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply a request, in order. Failures are replies."""
        replies = [self._cached(request) for request in requests]
        open_ones = [index for index, reply in enumerate(replies) if reply is None]
        outcomes = self._caller.run([self._attempt(requests[index]) for index in open_ones])
        for index, outcome in zip(open_ones, outcomes, strict=True):
            replies[index] = _reply(outcome)
            if self._cache and not outcome.status.failed:
                self._cache.put(self._key(requests[index]), outcome.value)
        return replies

    def _cached(self, request: ChatRequest) -> ChatReply | None:
        text = self._cache.get(self._key(request)) if self._cache else None
        return None if text is None else ChatReply(status=_status(text), text=text, cached=True)

    def _key(self, request: ChatRequest) -> dict[str, object]:
        return {"chat": self.identity, "text": request.text, "seed": request.seed}

    def _attempt(self, request: ChatRequest) -> Callable[[float], str]:
        # an empty system message, as published: without one some templates put in their own [FACTS 2.2]
        messages = [{"role": "system", "content": ""}, {"role": "user", "content": request.text}]
        body = {**self._settings, "messages": messages, "seed": request.seed % _SEEDS}

        def attempt(left_s: float) -> str:
            return self._urls.ask(
                lambda url: _content(self._http.post(f"{url}/chat/completions", body, timeout_s=left_s, headers=self._headers))
            )

        return attempt


def _content(answer: Any) -> str:
    """The text of the first choice."""
    try:
        content = answer["choices"][0]["message"]["content"]
    except (TypeError, KeyError, IndexError):
        raise CallFailed("the chat server's answer holds no choices[0].message.content, as the OpenAI chat API has it") from None
    if content is None:  # nothing before the end token, or only what a server counts as reasoning
        return ""
    if not isinstance(content, str):
        raise CallFailed(f"the chat server's message content is a {type(content).__name__}, expected a string")
    return content


def _status(text: str) -> SearchStatus:
    return SearchStatus.OK if text.strip() else SearchStatus.EMPTY


def _reply(outcome: Outcome[str]) -> ChatReply:
    if outcome.value is None:
        return ChatReply(status=outcome.status, latency_s=outcome.latency_s, error=outcome.error)
    return ChatReply(status=_status(outcome.value), text=outcome.value, latency_s=outcome.latency_s)
