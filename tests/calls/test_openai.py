"""The chat client against servers that speak the OpenAI chat API, well or badly."""

import pytest

from ssrl.calls.cache import Cache
from ssrl.calls.caller import Caller, Limits
from ssrl.calls.openai import OpenAIChat
from ssrl.errors import UserError
from ssrl.types import ChatReply, ChatRequest, SearchStatus
from tests.servers import free_port, serving


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def chat(urls, cache=None, **limits):
    return OpenAIChat(urls, "qwen", 0.8, 600, Caller(Limits(**{"timeout_s": 20.0, "backoff_s": 0.001, **limits})), cache)


def echo(request):
    text = f"{request.body['messages'][-1]['content']}/{request.body['seed']}"
    request.json({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], "usage": {}})


def asked(text, seed=1):
    return ChatRequest(text=text, seed=seed)


def test_replies_come_in_order_each_with_its_own_seed_over_several_servers():
    with serving(echo) as (one, got_one), serving(echo) as (other, got_other):
        replies = chat([f"{one}/v1", f"{other}/v1/"]).reply([asked("a", 5), asked("b", 6), asked("c", 5), asked("d", 2**62 + 3)])
    assert [reply.text for reply in replies] == ["a/5", "b/6", "c/5", "d/3"]  # 2^62 + 3 modulo 2^31
    assert all(reply.status is SearchStatus.OK and not reply.cached and reply.latency_s > 0 for reply in replies)
    assert len(got_one) == len(got_other) == 2
    request = next(request for request in got_one + got_other if request.body["seed"] == 6)
    assert (request.method, request.path) == ("POST", "/v1/chat/completions") and "authorization" not in request.headers
    assert request.body == {
        "model": "qwen", "temperature": 0.8, "max_tokens": 600, "seed": 6,
        "messages": [{"role": "system", "content": ""}, {"role": "user", "content": "b"}],
    }  # fmt: skip


def test_an_address_without_a_path_gets_the_usual_one():
    with serving(echo) as (url, received):
        chat([url]).reply([asked("a")])
    assert received[0].path == "/v1/chat/completions"


def test_a_key_of_the_environment_goes_along_and_shows_nowhere(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789")

    def answer(request):
        request.json({"error": {"message": f"wrong key: {request.headers['authorization']}"}}, 401)

    with serving(answer) as (url, received):
        client = chat([url])
        [reply] = client.reply([asked("a")])
    assert received[0].headers["authorization"] == "Bearer sk-planted-0123456789"
    assert reply.status is SearchStatus.ERROR and reply.error.endswith("answered 401 Unauthorized: wrong key: <secret>")
    assert "planted" not in f"{reply!r} {client!r} {client.identity} {client.hint}"


@pytest.mark.parametrize("content", ["", " \n", None])
def test_a_reply_without_words_is_empty(content):
    with serving(lambda request: request.json({"choices": [{"message": {"content": content}}]})) as (url, _):
        [reply] = chat([url]).reply([asked("a")])
    assert (reply.status, reply.text) == (SearchStatus.EMPTY, content or "")


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"text": "x"}]}, [], {"choices": [{"message": {"content": ["x"]}}]}, "x", None])
def test_a_wrong_shape_is_a_failed_reply(answer):
    with serving(lambda request: request.json(answer)) as (url, received):
        [reply] = chat([url]).reply([asked("a")])
    assert reply.status is SearchStatus.ERROR and "the chat server's" in reply.error and len(received) == 1


def test_a_server_that_recovers_is_asked_again_and_one_that_is_gone_is_a_failed_reply():
    with serving(lambda request: request.raw(b"", 500) if request.index == 0 else echo(request)) as (url, _):
        assert chat([url]).reply([asked("a", 7)])[0].text == "a/7"
    client = chat([f"http://127.0.0.1:{free_port()}/v1"], retries=1)
    replies = client.reply([asked("a"), asked("b")])
    assert [reply.status for reply in replies] == [SearchStatus.ERROR] * 2 and "no connection" in replies[1].error


def test_the_hint_starts_the_server_at_the_port_that_is_asked():
    assert chat(["http://127.0.0.1:6001/v1"]).hint == "vllm serve qwen --port 6001"
    assert chat(["http://127.0.0.1:7/v1", "http://127.0.0.1:8/v1"]).hint == "vllm serve qwen --port 7"


def test_the_identity_is_what_a_reply_depends_on_and_not_where_it_comes_from():
    assert chat(["http://a:1"]).identity == chat(["http://b:2"]).identity == "openai qwen temperature=0.8 max_tokens=600"


def test_with_a_cache_equal_text_and_seed_are_answered_once_and_failures_again(tmp_path):
    cache = Cache(tmp_path / "cache.db")

    def answer(request):
        request.json({}, 400) if request.body["messages"][-1]["content"] == "bad" else echo(request)

    with serving(answer) as (url, received):
        chat([url], cache).reply([asked("a", 1), asked("bad")])
        replies = chat([url], cache).reply([asked("a", 1), asked("a", 2), asked("bad")])
    assert replies[0] == ChatReply(status=SearchStatus.OK, text="a/1", cached=True)
    assert (replies[1].text, replies[1].cached) == ("a/2", False)
    assert replies[2].status is SearchStatus.ERROR
    assert len(received) == 4


def test_no_address_is_an_error_before_anything_runs():
    with pytest.raises(UserError, match=r"simulator.urls=\[\] names no server; type simulator.urls=\[http://127.0.0.1:6001/v1\]"):
        chat([])
