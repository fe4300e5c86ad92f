"""The HTTP client against servers that are slow, rude, large, broken or talkative."""

import json
import logging
import subprocess
import sys
import threading
import time
import traceback
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from ssrl.calls.caller import Caller, CallFailed, Limits
from ssrl.calls.http import Http
from ssrl.types import SearchStatus
from tests.servers import free_port, serving

ROOT = Path(__file__).parents[2]
KEY = "sk-planted/0123456789+abc"


PATIENCE_S = 20.0  # what a busy machine may take for anything; what a deadline prevents takes longer


@pytest.fixture(scope="module")
def http():
    """A client that has been used, so that no deadline pays for reading certificates."""
    client = Http()
    with serving(lambda request: request.json({})) as (url, _):
        client.get(url, timeout_s=60)
    return client


def failure(call, *args, **kwargs):
    with pytest.raises(CallFailed) as caught:
        call(*args, **kwargs)
    return caught.value


def test_json_goes_out_and_comes_in(http):
    with serving(lambda request: request.json({"you": request.body, "q": request.params, "agent": "x"})) as (url, received):
        body = {"queries": ["Zoë 日本"], "topk": 3}
        assert http.post(f"{url}/a", body, timeout_s=PATIENCE_S, headers={"X-API-KEY": "k123"})["you"] == body
        assert http.get(f"{url}/b", params={"q": "a&b=c ü", "n": 2}, timeout_s=PATIENCE_S)["q"] == {"q": "a&b=c ü", "n": "2"}
    assert [(request.method, request.path) for request in received] == [("POST", "/a"), ("GET", "/b")]
    assert received[0].headers["x-api-key"] == "k123" and received[0].headers["content-type"] == "application/json"


def test_threads_share_a_client_and_get_each_their_own_answer(http):
    together = threading.Barrier(8)

    def answer(request):
        together.wait(PATIENCE_S)  # none is answered before eight are there
        request.json(request.body)

    with serving(answer) as (url, _):
        attempts = [lambda left, n=n: http.post(url, {"n": n}, timeout_s=left) for n in range(16)]
        outcomes = Caller(Limits(concurrency=8)).run(attempts)
    assert [outcome.value for outcome in outcomes] == [{"n": n} for n in range(16)]


def test_a_silent_server_is_a_timeout(http):
    release = threading.Event()
    with serving(lambda request: release.wait(2 * PATIENCE_S)) as (url, _):
        start = time.monotonic()
        error = failure(http.get, url, timeout_s=0.2)
        assert 0.2 <= time.monotonic() - start < PATIENCE_S
        release.set()
    assert (error.status, error.retryable) == (SearchStatus.TIMEOUT, True)
    assert str(error) == f"GET {url} was not answered within 0.2 s"


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b"HTTP/1.1 500 Oh\r\nContent-Length: 900\r\n\r\n"],
    ids=["in the head", "in the body", "in the body of an error"],
)
def test_a_server_that_drips_bytes_cannot_hold_a_request_beyond_its_deadline(http, start):
    def answer(request):
        request.handler.wfile.write(start)
        request.drip(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 800, every_s=0.05)  # 40 s, unless the client hangs up

    with serving(answer) as (url, _):
        begin = time.monotonic()
        error = failure(http.get, url, timeout_s=0.3)
        assert 0.3 <= time.monotonic() - begin < PATIENCE_S
    assert error.status is SearchStatus.TIMEOUT


def test_a_deadline_that_has_passed_asks_nobody(http):
    with serving(lambda request: request.json({})) as (url, received):
        assert failure(http.get, url, timeout_s=-1.0).status is SearchStatus.TIMEOUT
    assert received == []


def test_nobody_there_is_a_failure_that_may_pass(http):
    port = free_port()
    error = failure(http.get, f"http://127.0.0.1:{port}/x", timeout_s=PATIENCE_S)
    assert (error.status, error.retryable) == (SearchStatus.ERROR, True)
    assert str(error).startswith(f"GET http://127.0.0.1:{port}/x: no connection (")


@pytest.mark.parametrize("after", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"half\": "], ids=["at once", "in the body"])
def test_a_dropped_connection_may_pass(http, after):
    def answer(request):
        request.drop(after) if request.index == 0 else request.json(["up"])

    with serving(answer) as (url, _):
        error = failure(http.get, url, timeout_s=PATIENCE_S)
        assert (error.status, error.retryable) == (SearchStatus.ERROR, True) and "broke off" in str(error)
        assert http.get(url, timeout_s=PATIENCE_S) == ["up"]


