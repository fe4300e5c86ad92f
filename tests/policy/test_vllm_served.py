"""rollout=vllm_server: how weights reach servers, and the real server (vLLM's CPU build) in a process of its own."""

import os
import resource
import signal

import pytest
import torch
from safetensors.torch import load_file

from ssrl.calls.http import Http
from ssrl.calls.vllm import VllmServers
from ssrl.errors import UserError
from ssrl.policy import vllm_served
from ssrl.policy.load import load_model
from ssrl.policy.vllm_protocol import Job
from ssrl.policy.vllm_sampler import VllmSampler
from ssrl.policy.vllm_served import Served
from tests.policy.vllm_cases import SHARED, request
from tests.policy.vllm_models import save
from tests.servers import free_port
from tests.vllm_python import START_S, Server


def here(work, beside):
    return work()


class Reader:
    """A server that reads the weights it is pointed at, and says what it was asked."""

    def __init__(self, problem=None):
        self.problem, self.weights, self.bodies, self.files = problem, {}, [], []

    def load(self, folder, version):
        if self.problem:
            raise UserError(self.problem)
        self.files = sorted(os.listdir(folder))
        self.weights = {name: value for file in self.files for name, value in load_file(f"{folder}/{file}").items()}

    def generate(self, bodies):
        self.bodies += bodies
        content = [{"logprob": -0.5, "top_logprobs": [{"logprob": -0.5}, {"logprob": -1.5}]}]
        choice = {"token_ids": [7], "finish_reason": "length", "weight_versions": [{"version": "v1", "start": 0, "end": 1}], "logprobs": {"content": content}}
        return [choice for _ in bodies]


@pytest.mark.parametrize("shard", [2**31, 500])
def test_servers_read_every_weight_from_the_folder_which_is_gone_afterwards(tmp_path, monkeypatch, shard):
    monkeypatch.setattr(vllm_served, "_SHARD", shard)
    shared = torch.randn(10, 12)
    weights = {"embed": shared, "head": shared, "half": torch.randn(3).bfloat16(), "turned": torch.randn(4, 5).T}
    servers = Reader()
    assert Served(servers, tmp_path / "w", here).load(iter(weights.items()), "v1") == "v1"
    assert servers.weights.keys() == weights.keys()
    assert all(torch.equal(servers.weights[name], weight) for name, weight in weights.items())
    assert len(servers.files) == (1 if shard == 2**31 else 3)
    assert os.listdir(tmp_path / "w") == []


def test_the_folder_is_gone_where_a_server_failed_too(tmp_path):
    with pytest.raises(UserError, match="broken"):
        Served(Reader("broken"), tmp_path / "w", here).load(iter({"a": torch.ones(1)}.items()), "v1")
    assert os.listdir(tmp_path / "w") == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="rollout.weights="):
        Served(Reader(), tmp_path / "file", here).load(iter({"a": torch.ones(1)}.items()), "v1")


def test_a_disk_that_is_full_is_one_sentence_and_every_weight_is_read_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(vllm_served, "_SHARD", 400_000)  # the first file fails, before the last weight is read
    weights = iter({name: torch.ones(100_000) for name in "abc"}.items())
    limits, told = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(UserError, match="rollout.weights=.* name a folder"):
            Served(Reader(), tmp_path / "w", here).load(weights, "v1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, told)
    assert list(weights) == [] and os.listdir(tmp_path / "w") == []


def test_one_process_writes_and_all_learn_the_version(tmp_path):
    def elsewhere(work, beside):
        beside()
        return "of the first"

    servers, weights = Reader(), iter({"a": torch.ones(1), "b": torch.ones(2)}.items())
    assert Served(servers, tmp_path, elsewhere).load(weights, "of this one") == "of the first"
    assert servers.weights == {}
    assert list(weights) == [], "every process reads every weight, which may take all of them"


def test_a_job_carries_its_version_as_salt_and_an_answer_is_read_whole(tmp_path):
    servers = Reader()
    (done,) = Served(servers, tmp_path, here).generate([Job(ids=(1, 2), parameters={"seed": 3}, seed=3)], "v1")
    assert servers.bodies == [{"token_ids": [1, 2], "sampling_params": {"seed": 3}, "cache_salt": "v1"}]
    assert (done.ids, done.logprobs, done.top, done.finish, done.versions) == ((7,), (-0.5,), ((-0.5, -1.5),), "length", ("v1",))


# the real server


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    loaded = load_model(str(save("llama-tied", folder / "model")))
    url = f"http://127.0.0.1:{free_port()}"
    servers = VllmServers([url], model=loaded.folder, dtype="float32", context=512, batch=16, timeout_s=300)
    with Server(servers, url, folder / "server.log", read=600) as server:
        backend = Served(servers, folder / "weights", here)
        yield server, VllmSampler(backend, loaded.model, loaded.tokenizer, loaded.end_ids, dtype=torch.float32)


slow = [pytest.mark.slow, pytest.mark.timeout(2 * START_S)]


@pytest.mark.parametrize("case", [pytest.param(case, marks=slow, id=case.__name__) for case in SHARED])
def test_a_real_server(served, case):
    case(served[1])


@pytest.mark.slow
@pytest.mark.timeout(2 * START_S)
def test_a_server_whose_weights_somebody_else_has_changed_is_an_error(served):
    server, sampler = served
    Http().post(f"{server.url}/update_weight_version", {"new_version": "somebody-else"}, timeout_s=10)
    with pytest.raises(UserError, match=f"somebody-else, expected {sampler.version}"):
        sampler.generate([request([5])])
    sampler.publish()


@pytest.mark.slow
@pytest.mark.timeout(2 * START_S)
def test_a_dead_server_is_named_with_the_command_that_starts_it(served):
    server, sampler = served
    server.kill()  # the last test: the fixture's server is gone
    for attempt in (lambda: sampler.generate([request([5])]), sampler.publish):
        with pytest.raises(UserError, match=f"{server.url} failed: .*no connection.*VLLM_SERVER_DEV_MODE=1 python -m vllm"):
            attempt()
    with pytest.raises(RuntimeError, match="publish first"):
        sampler.generate([request([5])])
