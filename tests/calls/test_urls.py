"""Several servers share the load, and a failing one rests."""

import pytest

from ssrl.calls.caller import CallFailed
from ssrl.calls.urls import Urls, shown
from ssrl.errors import UserError

A, B, C = "http://a:1", "http://b:2", "http://c:3"


def urls(*given, **more):
    return Urls(given, key="retriever.urls", example="http://127.0.0.1:8000", **more)


def fail(url, retryable=True):
    raise CallFailed(url, retryable=retryable)


def test_calls_go_round():
    servers = urls(A, B, C)
    assert [servers.ask(str) for _ in range(5)] == [A, B, C, A, B]


def test_a_server_that_failed_rests_while_another_is_up():
    servers = urls(A, B, C)
    with pytest.raises(CallFailed):
        servers.ask(fail)  # a
    assert [servers.ask(str) for _ in range(4)] == [B, C, B, C]


def test_a_refusal_is_no_reason_to_rest():
    servers = urls(A, B)
    with pytest.raises(CallFailed):
        servers.ask(lambda url: fail(url, retryable=False))
    assert [servers.ask(str) for _ in range(2)] == [B, A]


def test_after_its_rest_it_takes_part_again():
    servers = urls(A, B, rest_s=0.0)
    with pytest.raises(CallFailed):
        servers.ask(fail)
    assert {servers.ask(str) for _ in range(2)} == {A, B}


def test_where_all_rest_the_one_that_has_rested_longest_is_asked():
    servers = urls(A, B)
    for expected in (A, B, A):
        with pytest.raises(CallFailed, match=expected):
            servers.ask(fail)


def test_equal_addresses_are_one_and_their_order_is_no_identity():
    assert urls(f"{A}/", A, f" {B} ").all == (A, B)
    assert urls(B, A).identity == urls(A, B).identity == f"{A} {B}"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((), "retriever.urls=[] names no server; type retriever.urls=[http://127.0.0.1:8000]"),
        (("localhost:8000",), "retriever.urls holds 'localhost://8000', which is no http"),
        (("ftp://a",), "retriever.urls holds 'ftp://a', which is no http:// or https:// address; type retriever.urls=[http://127.0.0.1:8000]"),
        (("http://a:99999",), "retriever.urls holds 'an unreadable address'"),
        (("http://",), "retriever.urls holds 'http://'"),
    ],
)
def test_what_is_no_address_is_refused_with_an_example(given, sentence):
    with pytest.raises(UserError) as error:
        urls(*given)
    assert sentence in str(error.value)


def test_an_address_is_shown_without_what_may_be_secret():
    assert shown("https://user:pa55@host:8/path?api_key=pa55#pa55") == "https://host:8/path"
    assert shown("http://[::1]:8000/x") == "http://[::1]:8000/x"
    assert shown("/elsewhere?key=1") == "/elsewhere"