def test_a_server_that_speaks_something_else_is_a_failure(http):
    with serving(lambda request: request.drop(b"220 mail.example.org ESMTP\r\n")) as (url, _):
        assert failure(http.get, url, timeout_s=PATIENCE_S).status is SearchStatus.ERROR


@pytest.mark.parametrize(("code", "retryable"), [(400, False), (401, False), (404, False), (408, True), (422, False), (429, True), (500, True), (503, True)])
def test_which_codes_may_pass(http, code, retryable):
    with serving(lambda request: request.json({"detail": "why\n so"}, code)) as (url, _):
        error = failure(http.post, f"{url}/retrieve", {}, timeout_s=PATIENCE_S)
    assert error.retryable is retryable and error.status is SearchStatus.ERROR
    assert str(error).startswith(f"POST {url}/retrieve answered {code} ") and str(error).endswith(": why so")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
        (b'{"message": "quota used up"}', "quota used up"),
        (b'{"detail": [{"loc": ["topk"]}]}', '[{"loc": ["topk"]}]'),
        (b"<h1>Bad</h1>\r\n\t<p>gateway \xff\x1b[31m", "<h1>Bad</h1> <p>gateway \ufffd [31m"),
        (b"x" * 100_000, "x" * 200 + " …"),
        (b"[" * 60_000, "[" * 200 + " …"),
        (b'{"error": null}', '{"error": null}'),
    ],
)
def test_an_error_holds_the_servers_words_on_one_short_line(http, body, words):
    with serving(lambda request: request.raw(body, 400)) as (url, _):
        assert str(failure(http.get, url, timeout_s=PATIENCE_S)) == f"GET {url} answered 400 Bad Request: {words}"


def test_how_long_a_server_asks_to_wait_is_read_as_seconds_and_as_a_date(http):
    soon = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    waits = ["7", soon, past, "soon", "-3"]
    with serving(lambda request: request.json({}, 429, Retry_After=waits[request.index])) as (url, _):
        found = [failure(http.get, url, timeout_s=PATIENCE_S).retry_after_s for _ in waits]
    assert found[0] == 7 and 3600 - PATIENCE_S < found[1] <= 3600 and found[2:] == [0, None, None]


def test_a_move_is_not_followed_because_a_key_would_go_along(http):
    with serving(lambda request: request.json({})) as (other, received):
        with serving(lambda request: request.json({}, 302, Location=f"{other}/new?key={KEY}")) as (url, _):
            error = failure(http.get, url, timeout_s=PATIENCE_S, headers={"X-API-KEY": KEY})
    assert str(error) == f"GET {url} answered 302 Found: moved to {other}/new; give that address"
    assert received == [] and not error.retryable


def test_an_answer_of_20_mb_is_given_up_at_16(http):
    sent = 0

    def answer(request):
        nonlocal sent
        request.handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            request.handler.wfile.write(b"100000\r\n" + b" " * 2**20 + b"\r\n")
            sent += 1
        request.handler.wfile.write(b"2\r\n[]\r\n0\r\n\r\n")

    with serving(answer) as (url, _):
        error = failure(http.get, url, timeout_s=20)
    assert str(error) == f"GET {url} answered more than 16777216 bytes" and not error.retryable


def test_the_bound_itself_is_allowed():
    body = json.dumps("x" * 98).encode()
    with serving(lambda request: request.raw(body)) as (url, _):
        assert Http(max_bytes=100).get(url, timeout_s=PATIENCE_S) == "x" * 98
        assert "more than 99 bytes" in str(failure(Http(max_bytes=99).get, url, timeout_s=PATIENCE_S))


@pytest.mark.parametrize("body", [b"", b"<html>it works</html>", b'{"result": [', b"\xff\xfe\x00", b"[" * 200_000])
def test_what_is_no_json_is_a_failure_that_will_not_pass(http, body):
    with serving(lambda request: request.raw(body)) as (url, _):
        error = failure(http.get, url, timeout_s=PATIENCE_S)
    assert "expected JSON" in str(error) and len(str(error)) < 200 and not error.retryable


def test_not_a_number_is_nothing_and_half_characters_are_question_marks(http):
    body = rb'{"score": [NaN, -Infinity, 1.5], "t\udc00": ["a\ud800b", "\ud83d\ude00"], "n": null}'
    with serving(lambda request: request.raw(body)) as (url, _):
        assert http.get(url, timeout_s=PATIENCE_S) == {"score": [None, None, 1.5], "t?": ["a?b", "\U0001f600"], "n": None}


