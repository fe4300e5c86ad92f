"""The client of vLLM's training servers against loopback servers that answer, or misbehave, as a test says."""

import shlex
from contextlib import ExitStack

import pytest

from ssrl.calls.vllm import VllmServers
from ssrl.errors import UserError
from tests.servers import free_port, serving


def client(*urls, timeout_s=5.0):
    return VllmServers(urls, model="my model", dtype="float32", context=512, batch=8, timeout_s=timeout_s)


def good(request):
    """What a server answers in each step of taking over weights."""
    request.json({
        "/reset_prefix_cache": {"success": True}, "/weight_info": {"weight_version": "run-1"}, "/collective_rpc": {"results": [None]},
    }.get(request.path, {}))  # fmt: skip


def test_weights_are_taken_over_by_every_server_while_nothing_runs_and_before_the_version_is_named():
    with serving(good) as (one, first), serving(good) as (two, second):
        client(one, two).load("/shared/run-1", "run-1")
    for received in (first, second):
        assert [r.path for r in received] == [
            "/pause", "/collective_rpc", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume", "/weight_info"]  # fmt: skip
        assert received[2].body == {"method": "reload_weights", "kwargs": {"weights_path": "/shared/run-1"}}
        assert received[4].body == {"new_version": "run-1"}


@pytest.mark.parametrize(
    ("path", "answer", "status", "words"),
    [
        ("/weight_info", {"weight_version": "run-0"}, 200, "run-0.*expected run-1"),
        ("/reset_prefix_cache", {"success": False}, 200, "did not drop its prefix cache"),
        ("/pause", {"detail": "Not Found"}, 404, "answered 404 Not Found"),
        ("/collective_rpc", {"error": {"message": "no such folder"}}, 400, "no such folder"),
    ],
)
def test_a_server_that_does_not_take_them_over_is_named_with_the_command_that_starts_it(path, answer, status, words):
    def bad(request):
        request.json(answer, status) if request.path == path else good(request)

    with serving(good) as (one, _), serving(bad) as (two, _), pytest.raises(UserError, match=words) as caught:
        client(one, two).load("/shared/run-1", "run-1")
    assert two in str(caught.value) and one not in str(caught.value)
    assert f"--port {two.rpartition(':')[2]}" in str(caught.value)


def test_a_server_that_is_not_there_is_named_with_a_command_that_a_shell_reads():
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UserError, match="no connection") as caught:
        client(url).generate([{"token_ids": [1], "sampling_params": {}}])
    words = shlex.split(str(caught.value).partition("repeat the command: ")[2])
    assert words[:4] == ["VLLM_SERVER_DEV_MODE=1", "python", "-m", "vllm.entrypoints.openai.api_server"]
    options = dict(zip(words[4::1], words[5::1], strict=False))
    assert options["--model"] == "my model" and options["--port"] == url.rpartition(":")[2] and options["--max-model-len"] == "512"
    assert options["--hf-overrides"] == '{"tie_word_embeddings": false}' and options["--logprobs-mode"] == "processed_logprobs"


def echo(request):
    request.json({"choices": [{"token_ids": request.body["token_ids"]}]})


def test_answers_come_in_order_and_what_begins_alike_goes_to_one_server():
    bodies = [{"token_ids": [group, 5, sample]} for sample in range(4) for group in (9, 1, 7, 3)]
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(echo)) for _ in range(2)]
        found = client(*(url for url, _ in servers)).generate(bodies)
    assert [one["token_ids"] for one in found] == [body["token_ids"] for body in bodies]
    assert [sorted({r.body["token_ids"][0] for r in received}) for _, received in servers] == [[1, 3], [7, 9]]
    assert [len(received) for _, received in servers] == [8, 8]


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{}, {}]}, []])
def test_an_answer_without_exactly_one_choice_is_an_error(answer):
    with serving(lambda request: request.json(answer)) as (url, _), pytest.raises(UserError, match="exactly one choice"):
        client(url).generate([{"token_ids": [1], "sampling_params": {}}])


def test_a_server_that_takes_too_long_is_named():
    def slow(request):
        request.drip(b"HTTP/1.1 200 OK", every_s=0.2)

    with serving(slow) as (url, _), pytest.raises(UserError, match=f"{url}.*within"):
        client(url, timeout_s=0.3).generate([{"token_ids": [1], "sampling_params": {}}])
