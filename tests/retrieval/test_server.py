"""The Search-R1 API: the table of requests and answers, what is refused, and failures that are never an empty list."""

import itertools
import json

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from ssrl.retrieval.server import MAX_QUERY_CHARS, make_app
from ssrl.types import Document, SearchResult, SearchStatus

CORPUS = (
    Document(id="0", title="Peru", text="Lima is the capital of Peru."),
    Document(id="1", title="Norway", text="Oslo is the capital of Norway."),
    Document(id="2", title="Hamlet", text="Hamlet is a play by Shakespeare.\nIt is set in Denmark."),
    Document(id="3", title="Gold", text="The symbol of gold is Au."),
    Document(id="4", title="A\ntitle", text="Two lines in one title."),
    Document(id="5", title="", text="Nameless passage about penguins."),
)


class WordOverlap:
    """Documents by the number of words that they share with the query, then by place. `calls` is what it was asked."""

    identity = "overlap of 6 documents"
    hint = "nothing to start"

    def __init__(self):
        self.calls = []

    def retrieve(self, queries, topk):
        self.calls.append((list(queries), topk))
        return [self.result(query, topk) for query in queries]

    def result(self, query, topk):
        if query == "raise":
            raise RuntimeError("a secret path")
        if query in ("timeout", "error"):
            return SearchResult(status=SearchStatus(query), error=f"no answer from the index ({query})")
        words = set(query.lower().split())
        scored = [(len(words & set(f"{d.title} {d.text}".lower().replace(".", "").split())), d) for d in CORPUS]
        found = sorted((pair for pair in scored if pair[0]), key=lambda pair: (-pair[0], pair[1].id))[:topk]
        documents = tuple(Document(id=d.id, title=d.title, text=d.text, score=float(score)) for score, d in found)
        return SearchResult(status=SearchStatus.OK if documents else SearchStatus.EMPTY, documents=documents)


@pytest.fixture
def retriever():
    return WordOverlap()


@pytest.fixture
def client(retriever):
    with TestClient(make_app(retriever, max_queries=4, max_body_kb=64, max_topk=5, default_topk=2)) as client:
        yield client


PERU = {"id": "0", "contents": '"Peru"\nLima is the capital of Peru.'}
NORWAY = {"id": "1", "contents": '"Norway"\nOslo is the capital of Norway.'}
HAMLET = {"id": "2", "contents": '"Hamlet"\nHamlet is a play by Shakespeare.\nIt is set in Denmark.'}
# "is capital of peru" shares 4 words with Peru, 3 with Norway, 2 with Gold ("of", "is") and 1 with Hamlet ("is")
GOLD = {"id": "3", "contents": '"Gold"\nThe symbol of gold is Au.'}


@pytest.mark.parametrize(
    ("topk", "scores"),
    list(itertools.product([{}, {"topk": None}, {"topk": 1}, {"topk": 5}], [{}, {"return_scores": None}, {"return_scores": False}, {"return_scores": True}])),
)
def test_every_combination_of_topk_and_scores_has_its_shape(client, topk, scores):
    ranked = [(PERU, 4.0), (NORWAY, 3.0), (GOLD, 2.0), (HAMLET, 1.0)][: topk.get("topk") or 2]
    expected = [{"document": d, "score": s} for d, s in ranked] if scores.get("return_scores") else [d for d, _ in ranked]
    for count in (1, 2, 3):  # two queries are the case that the published server got right by accident
        answer = client.post("/retrieve", json={"queries": ["is capital of peru"] * count, **topk, **scores})
        assert (answer.status_code, answer.json()) == (200, {"result": [expected] * count})


def test_results_come_in_the_order_of_the_queries_and_an_unknown_word_finds_nothing(client):
    answer = client.post("/retrieve", json={"queries": ["gold", "zebra", "", "shakespeare"], "topk": 1})
    assert answer.json() == {"result": [[GOLD], [], [], [HAMLET]]}


def test_a_title_stays_on_the_first_line_and_a_missing_one_is_empty_quotes(client):
    answer = client.post("/retrieve", json={"queries": ["two lines", "penguins"], "topk": 1})
    assert [found[0]["contents"] for found in answer.json()["result"]] == [
        '"A title"\nTwo lines in one title.', '""\nNameless passage about penguins.']  # fmt: skip


def test_no_queries_is_an_empty_result_and_asks_nobody(client, retriever):
    assert client.post("/retrieve", json={"queries": []}).json() == {"result": []}
    assert retriever.calls == []


def test_other_keys_are_ignored(client):
    assert client.post("/retrieve", json={"queries": ["gold"], "topk_rerank": 3, "topk": 1}).json() == {"result": [[GOLD]]}


def test_health_names_the_retriever_and_the_bounds(client):
    assert client.get("/health").json() == {
        "status": "ok", "retriever": "overlap of 6 documents", "default_topk": 2, "max_topk": 5, "max_queries": 4}  # fmt: skip


