"""Threads for calls, which nobody has to wait for when a process is told to end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Workers:
    """At most `count` threads, alive while there is work. They are daemons, unlike those of the standard library's pool:
    Ctrl-C does not hang until the slowest server has answered."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._running = 0
        self._jobs: deque[tuple[Future, Callable[[], object]]] = deque()
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Does `work` as soon as a thread is free, in the order of asking."""
        future: Future[T] = Future()
        with self._lock:
            self._jobs.append((future, work))
            if self._running < self._count:
                self._running += 1
                threading.Thread(target=self._work, name="ssrl-call", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running -= 1
                    return
                future, work = self._jobs.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # it belongs to whoever waits for the result
                    future.set_exception(error)
