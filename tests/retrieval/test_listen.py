"""A real server on a real port against clients that stall, drip, lie about lengths, vanish, or do not read."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from ssrl.errors import UserError
from ssrl.retrieval.listen import GRACE_S, bind, build_server
from ssrl.retrieval.server import make_app
from ssrl.types import Document, SearchResult, SearchStatus

TIMEOUT_S = 1.0
PATIENCE_S = 30  # upper bound where a busy machine may be slow; what must not happen would last longer or for ever
HEAD = b"POST /retrieve HTTP/1.1\r\nHost: x\r\n"
BIG = "x" * 1_000_000


class Scripted:
    """Answers a query with itself; `slow` takes longer than the server's deadline for clients, `big` is more than a socket holds."""

    identity, hint = "scripted", ""

    def __init__(self):
        self.entered = threading.Event()

    def retrieve(self, queries, topk):
        if "slow" in queries:
            self.entered.set()
            time.sleep(1.5 * TIMEOUT_S)
        return [
            SearchResult(status=SearchStatus.OK, documents=(Document(text=BIG if query == "big" else query),) * (topk if query == "big" else 1))
            for query in queries
        ]


@contextmanager
def running(timeout_s=TIMEOUT_S):
    retriever = Scripted()
    app = make_app(retriever, max_queries=8, max_body_kb=64, max_topk=30)
    with bind("127.0.0.1", 0) as listener:
        server = build_server(app, timeout_s)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1], retriever, server
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the server does not end"


@pytest.fixture(scope="module")
def address():
    with running() as (port, retriever, server):
        yield port, retriever, server


@pytest.fixture
def port(address):
    """The running server's port; whatever a test did to it, it answers afterwards."""
    yield address[0]
    assert ask(address[0], "alive") == (200, {"result": [[{"id": "", "contents": '""\nalive'}]]})


