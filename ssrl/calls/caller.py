"""Bounded calls: so many at one time, so many a second, each with a deadline and retries."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from ssrl.calls.workers import Workers
from ssrl.errors import UserError
from ssrl.types import SearchStatus

T = TypeVar("T")


class CallFailed(Exception):
    """One attempt failed. The message is one line without a secret, fit for logs and pages."""

    def __init__(
        self, message: str, *, status: SearchStatus = SearchStatus.ERROR, retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable  # whether the same call may well succeed a moment later
        self.retry_after_s = retry_after_s  # how long the server asked to be left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of all calls of one caller; the fields of `CallsConfig` with the same names."""

    timeout_s: float = 30.0  # of one call: every attempt and every wait between them
    retries: int = 3  # attempts after the first one
    backoff_s: float = 0.5  # wait before the first retry, doubled each time
    rate: float = 0.0  # most attempts a second; 0: no limit
    concurrency: int = 16  # most calls at one time
    section: str = "calls"  # of the configuration, where they come from

    def __post_init__(self) -> None:
        for name, least in (("retries", 0), ("backoff_s", 0), ("rate", 0), ("concurrency", 1)):
            if not getattr(self, name) >= least:
                raise UserError(f"{self.section}.{name}={getattr(self, name)} must be at least {least}; type {self.section}.{name}={getattr(Limits(), name)}")
        if not self.timeout_s > 0:
            raise UserError(f"{self.section}.timeout_s={self.timeout_s} must be above 0; type {self.section}.timeout_s=30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """How one call ended: with a value, or with a status and a sentence."""

    value: T | None
    status: SearchStatus  # OK, TIMEOUT or ERROR
    latency_s: float  # from the first attempt to the end
    error: str = ""


class Caller:
    """Makes calls within `limits`, which hold over all threads that share the caller.

    The deadline of a call runs from its first attempt. Waiting for a place among `concurrency` and for the first turn at `rate` is
    the user's own pacing and comes before: a healthy but slow-paced service never times out for the length of a batch.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._workers = Workers(limits.concurrency)
        self._pace = Pace(limits.rate)
        self._jitter = random.Random()  # its own stream: a retry must not shift anyone's random choices

    def run(self, attempts: Sequence[Callable[[float], T]]) -> list[Outcome[T]]:
        """One outcome a call, in order. An attempt is given the seconds that its call has left, must keep to them, and says by
        `CallFailed` that it failed. Any other exception is a defect of the program and is raised."""
        futures = [self._workers.submit(partial(self._call, attempt)) for attempt in attempts]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _call(self, attempt: Callable[[float], T]) -> Outcome[T]:
        self._pace.wait()
        start = time.monotonic()
        end = start + self.limits.timeout_s
        for tried in itertools.count(1):
            try:
                value = attempt(end - time.monotonic())
                return Outcome(value=value, status=SearchStatus.OK, latency_s=time.monotonic() - start)
            except CallFailed as failure:
                surrender = self._wait_for_retry(failure, tried, end)
                if surrender is not None:
                    return Outcome(value=None, status=failure.status, latency_s=time.monotonic() - start, error=f"{failure}{surrender}")

    def _wait_for_retry(self, failure: CallFailed, tried: int, end: float) -> str | None:
        """Sleeps until the next attempt may start; where there is none, says why in words that go behind the failure's."""
        if not failure.retryable:
            return ""
        if tried > self.limits.retries:
            return f" (attempt {tried} of {tried})"
        pause = self._pause(failure, tried)
        left = end - time.monotonic()
        if pause < left:
            time.sleep(pause)
            if self._pace.wait(until=end):
                return None
        asked = "" if failure.retry_after_s is None else f"it asks to wait {failure.retry_after_s:.0f} s, "
        return f" ({asked}attempt {tried}, {max(left, 0):.1f} s left of {self.limits.section}.timeout_s={self.limits.timeout_s:g})"

    def _pause(self, failure: CallFailed, tried: int) -> float:
        """Exponential with jitter, so that calls which failed together do not come back together; never before a server's Retry-After."""
        backoff = self.limits.backoff_s * 2 ** (tried - 1)
        if failure.retry_after_s is not None:
            return failure.retry_after_s + self._jitter.uniform(0, min(backoff, 0.1 * failure.retry_after_s))
        return backoff * self._jitter.uniform(0.5, 1.5)


class Pace:
    """A token bucket that holds one token: turns at least 1/rate seconds apart, over all threads, in the order of asking."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, until: float = float("inf")) -> bool:
        """Sleeps until this caller's turn; False, at once and without taking the turn, where it comes after `until` (monotonic clock)."""
        with self._lock:
            turn = max(self._next, time.monotonic())
            if turn >= until:
                return False
            self._next = turn + self._gap
        time.sleep(max(0.0, turn - time.monotonic()))
        return True
