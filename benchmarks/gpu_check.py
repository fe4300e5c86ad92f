"""Does what needs a GPU work on this one? A verdict an item, with a tiny random model; nothing is fetched.

Ends in under 10 minutes: what is left by then is skipped.

    python benchmarks/gpu_check.py                  # all items; what needs a GPU is skipped without one
    python benchmarks/gpu_check.py --only vllm fsdp2 --out figures.json

Each item is one or more real training runs in processes of their own. The model is `model=tiny` with heads of 32 numbers, which every build of
vLLM computes. A run counts as right where the sampler's log-probabilities of the trained tokens equal the trainer's
(`mismatch/mean_abs` below 0.001 in float32, 0.02 in bfloat16), in every step, so after each update and each handing over of weights.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from ssrl.compose import Composer
from ssrl.schema import keys

GPUS = torch.cuda.device_count()
TIME_S, ALL_S = 240, 570  # of one run, and of all
STARTED = time.monotonic()
COMMON = (
    "model=path experiment=quickstart data.val.bundled.limit=2 data.test.bundled.limit=2 eval.every=0 eval.samples=0 train.steps=3 train.lr=1e-3 "
    f"train.questions={max(4, GPUS)} rollout.n=4 rollout.temperature=1 rollout.cache_gb=1 train.skip_no_signal=false"
).split()
FLOAT32, BFLOAT16 = "trainer.precision=32-true rollout.dtype=float32".split(), "trainer.precision=bf16-mixed rollout.dtype=bfloat16".split()


class Skipped(Exception):
    """The item needs what is not here."""


class Failed(Exception):
    """The item ran and is wrong."""


def save_model(folder: Path) -> None:
    from transformers import LlamaForCausalLM

    from ssrl.policy.builtin import tiny_model, tiny_tokenizer

    config = tiny_model().config
    config.update({"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def trained(home: Path, *words: str, program: tuple[str, ...] = ("-m", "ssrl"), most: float) -> tuple[list[dict[str, float]], str]:
    """The metrics of the training steps of a run, and what it printed.

    Raises:
        Failed: it did not end well, or a step's mismatch exceeds `most`.
    """
    runs = tempfile.mkdtemp(dir=home)
    every = (*COMMON, f"model.path={home / 'model'}", f"trainer={'gpu' if GPUS else 'cpu'}", f"runs={runs}", *words)
    command = [sys.executable, *program, *{word.partition("=")[0]: word for word in every}.values()]  # later ones win
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
    done = run(command, environment)
    if done.returncode:
        raise Failed(f"{(done.stderr.strip().splitlines() or ['no output'])[-1]}: {' '.join(command[1:])}")
    (path,) = Path(runs).glob("*/seed0/metrics.jsonl")
    steps = [row for row in map(json.loads, path.read_text().splitlines()) if "time/step_s" in row]
    worst = max(row["mismatch/mean_abs"] for row in steps)
    if not worst < most:
        raise Failed(f"log-probabilities of sampler and trainer differ by {worst:.2g} on average, expected below {most:g}: {' '.join(command[1:])}")
    return steps, done.stdout


def run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A process, for as long as there is time.

    Raises:
        Skipped: there is none left.
        Failed: it was not done in time.
    """
    left = min(TIME_S, ALL_S - (time.monotonic() - STARTED))
    if left < 10:
        raise Skipped(f"no time left of {ALL_S} s")
    try:
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=left)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {left:.0f} s: {' '.join(command[1:])}") from None


def figures(steps: list[dict[str, float]]) -> str:
    last = steps[-1]
    worst = max(row["mismatch/mean_abs"] for row in steps)
    return f"mismatch {worst:.1e}, {last['time/generated_tokens_per_s']:.0f} tokens/s sampled, publish {last['time/publish_s']:.2f} s"


def vllm(home: Path) -> Iterator[str]:
    """The engine in process: weights after each of three updates, with sleep between where there is a GPU."""
    if importlib.util.find_spec("vllm") is None:
        raise Skipped("vllm is not installed")
    for name, words, most in (("float32", FLOAT32, 1e-3), ("bfloat16", BFLOAT16, 2e-2)):
        yield f"{name}: {figures(trained(home, 'rollout=vllm', *words, most=most)[0])}"


def sleep(home: Path) -> Iterator[str]:
    """Memory that the engine gives back while it rests."""
    if not GPUS:
        raise Skipped("no GPU")
    if importlib.util.find_spec("vllm") is None:
        raise Skipped("vllm is not installed")
    done = run([sys.executable, __file__, "--rest", str(home / "model")])
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or ["no output"])[-1])
    freed, back = json.loads(done.stdout.splitlines()[-1])
    if freed < 0.9 * 2**30:
        raise Failed(f"only {freed / 2**20:.0f} MiB of a cache of 1024 were free while it rested")
    yield f"{freed / 2**20:.0f} MiB free while it rests, {back / 2**20:.0f} MiB after it took over weights again"


