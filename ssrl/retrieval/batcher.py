"""Requests that wait at the same time become one call of the retriever, made by the one thread that touches it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from ssrl.errors import UserError
from ssrl.types import Retriever, SearchResult, SearchStatus

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """The queries of one request."""

    queries: tuple[str, ...]
    topk: int
    answer: Future[list[SearchResult]] = field(default_factory=Future)


class Batcher:
    """Collects jobs for `wait_s` seconds, and whatever has come in during the call before, up to about `most` queries; one call a top-k.

    The retriever need not be thread-safe. A job that is cancelled while it waits is not retrieved. A retriever that raises does not
    stop the thread: its queries get a failed result.
    """

    def __init__(self, retriever: Retriever, *, wait_s: float = 0.002, most: int = 512) -> None:
        self.retriever, self.wait_s, self.most = retriever, wait_s, most
        self.waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None

    def submit(self, queries: Sequence[str], topk: int) -> Future[list[SearchResult]]:
        """One result a query, in order, when they are there. Called from one thread (that of the event loop)."""
        if self.thread is None:
            # A daemon, so that a retrieval that hangs cannot keep the process from ending.
            self.thread = threading.Thread(target=self._work, name="retriever", daemon=True)
            self.thread.start()
        job = Job(tuple(queries), topk)
        self.waiting.put(job)
        return job.answer

    def close(self) -> None:
        """Let the thread end after the jobs that wait."""
        if self.thread is not None:
            self.thread = None
            self.waiting.put(None)

    def _work(self) -> None:
        while (first := self.waiting.get()) is not None:
            by_topk: dict[int, list[Job]] = {}
            for job in self._gather(first):
                if job.answer.set_running_or_notify_cancel():
                    by_topk.setdefault(job.topk, []).append(job)
            for topk, jobs in by_topk.items():
                for job, results in zip(jobs, self._retrieve(jobs, topk), strict=True):
                    job.answer.set_result(results)

    def _gather(self, first: Job) -> list[Job]:
        jobs, size, end = [first], len(first.queries), time.monotonic() + self.wait_s
        while size < self.most:
            try:
                job = self.waiting.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if job is None:
                self.waiting.put(None)  # the end comes after this batch
                break
            jobs.append(job)
            size += len(job.queries)
        return jobs

    def _retrieve(self, jobs: Sequence[Job], topk: int) -> list[list[SearchResult]]:
        queries = [query for job in jobs for query in job.queries]
        try:
            results = self.retriever.retrieve(queries, topk)
            if len(results) != len(queries):
                raise ValueError(f"{len(results)} results for {len(queries)} queries")
        except Exception as error:  # whatever a retriever raises, the thread must live
            if len(jobs) > 1:  # one request's queries must not fail another's
                return [self._retrieve([job], topk)[0] for job in jobs]
            if not isinstance(error, UserError):
                log.exception("the retriever raised an exception")
            said = str(error) if isinstance(error, UserError) else f"the retriever raised {type(error).__name__}"
            return [[SearchResult(status=SearchStatus.ERROR, error=said)] * len(queries)]
        rest = iter(results)
        return [[next(rest) for _ in job.queries] for job in jobs]
