"""Training with vLLM as the sampler: its engine in each process, and a server of it."""

import pytest

from ssrl.calls.vllm import VllmServers
from ssrl.runlog.rollouts import read_rollouts, rollout_files
from tests.policy.vllm_models import save
from tests.servers import free_port
from tests.vllm_python import START_S, Server, python_with_vllm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * START_S)]
STEPS = ("train.steps=3", "train.lr=0.01", "algo.kl=none", "train.skip_no_signal=false", "rollout.cache_gb=0.3")


def check(folder):
    """Every step trained, on log-probabilities that are those of the weights before it."""
    steps = [row for row in folder.metrics() if "train/lr" in row]
    assert len(steps) == 3
    for row in steps:
        assert row["mismatch/mean_abs"] < 1e-4 and row["loss/grad_norm"] > 0
    counts = {step: len(list(read_rollouts(path))) for split, step, path in rollout_files(folder.path / "rollouts") if split == "train"}
    assert counts == {1: 8, 2: 8, 3: 8}


@pytest.mark.parametrize("processes", ["trainer=cpu", "trainer=ddp2", "trainer=fsdp2"])
def test_the_engine_samples_from_the_weights_of_the_step_in_every_process(runs, tmp_path, processes):
    folder = save("llama-tied", tmp_path / "model")
    code, said = runs.command("rollout=vllm", "model=path", f"model.path={folder}", processes, *STEPS, python=python_with_vllm())
    assert code == 0, said
    check(runs.folder())


def test_a_real_model_trains_with_the_engine_in_process(runs):
    words = ("train.steps=2", "train.lr=0.0001", "rollout.n=2", "algo.kl=none", "train.skip_no_signal=false", "rollout.cache_gb=0.5")
    code, said = runs.command("rollout=vllm", "model=smollm2-135m", *words, python=python_with_vllm())
    assert code == 0, said
    assert [row["mismatch/mean_abs"] < 1e-4 for row in runs.folder().metrics() if "train/lr" in row] == [True, True]


def test_a_server_samples_from_the_weights_of_the_step(runs, tmp_path):
    folder, url = save("llama-tied", tmp_path / "model"), f"http://127.0.0.1:{free_port()}"
    with Server(VllmServers([url], model=str(folder), dtype="float32", context=8192, batch=16, timeout_s=300), url, tmp_path / "server.log"):
        check(runs.run("rollout=vllm_server", f"rollout.urls=[{url}]", "model=path", f"model.path={folder}", *STEPS[:-1]))
    assert list((tmp_path / "runs" / ".weights").iterdir()) == []