def test_the_default_topk_never_exceeds_the_largest():
    retriever = WordOverlap()
    with TestClient(make_app(retriever, max_queries=4, max_body_kb=64, max_topk=2)) as client:
        client.post("/retrieve", json={"queries": ["gold"]})
    assert retriever.calls == [(["gold"], 2)]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("", 400, "not JSON"),
        ("queries=gold", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        ("[" * 30_000, 400, "not JSON"),
        ('{"queries": ["a"], "topk": ' + "9" * 5000 + "}", 400, "not JSON"),
        ("[]", 422, "the body is a list"),
        ("null", 422, "the body is null"),
        ("{}", 422, '"queries" is missing'),
        ('{"queries": null}', 422, '"queries" is null'),
        ('{"queries": "gold"}', 422, '"queries" is a string'),
        ('{"queries": ["gold", 7]}', 422, "holds a number at place 1"),
        ('{"queries": [["gold"]]}', 422, "holds a list at place 0"),
        ('{"queries": ["a", "a", "a", "a", "a"]}', 422, "5 queries are too many; send at most 4"),
        ('{"queries": ["a"], "topk": 0}', 422, '"topk" is 0'),
        ('{"queries": ["a"], "topk": -1}', 422, '"topk" is -1'),
        ('{"queries": ["a"], "topk": 6}', 422, "from 1 to 5"),
        ('{"queries": ["a"], "topk": true}', 422, '"topk" is true'),
        ('{"queries": ["a"], "topk": 1.5}', 422, '"topk" is 1.5'),
        ('{"queries": ["a"], "topk": NaN}', 422, '"topk" is NaN'),
        ('{"queries": ["a"], "topk": "3"}', 422, '"topk" is "3"'),
        ('{"queries": [], "topk": 0}', 422, '"topk" is 0'),
        ('{"queries": ["a"], "return_scores": 1}', 422, '"return_scores" is 1'),
        ('{"queries": ["a"], "return_scores": "false"}', 422, '"return_scores" is "false"'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(client, retriever, body, status, words):
    answer = client.post("/retrieve", content=body)
    assert answer.status_code == status
    assert words in answer.json()["detail"] and "\n" not in answer.json()["detail"]
    assert retriever.calls == []


def test_a_body_of_the_largest_size_passes_and_one_byte_more_does_not(client):
    body = json.dumps({"queries": ["gold"], "topk": 1}).encode()
    exact = body + b" " * (64 * 1024 - len(body))
    assert client.post("/retrieve", content=exact).status_code == 200
    assert client.post("/retrieve", content=exact + b" ").status_code == 413
    pieces = (b" " * 1000 for _ in range(100))  # sent in chunks, with no length
    refused = client.post("/retrieve", content=pieces)
    assert refused.status_code == 413 and "larger than 64 KB" in refused.json()["detail"]


def test_a_long_query_is_cut_and_half_a_character_is_replaced(client, retriever):
    answer = client.post("/retrieve", content=json.dumps({"queries": ["x" * 5000, "\ud800 gold"], "topk": 1}))
    assert answer.json() == {"result": [[], [GOLD]]}
    assert retriever.calls == [(["x" * MAX_QUERY_CHARS, "? gold"], 1)]


@pytest.mark.parametrize(
    ("queries", "status", "words"),
    [
        (["gold", "timeout"], 504, "1 of 2 queries: no answer from the index (timeout)"),
        (["error"], 502, "1 of 1 queries: no answer from the index (error)"),
        (["timeout", "error"], 502, "2 of 2 queries"),
        (["raise"], 502, "raised RuntimeError"),
    ],
)
def test_a_failed_retrieval_is_an_error_and_never_an_empty_list(client, queries, status, words):
    answer = client.post("/retrieve", json={"queries": queries})
    assert answer.status_code == status
    assert words in answer.json()["detail"] and "secret" not in answer.text
    assert client.post("/retrieve", json={"queries": ["gold"], "topk": 1}).json() == {"result": [[GOLD]]}  # it lives on


def test_a_score_that_json_cannot_say_is_null_and_half_a_character_in_a_passage_is_answered():
    class Odd(WordOverlap):
        def result(self, query, topk):
            documents = tuple(Document(id=str(s), text="\ud800", score=s) for s in (float("nan"), float("inf"), None, 0.5))
            return SearchResult(status=SearchStatus.OK, documents=documents)

    with TestClient(make_app(Odd(), max_queries=4, max_body_kb=64, max_topk=5)) as client:
        answer = client.post("/retrieve", json={"queries": ["a"], "return_scores": True})
    assert answer.status_code == 200
    assert [found["score"] for found in answer.json()["result"][0]] == [None, None, None, 0.5]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["queries", "topk", "return_scores"]) | st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
QUERY = st.text().filter(lambda text: text not in ("timeout", "error"))  # for which the stand-in fails
NEARLY_RIGHT = st.fixed_dictionaries(
    {"queries": st.lists(QUERY, max_size=5) | JSON}, optional={"topk": st.integers(-1, 7) | JSON, "return_scores": st.booleans() | JSON}
)


@settings(max_examples=150, deadline=None)
@given(body=JSON | NEARLY_RIGHT)
def test_any_json_is_answered_or_refused_and_never_an_error_of_the_server(body):
    with TestClient(make_app(WordOverlap(), max_queries=4, max_body_kb=64, max_topk=5), raise_server_exceptions=True) as client:
        answer = client.post("/retrieve", content=json.dumps(body))
    assert answer.status_code == 200 or 400 <= answer.status_code < 500
    if answer.status_code == 200:
        assert len(answer.json()["result"]) == len(body["queries"])
    else:
        assert answer.json()["detail"]