def rest(folder: str) -> None:
    """In a process of its own: bytes that are free while the engine rests and after it has woken, beside those that were."""
    from ssrl.policy.load import load_model
    from ssrl.policy.vllm_inprocess import InProcess
    from ssrl.policy.vllm_sampler import VllmSampler

    loaded, device = load_model(folder), torch.device("cuda", 0)
    loaded.model.to(device)
    engine = InProcess(folder, revision=None, device=device, dtype=torch.bfloat16, context=1024, batch=16, cache_gb=1.0)
    sampler = VllmSampler(engine, loaded.model, loaded.tokenizer, loaded.end_ids, dtype=torch.bfloat16)
    before = torch.cuda.mem_get_info()[0]
    sampler.rest()
    resting = torch.cuda.mem_get_info()[0]
    sampler.publish()
    print(json.dumps([resting - before, torch.cuda.mem_get_info()[0] - before]))


def attention(home: Path) -> Iterator[str]:
    """Packed rows by every implementation of `model.attention`."""
    for choice in keys()["model.attention"].options:
        if choice == "flex" and not GPUS:
            yield "flex: skipped, no GPU"
            continue
        yield f"{choice}: {figures(trained(home, f'model.attention={choice}', 'trainer.row_tokens=4096', *FLOAT32, most=1e-3)[0])}"


def fsdp2(home: Path) -> Iterator[str]:
    """Weights cut over one process and over all GPUs; two processes on the CPU without one."""
    choices = Composer().options("trainer")
    if not {"gpu8", "fsdp2"} <= set(choices):
        raise Skipped("this version has no trainer=gpu8")
    runs = [("trainer=gpu8", f"trainer.devices={n}") for n in sorted({1, GPUS})] if GPUS else [("trainer=fsdp2", "trainer.devices=2")]
    for words in runs:
        for name, arithmetic, most in (("float32", FLOAT32, 1e-3), ("bfloat16", BFLOAT16, 2e-2)):
            yield f"{' '.join(words)}, {name}: {figures(trained(home, *words, *arithmetic, most=most)[0])}"


def memory(home: Path) -> Iterator[str]:
    """Peak memory and speed of 16 rollouts of up to 512 tokens, sampled by the base install's sampler."""
    if not GPUS:
        raise Skipped("no GPU")
    words = ("rollout.max_response_tokens=512", "rollout.stop_at_answer=false", *BFLOAT16)
    steps, printed = trained(home, *words, program=(__file__, "--peak"), most=2e-2)
    tokens = steps[-1]["train/input_tokens"] / steps[-1]["time/update_s"]
    yield f"peak {int(printed.splitlines()[-1]) / 2**20:.0f} MiB, {tokens:.0f} tokens/s updated, {figures(steps)}"


ITEMS: dict[str, Callable[[Path], Iterator[str]]] = {item.__name__: item for item in (vllm, sleep, attention, fsdp2, memory)}


def verdict(item: Callable[[Path], Iterator[str]], home: Path) -> tuple[str, list[str]]:
    told: list[str] = []
    try:
        told += item(home)
        return "ok", told
    except Skipped as reason:
        return f"skipped: {reason}", told
    except Failed as reason:
        return f"FAILED: {reason}", told
    except Exception as problem:  # what a run printed or left was not what it should be: the other items are still to be looked at
        return f"FAILED: {type(problem).__name__}: {problem}", told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ITEMS, default=list(ITEMS))
    parser.add_argument("--out", type=Path, help="write the verdicts there as JSON, too")
    arguments = parser.parse_args()
    found = {"machine": torch.cuda.get_device_name() if GPUS else "no GPU", "torch": torch.__version__}
    print(f"{found['machine']}, {GPUS} GPUs, torch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        save_model(home / "model")
        for name in arguments.only:
            started = time.monotonic()
            word, told = verdict(ITEMS[name], home)
            found[name] = {"verdict": word, "figures": told, "seconds": round(time.monotonic() - started, 1)}
            print(f"{name}: {word} ({found[name]['seconds']} s)", *(f"    {line}" for line in told), sep="\n", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(found, indent=1))
    sys.exit(any(isinstance(one, dict) and one["verdict"].startswith("FAILED") for one in found.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rest"]:
        rest(sys.argv[2])
    elif sys.argv[1:2] == ["--peak"]:
        from ssrl.app import main as train

        train(sys.argv[2:])
        print(torch.cuda.max_memory_allocated())
    else:
        main()
