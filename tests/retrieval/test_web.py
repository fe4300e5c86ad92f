"""The web services: what is sent, what is read, and that a key shows nowhere."""

import pytest

from ssrl.calls.caller import Caller, Limits
from ssrl.errors import UserError
from ssrl.retrieval.web import SearxNG, SerpApi, Serper
from ssrl.types import Document, SearchStatus
from tests.servers import serving

KEY = "planted0123456789key"


def caller(**limits):
    return Caller(Limits(**{"timeout_s": 20.0, "backoff_s": 0.001, **limits}))


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    monkeypatch.setenv("SERPAPI_API_KEY", f" {KEY}\n")  # as a file with a newline gives it


def test_serper_is_asked_as_published_and_its_organic_results_are_documents():
    def answer(request):
        entries = [{"title": "Paris", "link": "https://p", "snippet": "Paris is …", "position": 1}, {"title": "No snippet"}, {"position": 3}]
        request.json({"searchParameters": {}, "knowledgeGraph": {"title": "ignored"}, "organic": entries + entries})

    with serving(answer) as (url, received):
        [result] = Serper(caller(), url=f"{url}/search").retrieve(["capital of France"], 3)
    assert result.status is SearchStatus.OK
    assert result.documents[:2] == (Document(title="Paris", text="Paris is …", id="https://p"), Document(title="No snippet", text=""))
    assert len(result.documents) == 3
    [request] = received
    assert (request.method, request.path, request.body) == ("POST", "/search", {"q": "capital of France", "num": 3})
    assert request.headers["x-api-key"] == KEY


def test_serpapi_is_asked_with_the_key_as_a_parameter():
    def answer(request):
        request.json({"organic_results": [{"title": "Paris", "link": "https://p", "snippet": "is …"}], "answer_box": {"answer": "x"}})

    with serving(answer) as (url, received):
        [result] = SerpApi(caller(), url=f"{url}/search.json").retrieve(["a & b"], 5)
    assert result.documents == (Document(title="Paris", text="is …", id="https://p"),)
    assert received[0].params == {"engine": "google", "q": "a & b", "num": "5", "api_key": KEY}


def test_serpapi_calls_an_empty_page_an_error_and_we_do_not():
    with serving(lambda request: request.json({"error": "Google hasn't returned any results for this query."})) as (url, _):
        [result] = SerpApi(caller(), url=url).retrieve(["qwertzu"], 5)
    assert (result.status, result.documents) == (SearchStatus.EMPTY, ())


def test_serpapis_other_errors_are_failures_even_with_status_200():
    with serving(lambda request: request.json({"error": f"Your account {KEY} has run out of searches."})) as (url, _):
        [result] = SerpApi(caller(), url=url).retrieve(["q"], 5)
    assert (result.status, result.error) == (SearchStatus.ERROR, "SerpApi answered: Your account <secret> has run out of searches.")


def test_searxng_servers_share_the_load_and_need_no_key(monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY")
    monkeypatch.delenv("SERPAPI_API_KEY")

    def answer(request):
        request.json({"results": [{"title": "T", "content": request.params["q"], "url": "https://t", "engine": "x"}] * 9})

    with serving(answer) as (one, got_one), serving(answer) as (other, got_other):
        results = SearxNG([one, f"{other}/search"], caller()).retrieve(["a", "b", "c", "d"], 2)
    assert [[document.text for document in result.documents] for result in results] == [["a"] * 2, ["b"] * 2, ["c"] * 2, ["d"] * 2]
    assert len(got_one) == len(got_other) == 2
    assert all((request.method, request.path, request.params["format"]) == ("GET", "/search", "json") for request in got_one + got_other)


def test_a_searxng_that_forbids_json_is_a_failure_whose_hint_says_what_to_set():
    with serving(lambda request: request.raw(b"<title>403 Forbidden</title>", 403)) as (url, _):
        retriever = SearxNG([url], caller())
        [result] = retriever.retrieve(["q"], 2)
    assert f"GET {url}/search answered 403 Forbidden" in result.error
    assert "`json` under search.formats" in retriever.hint


@pytest.mark.parametrize("field", [{}, {"organic": []}])
def test_no_results_are_empty(field):
    with serving(lambda request: request.json(field)) as (url, _):
        [result] = Serper(caller(), url=url).retrieve(["q"], 3)
    assert result.status is SearchStatus.EMPTY


@pytest.mark.parametrize("wrong", [[], "text", {"organic": {"title": 1}}, {"organic": ["x"]}])
def test_a_wrong_shape_is_a_failure(wrong):
    with serving(lambda request: request.json(wrong)) as (url, _):
        [result] = Serper(caller(), url=url).retrieve(["q"], 3)
    assert result.error == "Serper answered something other than an object with a list `organic`"


def test_fields_that_are_no_text_are_empty_text():
    with serving(lambda request: request.json({"organic": [{"title": None, "snippet": ["x"], "link": 3}, {"title": 5, "snippet": "s"}]})) as (url, _):
        [result] = Serper(caller(), url=url).retrieve(["q"], 3)
    assert result.documents == (Document(text="s"),)


def test_blank_queries_are_not_sent_and_long_or_odd_ones_are_made_fit():
    with serving(lambda request: request.json({"results": [{"title": request.params["q"]}]})) as (url, received):
        results = SearxNG([url], caller()).retrieve(["", " \n", "x" * 5000, "half \ud800 character", " q "], 3)
    assert [result.status for result in results] == [SearchStatus.EMPTY, SearchStatus.EMPTY] + [SearchStatus.OK] * 3
    assert [result.documents[0].title for result in results[2:]] == ["x" * 1000, "half ? character", "q"]
    assert len(received) == 3


def test_a_service_that_limits_its_rate_is_waited_for_and_never_replaced():
    def answer(request):
        request.json({"message": "slow down"}, 429, Retry_After="1") if request.index < 1 else request.json({"organic": [{"title": "T"}]})

    with serving(answer) as (url, received):
        [result] = Serper(caller(), url=url).retrieve(["q"], 1)
    assert result.status is SearchStatus.OK and received[1].at - received[0].at >= 1


@pytest.mark.parametrize(("service", "variable"), [(Serper, "SERPER_API_KEY"), (SerpApi, "SERPAPI_API_KEY")])
def test_without_a_key_nothing_starts_and_the_error_says_what_to_export(monkeypatch, service, variable):
    for value in ("", "  "):
        monkeypatch.setenv(variable, value)
        with pytest.raises(UserError, match=f"{variable} is not set; get a key from https://.* and type: export {variable}="):
            service(caller())
    monkeypatch.setenv(variable, f"{KEY} {KEY}")
    with pytest.raises(UserError) as error:
        service(caller())
    assert "holds a blank or a character that no key has" in str(error.value) and KEY not in str(error.value)


@pytest.mark.parametrize("service", [Serper, SerpApi])
@pytest.mark.parametrize("code", [401, 503])
def test_a_planted_key_is_in_nothing_that_comes_out(service, code):
    def answer(request):
        request.json({"message": f"key {KEY} in {request.handler.path} {dict(request.handler.headers)} is wrong"}, code)

    with serving(answer) as (url, received):
        retriever = service(caller(retries=1), url=url)
        [result] = retriever.retrieve(["q"], 1)
    assert KEY in f"{received[0].params} {received[0].headers}"
    assert result.status is SearchStatus.ERROR and "<secret>" in result.error
    assert KEY not in f"{result!r} {retriever!r} {retriever.identity} {retriever.hint}"
