"""Requests that wait together become one call, each gets its own answer, and nothing a retriever does stops the thread."""

import threading

import pytest

from ssrl.errors import UserError
from ssrl.retrieval.batcher import Batcher
from ssrl.types import Document, SearchResult, SearchStatus


class Gated:
    """Answers each query with itself, when the gate is open; notices when two threads are inside."""

    identity, hint = "gated", ""

    def __init__(self):
        self.gate, self.entered, self.inside = threading.Event(), threading.Event(), threading.Lock()
        self.calls = []

    def retrieve(self, queries, topk):
        assert self.inside.acquire(blocking=False), "two threads in the retriever"
        self.calls.append((list(queries), topk))
        self.entered.set()
        assert self.gate.wait(5)
        self.inside.release()
        if "bad" in queries:
            raise UserError("the index is gone: build it again")
        if "short" in queries:
            return []
        return [SearchResult(status=SearchStatus.OK, documents=(Document(text=f"{query} {topk}"),)) for query in queries]


@pytest.fixture
def retriever():
    return Gated()


@pytest.fixture
def batcher(retriever):
    batcher = Batcher(retriever, most=4)
    yield batcher
    retriever.gate.set()
    batcher.close()


def texts(future):
    return [result.documents[0].text for result in future.result(5)]


def busy(batcher, retriever):
    """A first job that holds the retriever, so that what follows waits."""
    first = batcher.submit(["first"], 9)
    assert retriever.entered.wait(5)
    return first


def test_jobs_that_wait_share_a_call_by_topk_and_get_their_own_results(batcher, retriever):
    first = busy(batcher, retriever)
    jobs = [batcher.submit(["a", "b"], 3), batcher.submit(["c"], 1), batcher.submit(["d"], 3)]
    retriever.gate.set()
    assert texts(first) == ["first 9"]
    assert [texts(job) for job in jobs] == [["a 3", "b 3"], ["c 1"], ["d 3"]]
    assert retriever.calls[1:] == [(["a", "b", "d"], 3), (["c"], 1)]


def test_a_call_takes_about_so_many_queries_and_the_rest_the_next(batcher, retriever):
    busy(batcher, retriever)
    jobs = [batcher.submit([str(i)], 1) for i in range(10)]
    retriever.gate.set()
    assert [texts(job) for job in jobs] == [[f"{i} 1"] for i in range(10)]
    assert [len(queries) for queries, _ in retriever.calls[1:]] == [4, 4, 2]


def test_a_job_that_is_cancelled_while_it_waits_is_not_retrieved(batcher, retriever):
    busy(batcher, retriever)
    given_up, kept = batcher.submit(["given up"], 1), batcher.submit(["kept"], 1)
    assert given_up.cancel()
    retriever.gate.set()
    assert texts(kept) == ["kept 1"]
    assert retriever.calls[1:] == [(["kept"], 1)]


@pytest.mark.parametrize(("query", "said"), [("bad", "the index is gone: build it again"), ("short", "the retriever raised ValueError")])
def test_what_one_request_breaks_does_not_fail_another(batcher, retriever, query, said):
    busy(batcher, retriever)
    bad, good = batcher.submit([query, "x"], 1), batcher.submit(["good"], 1)
    retriever.gate.set()
    assert [(result.status, result.error) for result in bad.result(5)] == [(SearchStatus.ERROR, said)] * 2
    assert texts(good) == ["good 1"]
    assert texts(batcher.submit(["after"], 1)) == ["after 1"]


def test_closing_answers_what_waits_and_ends_the_thread(batcher, retriever):
    busy(batcher, retriever)
    thread, waiting = batcher.thread, batcher.submit(["waiting"], 1)
    batcher.close()
    retriever.gate.set()
    assert texts(waiting) == ["waiting 1"]
    thread.join(5)
    assert not thread.is_alive()
