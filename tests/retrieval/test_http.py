"""The client of the Search-R1 API against real servers that speak it, well or badly."""

import threading

import pytest

from ssrl.calls.caller import Caller, CallFailed, Limits
from ssrl.errors import UserError
from ssrl.retrieval.http import HttpRetriever, documents_of, split_contents
from ssrl.types import Document, SearchStatus
from tests.servers import free_port, serving


def caller(**limits):
    return Caller(Limits(**{"timeout_s": 20.0, "backoff_s": 0.001, **limits}))


def echo(request):
    """For each query topk documents that name it, with falling scores."""
    rows = [
        [
            {"document": {"id": f"{query}{rank}", "contents": f'"{query}"\ntext {rank}'}, "score": 1.0 / (rank + 1)}
            for rank in range(request.body["topk"])
        ]
        for query in request.body["queries"]
    ]
    request.json({"result": rows})


def test_queries_come_back_in_order_over_batches_and_servers():
    queries = [f"q{index}" for index in range(11)]
    with serving(echo) as (one, got_one), serving(echo) as (other, got_other):
        results = HttpRetriever([one, other], caller(), batch=2).retrieve(queries, 2)
    assert [[document.text for document in result.documents] for result in results] == [["text 0", "text 1"]] * 11
    assert [result.documents[0].title for result in results] == queries
    assert results[3].documents[1] == Document(id="q31", title="q3", text="text 1", score=0.5)
    assert len(got_one) == len(got_other) == 3  # six batches, shared
    assert all(request.path == "/retrieve" and request.method == "POST" for request in got_one + got_other)
    sent = sorted((request.body for request in got_one + got_other), key=lambda body: queries.index(body["queries"][0]))
    assert sent[0] == {"queries": ["q0", "q1"], "topk": 2, "return_scores": True} and sent[5]["queries"] == ["q10"]


def test_a_runaway_query_is_cut_and_fails_no_other_of_its_batch():
    def answer(request):
        too_large = int(request.headers["content-length"]) > 1024 * 1024
        request.json({"detail": "too large"}, 413) if too_large else echo(request)

    with serving(answer) as (url, received):
        results = HttpRetriever([url], caller()).retrieve(["日" * 300_000] + ["short"] * 31, 1)
    assert [result.status for result in results] == [SearchStatus.OK] * 32
    assert received[0].body["queries"][0] == "日" * 4096


def test_no_queries_make_no_request():
    with serving(echo) as (url, received):
        assert HttpRetriever([url], caller()).retrieve([], 3) == []
    assert received == []


def test_a_dead_server_costs_a_retry_and_no_answer():
    with serving(echo) as (url, received):
        retriever = HttpRetriever([f"http://127.0.0.1:{free_port()}", url], caller(), batch=1)
        results = retriever.retrieve([f"q{index}" for index in range(6)], 1)
    assert all(result.status is SearchStatus.OK for result in results) and len(received) == 6


def test_with_no_server_each_query_of_a_batch_has_the_failure():
    port = free_port()
    retriever = HttpRetriever([f"http://127.0.0.1:{port}"], caller(retries=1), batch=2)
    results = retriever.retrieve(["a", "b", "c"], 3)
    assert [result.status for result in results] == [SearchStatus.ERROR] * 3
    assert all(f"POST http://127.0.0.1:{port}/retrieve: no connection" in result.error for result in results)
    assert all("attempt 2 of 2" in result.error and result.documents == () for result in results)
    assert retriever.hint == "python -m ssrl task=serve retriever=bm25"


def test_one_failed_batch_leaves_the_others_alone():
    def answer(request):
        request.json({"detail": "bad query"}, 422) if "bad" in request.body["queries"] else echo(request)

    with serving(answer) as (url, _):
        results = HttpRetriever([url], caller(), batch=1).retrieve(["good", "bad", "fine"], 1)
    assert [result.status for result in results] == [SearchStatus.OK, SearchStatus.ERROR, SearchStatus.OK]
    assert results[1].error.endswith("answered 422 Unprocessable Entity: bad query")


def test_a_server_that_is_slow_once_is_a_timeout_for_its_queries_only():
    release = threading.Event()

    def answer(request):
        if "slow" in request.body["queries"]:
            release.wait(20)
        echo(request)

    with serving(answer) as (url, _):
        results = HttpRetriever([url], caller(timeout_s=2.0), batch=1).retrieve(["quick", "slow"], 1)
        release.set()
    assert [result.status for result in results] == [SearchStatus.OK, SearchStatus.TIMEOUT]
    assert results[1].latency_s >= 2


def test_an_overloaded_server_is_asked_again_when_it_said():
    def answer(request):
        request.json({}, 429, Retry_After="1") if request.index == 0 else echo(request)

    with serving(answer) as (url, received):
        [result] = HttpRetriever([url], caller()).retrieve(["q"], 1)
    assert result.status is SearchStatus.OK and received[1].at - received[0].at >= 1


