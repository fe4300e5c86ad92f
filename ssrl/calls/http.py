"""JSON over HTTP with a true deadline: whatever a server does, a request ends in time, in bounded memory, with JSON or one clean sentence."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

import httpx

from ssrl.calls.caller import CallFailed
from ssrl.calls.urls import shown
from ssrl.types import SearchStatus

_CONNECT_S = 5.0  # a host that swallows packets is given up early enough for a retry
_WORDS_BYTES = 65_536  # of an error's body
_WORDS_CHARS = 200  # of the server's words in an error
_RETRYABLE = {408, 429, *range(500, 600)}
_SECRET_PARAM = re.compile(r"key|token|secret|password|auth", re.IGNORECASE)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

for _logger in ("httpx", "httpcore.http11", "httpcore.http2"):  # they log addresses, query string and so keys included, and headers
    logging.getLogger(_logger).addFilter(lambda record: record.levelno >= logging.WARNING)


class Http:
    """A client for all threads of a process. `max_bytes`: largest answer.

    Requests run on an event loop of their own because only cancelling one bounds its whole time: a socket's timeout begins anew
    with every byte, and looking up a name has none.
    """

    def __init__(self, *, max_bytes: int = 16 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: dict[bool, httpx.AsyncClient] = {}

    def get(self, url: str, *, timeout_s: float, params: Mapping[str, str | int] | None = None, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON that `url` answers.

        Raises:
            CallFailed: it did not, in time and in bounds; retryable where that may pass (no connection, 408, 429, 5xx).
        """
        return self._ask("GET", url, None, params or {}, headers or {}, timeout_s)

    def post(self, url: str, body: Any, *, timeout_s: float, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON that `url` answers to the JSON `body`; fails as `get` does."""
        content = json.dumps(body, allow_nan=False).encode()
        return self._ask("POST", url, content, {}, {"Content-Type": "application/json", **(headers or {})}, timeout_s)

    def _ask(
        self, method: str, url: str, content: bytes | None, params: Mapping[str, str | int], headers: Mapping[str, str], timeout_s: float
    ) -> Any:
        name = f"{method} {shown(url)}"
        secrets = _secrets(url, params, headers)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}  # nothing to inflate beyond the bound
        running = asyncio.run_coroutine_threadsafe(self._send(method, url, content, params, headers, timeout_s), self._started())
        try:
            response, body, whole = running.result()
        except (TimeoutError, httpx.TimeoutException):
            raise CallFailed(f"{name} was not answered within {timeout_s:.3g} s", status=SearchStatus.TIMEOUT, retryable=True) from None
        except httpx.ConnectError as error:
            raise CallFailed(f"{name}: no connection ({_clean(str(error), secrets)})", retryable=True) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # `from None` everywhere: the library's words may quote a header
            passing = isinstance(error, (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError))
            words = _clean(str(error), secrets) or "connection lost"
            raise CallFailed(f"{name} broke off: {type(error).__name__}: {words}", retryable=passing) from None
        finally:
            running.cancel()  # where the waiting itself was interrupted
        if not response.is_success:
            raise _refusal(name, response, body, secrets)
        if not whole:
            raise CallFailed(f"{name} answered more than {self._max_bytes} bytes")
        return _parsed(name, body, secrets)

    async def _send(
        self, method: str, url: str, content: bytes | None, params: Mapping[str, str | int], headers: Mapping[str, str], timeout_s: float
    ) -> tuple[httpx.Response, bytes, bool]:
        """The response, its body up to the bound, and whether that is the whole of it."""
        client = self._client(url)
        async with asyncio.timeout(timeout_s):
            timeout = httpx.Timeout(None, connect=min(_CONNECT_S, max(timeout_s, 0)))
            request = {"content": content, "params": params or None, "headers": headers, "timeout": timeout}
            async with client.stream(method, url, **request) as response:
                bound = self._max_bytes if response.is_success else _WORDS_BYTES
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > bound:
                        return response, bytes(body[:bound]), False
                return response, bytes(body), True

    def _client(self, url: str) -> httpx.AsyncClient:
        """Loopback is never reached through a proxy of the environment; other hosts are, as `HTTP_PROXY` and `NO_PROXY` say."""
        proxied = not _is_loopback(url)
        if proxied not in self._clients:
            # connections are dropped before usual servers (5 s) drop them, which a request could meet half-way
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=2.0)
            self._clients[proxied] = httpx.AsyncClient(trust_env=proxied, limits=limits, verify=_certificates())
        return self._clients[proxied]

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="ssrl-http", daemon=True).start()
            return self._loop


@cache
def _certificates() -> ssl.SSLContext:
    """Reading them takes 50 ms: once a process."""
    return httpx.create_ssl_context()


def _refusal(name: str, response: httpx.Response, body: bytes, secrets: list[str]) -> CallFailed:
    """The failure that a status other than 2xx means, with the server's words."""
    code = response.status_code
    words = _message(body)
    if response.has_redirect_location:  # not followed: a key would travel to wherever it points
        words = f"moved to {shown(response.headers['location'])}; give that address"
    reason, words = _clean(response.reason_phrase, secrets), _clean(words, secrets)
    text = " ".join(filter(None, (name, "answered", str(code), reason))) + (f": {words}" if words else "")
    wait = _retry_after_s(response.headers.get("retry-after"))
    return CallFailed(text, retryable=code in _RETRYABLE, retry_after_s=wait if code in _RETRYABLE else None)


def _message(body: bytes) -> str:
    """What the server says went wrong: the message field of the usual JSON errors, else the body."""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for _ in range(2):  # {"error": {"message": …}}, {"message": …}, {"detail": …}
        if isinstance(value, dict):
            value = next((value[key] for key in ("error", "message", "detail") if value.get(key)), value)
    return value if isinstance(value, str) else json.dumps(value)


def _retry_after_s(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date; None where it holds neither."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _parsed(name: str, body: bytes, secrets: list[str]) -> Any:
    try:
        value = json.loads(body, parse_constant=lambda _: None)  # NaN and infinities are no JSON
    except (ValueError, RecursionError):
        start = _clean(body[:_WORDS_BYTES].decode("utf-8", "replace"), secrets, chars=60)
        raise CallFailed(f"{name} answered {start!r} …, expected JSON") from None
    return _encodable(value) if _SURROGATE.search(body) else value


def _encodable(value: Any) -> Any:
    """`value` with half characters, which JSON can spell and UTF-8 cannot, as question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


def _secrets(url: str, params: Mapping[str, str | int], headers: Mapping[str, str]) -> list[str]:
    """What no error may show, longest first: the words of every header, parameters named like a key, a password in the URL."""
    words = [word for name, value in headers.items() if name != "Content-Type" for word in (value, *value.split())]
    words += [str(value) for name, value in params.items() if _SECRET_PARAM.search(name)]
    words += [urlsplit(url).password or ""]
    words = [word.strip() for word in words]
    spelled = {spelling for word in words for spelling in (word, quote(word, safe=""), quote_plus(word), json.dumps(word)[1:-1])}
    return sorted((word for word in spelled if len(word) >= 4 and word.lower() not in ("bearer", "basic")), key=len, reverse=True)


def _clean(text: str, secrets: list[str], chars: int = _WORDS_CHARS) -> str:
    """One short printable line without a secret."""
    for secret in secrets:
        text = text.replace(secret, "<secret>")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= chars else f"{line[:chars]} …"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
