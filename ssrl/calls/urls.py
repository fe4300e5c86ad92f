"""Servers that answer alike: calls go round them, and one that has just failed rests while another is up."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from ssrl.calls.caller import CallFailed
from ssrl.errors import UserError

T = TypeVar("T")


class Urls:
    """Base URLs without a trailing slash. `key` and `example` are for the error that says what to type."""

    def __init__(self, urls: Sequence[str], *, key: str, example: str, rest_s: float = 10.0) -> None:
        self.all = tuple(dict.fromkeys(url.strip().rstrip("/") for url in urls))
        if not self.all:
            raise UserError(f"{key}=[] names no server; type {key}=[{example}]")
        for url in self.all:
            if not _usable(url):
                raise UserError(f"{key} holds {shown(url)!r}, which is no http:// or https:// address; type {key}=[{example}]")
        self._rest_s = rest_s
        self._rests_until = dict.fromkeys(self.all, 0.0)
        self._turns = itertools.cycle(self.all)
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """The servers in an order that does not matter, without passwords."""
        return " ".join(sorted(map(shown, self.all)))

    def ask(self, send: Callable[[str], T]) -> T:
        """One attempt at the server whose turn it is; a retry of it comes to another one, where another is up."""
        url = self._pick()
        try:
            return send(url)
        except CallFailed as failure:
            if failure.retryable:
                with self._lock:
                    self._rests_until[url] = time.monotonic() + self._rest_s
            raise

    def _pick(self) -> str:
        with self._lock:
            now = time.monotonic()
            turns = [next(self._turns) for _ in self.all]
            best = min(turns, key=lambda url: max(self._rests_until[url], now))  # the first of those that are up
            while next(self._turns) != best:  # the next call begins behind it
                pass
            return best


def shown(url: str) -> str:
    """`url` as errors and identities show it: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an unreadable address"
    return f"{parts.scheme}://{host}{port}{parts.path}" if parts.scheme else parts.path


def _usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
