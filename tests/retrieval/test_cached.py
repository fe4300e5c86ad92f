"""The cache before a retriever: what is asked again and what is not."""

from ssrl.calls.cache import Cache
from ssrl.calls.caller import Caller, Limits
from ssrl.retrieval.cached import CachedRetriever
from ssrl.retrieval.http import HttpRetriever
from ssrl.types import Document, SearchResult, SearchStatus
from tests.servers import serving


class Counting:
    """Answers with the query itself and writes down what it was asked; blank queries fail, "nothing" finds nothing."""

    def __init__(self, identity="index 1"):
        self.identity = identity
        self.hint = "start it"
        self.asked = []

    def retrieve(self, queries, topk):
        self.asked += [(query, topk) for query in queries]
        return [self._result(query) for query in queries]

    def _result(self, query):
        if not query:
            return SearchResult(status=SearchStatus.ERROR, error="down")
        if query == "nothing":
            return SearchResult(status=SearchStatus.EMPTY, latency_s=2.0)
        return SearchResult(status=SearchStatus.OK, documents=(Document(id="1", title="T", text=query, score=0.5),), latency_s=2.0)


def test_what_was_answered_once_comes_back_marked_and_is_not_asked_again(tmp_path):
    inner = Counting()
    retriever = CachedRetriever(inner, Cache(tmp_path / "cache.db"))
    first = retriever.retrieve(["a", "nothing"], 3)
    again = retriever.retrieve(["nothing", "b", "a"], 3)
    assert inner.asked == [("a", 3), ("nothing", 3), ("b", 3)]
    assert [result.cached for result in first] == [False, False]
    assert [(result.status, result.cached) for result in again] == [
        (SearchStatus.EMPTY, True),
        (SearchStatus.OK, False),
        (SearchStatus.OK, True),
    ]
    assert again[2].documents == first[0].documents == (Document(id="1", title="T", text="a", score=0.5),)
    assert again[2].latency_s < first[0].latency_s == 2.0


def test_failures_are_asked_again(tmp_path):
    inner = Counting()
    retriever = CachedRetriever(inner, Cache(tmp_path / "cache.db"))
    for _ in range(2):
        [result] = retriever.retrieve([""], 3)
        assert (result.status, result.error, result.cached) == (SearchStatus.ERROR, "down", False)
    assert inner.asked == [("", 3)] * 2


def test_an_equal_query_in_one_batch_is_asked_once(tmp_path):
    inner = Counting()
    results = CachedRetriever(inner, Cache(tmp_path / "cache.db")).retrieve(["a", "", "a", "", "a"], 3)
    assert inner.asked == [("a", 3), ("", 3)]
    assert [result.cached for result in results] == [False, False, True, False, True]
    assert [result.status.failed for result in results] == [False, True, False, True, False]


def test_another_number_of_documents_or_another_index_is_another_answer(tmp_path):
    cache, one, other = Cache(tmp_path / "cache.db"), Counting("index 1"), Counting("index 2")
    CachedRetriever(one, cache).retrieve(["a"], 3)
    CachedRetriever(one, cache).retrieve(["a"], 4)
    CachedRetriever(other, cache).retrieve(["a"], 3)
    CachedRetriever(Counting("index 1"), cache).retrieve(["a"], 3)
    assert one.asked == [("a", 3), ("a", 4)] and other.asked == [("a", 3)]


def test_it_passes_for_the_retriever_it_wraps(tmp_path):
    retriever = CachedRetriever(Counting(), Cache(tmp_path / "cache.db"))
    assert (retriever.identity, retriever.hint) == ("index 1", "start it")
    assert retriever.retrieve([], 3) == []


def test_a_server_is_asked_once_by_two_runs_one_after_the_other(tmp_path):
    rows = {"result": [[{"document": {"id": "1", "contents": '"T"\nx'}, "score": 1.0}]]}
    with serving(lambda request: request.json(rows)) as (url, received):
        for _ in range(2):
            inner = HttpRetriever([url], Caller(Limits()))
            [result] = CachedRetriever(inner, Cache(tmp_path / "cache.db")).retrieve(["q"], 1)
            assert result.documents == (Document(id="1", title="T", text="x", score=1.0),)
    assert [request.method for request in received].count("POST") == 1 and result.cached