def ask(port, *queries, topk=None):
    """One well-behaved request: status and answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("POST", "/retrieve", json.dumps({"queries": queries, "topk": topk}))
    answer = connection.getresponse()
    result = answer.status, json.loads(answer.read())
    connection.close()
    return result


def hostile(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def rest(client):
    """What the server still sends until it closes the connection."""
    said = b""
    try:
        while piece := client.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", False),
        (b"POST /retr", True),
        (HEAD + b"X-Filler: a\r\n", True),
        (HEAD + b"Content-Length: 1000\r\n\r\n", True),
        (HEAD + b'Content-Length: 1000\r\n\r\n{"queries": ["a', True),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nabc", True),
    ],
)
def test_a_client_that_stalls_is_dropped_after_the_timeout(port, sent, answered):
    started = time.monotonic()
    with hostile(port) as client:
        client.sendall(sent)
        said = rest(client)
    assert time.monotonic() - started > 0.9 * TIMEOUT_S
    assert (b" 408 " in said and b"not complete after 1 seconds" in said) if answered else said == b""


@pytest.mark.parametrize("head", [b"", HEAD + b"Content-Length: 60000\r\n\r\n"], ids=["headers", "body"])
def test_a_drip_of_bytes_does_not_prolong_the_deadline(port, head):
    with hostile(port) as client:
        started = time.monotonic()
        client.sendall(head or HEAD)
        with pytest.raises(OSError):
            while time.monotonic() - started < PATIENCE_S:
                client.sendall(b" " if head else b"X: y\r\n")
                time.sleep(0.05)


@pytest.mark.slow
def test_a_second_request_on_a_connection_has_a_deadline_of_its_own():
    body = json.dumps({"queries": ["a"]}).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with running(timeout_s=3) as (port, _, _), hostile(port) as client:
        for idle in (0, 2):  # idle and sending are each within the deadline, together they are not
            time.sleep(idle)
            client.sendall(whole[:20])
            time.sleep(2)
            client.sendall(whole[20:])
            said = client.recv(65536)
            while b"]]}" not in said:
                more = client.recv(65536)
                assert more, said
                said += more
            assert b" 200 " in said
        client.sendall(whole[:20])
        assert b" 408 " in rest(client)


def test_an_idle_connection_is_closed_without_a_word(port):
    body = json.dumps({"queries": ["a"]}).encode()
    with hostile(port) as client:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        said = rest(client)
    assert said.count(b"HTTP/1.1") == 1 and b" 200 " in said


def test_a_retrieval_longer_than_the_deadline_is_answered_and_does_not_block_health(address, port):
    _, retriever, _ = address
    retriever.entered.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, port, "slow")
        assert retriever.entered.wait(5)
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", "/health")
        assert json.loads(connection.getresponse().read())["status"] == "ok"
        assert not slow.done()
        assert slow.result(PATIENCE_S)[0] == 200


@pytest.mark.parametrize("length", [b"Content-Length: 100000000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_is_too_large_is_refused_while_it_comes(port, length):
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    with hostile(port) as client:
        client.sendall(HEAD + length + b"\r\n" + chunk * 3)
        assert b" 413 " in client.recv(65536)


def test_a_length_that_lies_gets_an_answer_or_an_end(port):
    body = b'{"queries": ["a"]}'
    with hostile(port) as client:
        client.sendall(HEAD + b"Content-Length: 5\r\n\r\n" + body)
        said = rest(client)
        assert b" 400 " in said and b" 408 " in said  # five bytes are no JSON, and what follows them is a request that never ends
    with hostile(port) as client:
        client.sendall(HEAD + b"Content-Length: 5\r\nContent-Length: 18\r\n\r\n" + body)
        assert b" 400 " in rest(client)


@pytest.mark.parametrize("sent", [b"\r\n\r\n", b"\x00\xff" * 100, b"GET /" + b"a" * 100_000, HEAD + b"A: b\r\n" * 100_000], ids=range(4))
def test_what_is_no_request_is_refused_and_closed(port, sent):
    with hostile(port) as client:
        try:
            client.sendall(sent)
        except OSError:
            return  # closed already
        said = rest(client)
        assert b" 400 " in said or said == b""


def test_clients_that_vanish_at_any_point_leave_nothing_behind(address, port):
    _, _, server = address
    body = json.dumps({"queries": ["big"], "topk": 30}).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for cut in (1, 30, len(whole) - 3, len(whole), len(whole)):
        client = hostile(port)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # vanish with a reset
        client.sendall(whole[:cut])
        if cut == len(whole):
            client.recv(1000)  # in the middle of 30 MB
        client.close()
    assert ask(port, "a")[0] == 200  # so all of them have been accepted
    assert gone(server)


def test_a_client_that_does_not_read_its_answer_is_dropped(address, port):
    _, _, server = address
    body = json.dumps({"queries": ["big"], "topk": 30}).encode()
    clients = [hostile(port) for _ in range(3)]
    clients[0].sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    clients[1].sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    clients[2].sendall((HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body) * 3)  # the next answers wait for the first
    for client in clients:
        assert client.recv(10)  # the answer has begun
    assert gone(server)
    for client in clients:
        client.close()


def gone(server):
    """Whether the server lets go of all its connections soon."""
    end = time.monotonic() + PATIENCE_S
    while server.server_state.connections and time.monotonic() < end:
        time.sleep(0.05)
    return not server.server_state.connections


def test_fifty_clients_at_once_are_all_answered_beside_fifty_that_stall(port):
    stalled = [hostile(port) for _ in range(50)]
    for client in stalled:
        client.sendall(HEAD)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda i: ask(port, f"q{i}", f"r{i}"), range(100)))
    for i, (status, answer) in enumerate(answers):
        assert status == 200
        assert [found[0]["contents"] for found in answer["result"]] == [f'""\nq{i}', f'""\nr{i}']
    for client in stalled:
        client.close()


def test_the_server_ends_while_clients_hold_on():
    with running(timeout_s=60) as (port, _, _):
        clients = [hostile(port) for _ in range(3)]
        clients[0].sendall(HEAD)
        clients[1].sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        assert ask(port, "a")[0] == 200
        ended = time.monotonic()
    assert time.monotonic() - ended < GRACE_S  # which answers under way would have
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("256.1.1.1", "serve.host=256.1.1.1 is not an address"), ("192.0.2.1", "serve.host=192.0.2.1 is not an address of this machine")],
)
def test_an_address_that_is_not_ours_is_one_sentence(host, expected):
    with pytest.raises(UserError, match=expected):
        bind(host, 0)


def test_a_port_that_is_taken_is_one_sentence():
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"serve.port={port} is taken .* type serve.port={port + 1}"):
            bind("127.0.0.1", port)