def test_a_compressed_answer_is_not_asked_for_and_not_inflated(http):
    bomb = zlib.compress(b" " * 10**6, wbits=31)
    with serving(lambda request: request.raw(bomb, Content_Encoding="gzip")) as (url, received):
        assert "expected JSON" in str(failure(http.get, url, timeout_s=PATIENCE_S))
    assert received[0].headers["accept-encoding"] == "identity"


def test_loopback_is_never_reached_through_a_proxy_but_other_hosts_are(monkeypatch):
    dead = f"http://127.0.0.1:{free_port()}"
    with serving(lambda request: request.json({"proxied": request.handler.path})) as (proxy, received):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        client = Http()
        with serving(lambda request: request.json("direct")) as (url, _):
            assert client.get(url, timeout_s=PATIENCE_S) == "direct"
            assert client.get(url.replace("127.0.0.1", "localhost"), timeout_s=PATIENCE_S) == "direct"
        assert "no connection" in str(failure(client.get, dead, timeout_s=PATIENCE_S))
        assert received == []
        assert client.get("http://retriever.example/x", timeout_s=PATIENCE_S) == {"proxied": "http://retriever.example/x"}


def leaks(key, texts):
    return [text for text in texts if key in text or key.replace("/", "%2F").replace("+", "%2B") in text]


def test_a_key_is_in_no_error_and_no_log(http, caplog):
    """The server repeats what it was sent, in every way a server can fail."""
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    modes = ["401", "500", "nojson", "drop", "slow", "location", "reason"]
    release = threading.Event()

    def answer(request):
        echo = f"{request.handler.path} {request.handler.headers} {json.dumps(str(request.headers))}"
        mode = request.path.strip("/")
        if mode == "drop":
            request.drop(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        elif mode == "slow":
            release.wait(PATIENCE_S)
        elif mode == "location":
            request.raw(b"", 301, Location=f"/{request.params['api_key']}{request.handler.path}")
        elif mode == "reason":
            request.drop(f"HTTP/1.1 418 {KEY}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            request.raw(echo.encode(), {"401": 401, "500": 500, "nojson": 200}[mode])

    texts = []
    with serving(answer) as (url, received):
        for mode in modes:
            for headers in ({"X-API-KEY": KEY}, {"Authorization": f"Bearer {KEY}"}):
                params = {"q": "capital", "api_key": KEY}
                error = failure(http.get, f"{url}/{mode}", params=params, headers=headers, timeout_s=0.2 if mode == "slow" else PATIENCE_S)
                texts.append("".join(traceback.format_exception(error)))
        release.set()
    assert len(received) == 14 and received[0].params["api_key"] == KEY and received[0].headers["x-api-key"] == KEY
    [texts.append(record.getMessage()) for record in caplog.records]
    assert "<secret>" in texts[0]
    assert leaks(KEY, texts) == []
    assert leaks("planted", texts) == []


def test_a_password_in_the_address_is_not_shown(http):
    with serving(lambda request: request.json({"detail": "user ann, password pa55word"}, 401)) as (url, _):
        error = failure(http.get, url.replace("127", "ann:pa55word@127"), timeout_s=PATIENCE_S)
    assert str(error) == f"GET {url} answered 401 Unauthorized: user ann, password <secret>"


def test_a_header_that_cannot_be_sent_is_not_quoted(http):
    error = failure(http.get, f"http://127.0.0.1:{free_port()}", timeout_s=PATIENCE_S, headers={"X-API-KEY": f"{KEY}\n"})
    assert leaks("planted", ["".join(traceback.format_exception(error))]) == []


def test_a_process_ends_at_once_after_a_request_that_hangs():
    release = threading.Event()
    code = (
        "import sys, time\n"
        "from ssrl.calls.caller import Caller, Limits\n"
        "from ssrl.calls.http import Http\n"
        "http = Http()\n"
        "[outcome] = Caller(Limits(timeout_s=0.3, retries=0)).run([lambda left: http.get(sys.argv[1], timeout_s=left)])\n"
        "print(outcome.status, time.monotonic())\n"
    )
    with serving(lambda request: release.wait(3 * PATIENCE_S)) as (url, _):
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, timeout=60, cwd=ROOT)
        gone = time.monotonic()
        release.set()
    status, ended = done.stdout.split()
    assert (status, done.returncode, done.stderr) == ("timeout", 0, "")
    assert gone - float(ended) < PATIENCE_S