def test_a_query_without_documents_is_empty():
    with serving(lambda request: request.json({"result": [[], []]})) as (url, _):
        results = HttpRetriever([url], caller()).retrieve(["a", "b"], 3)
    assert [result.status for result in results] == [SearchStatus.EMPTY] * 2


def test_plain_documents_without_scores_are_read_too():
    rows = [[{"id": 7, "contents": '"Paris"\nis a city\nin France'}, {"id": "8", "contents": "no title"}]]
    assert documents_of({"result": rows}, queries=1, topk=3) == [
        (Document(id="7", title="Paris", text="is a city\nin France"), Document(id="8", text="no title"))
    ]


def test_more_documents_than_asked_for_are_cut_and_a_score_that_is_no_number_is_none():
    row = [{"document": {"contents": f'"t"\n{score}'}, "score": score} for score in (2, None, "high", True, 10**400, 0.5)]
    assert [document.score for document in documents_of({"result": [row]}, 1, 5)[0]] == [2.0, None, None, None, None]


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Paris"\nA city.', "Paris", "A city."),
        ('""Heroes" (song)"\nBy Bowie.', '"Heroes" (song)', "By Bowie."),
        ("Paris\nA city.", "Paris", "A city."),
        ('"Paris" \r\nA city.\nLarge.', "Paris", "A city.\nLarge."),
        ('"\nhalf a quote', '"', "half a quote"),
        ("\nuntitled", "", "untitled"),
        ("one line", "", "one line"),
        ("", "", ""),
    ],
)
def test_contents_are_a_quoted_title_a_newline_and_a_text(contents, title, text):
    assert split_contents(contents) == (title, text)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"results": []}, "answered a dict without a list `result` for 2 queries"),
        ([], "answered a list without a list `result` for 2 queries"),
        (None, "answered a NoneType without"),
        ({"result": [[]]}, "answered 1 results for 2 queries, expected one list of documents a query"),
        ({"result": [[], {}]}, "answered 2 results for 2 queries, expected one list of documents a query"),
        ({"result": [[], [{"document": {"text": "x"}, "score": 1}]]}, "a document without a string `contents`"),
        ({"result": [[], [{"contents": None}]]}, "a document without a string `contents`"),
        ({"result": [[], ["text"]]}, "a document without a string `contents`"),
    ],
)
def test_a_wrong_shape_is_a_failure_that_says_what_was_expected(answer, words):
    with pytest.raises(CallFailed, match=words.replace("`", ".")) as failure:
        documents_of(answer, queries=2, topk=3)
    assert not failure.value.retryable


def test_a_wrong_shape_from_a_server_is_a_result():
    with serving(lambda request: request.json({"oops": 1})) as (url, received):
        [result] = HttpRetriever([url], caller()).retrieve(["q"], 3)
    assert result.status is SearchStatus.ERROR and "without a list `result`" in result.error and len(received) == 1


def test_the_address_may_be_written_as_search_r1_writes_it():
    with serving(echo) as (url, received):
        HttpRetriever([f"{url}/retrieve"], caller()).retrieve(["q"], 1)
    assert received[0].path == "/retrieve"


def named(index):
    return lambda request: request.json({"status": "ok", "retriever": index})


def test_the_identity_is_the_index_that_all_servers_name_wherever_they_are():
    with serving(named("bm25 a1b2")) as (one, received), serving(named("bm25 a1b2")) as (other, _):
        retriever = HttpRetriever([one, other], caller())
        assert [retriever.identity, retriever.identity] == ["http bm25 a1b2"] * 2
    assert [(request.method, request.path) for request in received] == [("GET", "/health")]


@pytest.mark.parametrize("health", [{"status": "ok"}, ["ok"], {"retriever": 3}, None])
def test_where_a_server_does_not_name_its_index_the_identity_is_the_addresses_without_passwords(health):
    with serving(lambda request: request.json(health)) as (url, _):
        port = url.rsplit(":", 1)[1]
        assert HttpRetriever([f"http://ann:pa55@127.0.0.1:{port}/"], caller()).identity == f"http http://127.0.0.1:{port}"


def test_a_server_that_is_down_is_identified_by_its_address():
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    assert HttpRetriever(urls, caller()).identity == f"http {' '.join(sorted(urls))}"


def test_servers_of_different_indexes_cannot_share_the_load():
    with serving(named("bm25 a1b2")) as (one, _), serving(named("dense c3d4")) as (other, _):
        with pytest.raises(UserError, match="hold different indexes .*bm25 a1b2.*dense c3d4.*; name only those of one index"):
            _ = HttpRetriever([one, other], caller()).identity


def test_no_address_is_an_error_before_anything_runs():
    with pytest.raises(UserError, match=r"retriever.urls=\[\] names no server; type retriever.urls=\[http://127.0.0.1:8000\]"):
        HttpRetriever([], caller())
