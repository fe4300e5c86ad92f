"""Generation beside transformers' `generate`, and the episode loop beside generation alone: one machine, in turns, all lengths forced.

    python benchmarks/generation.py                                              # bf16 on all sides; --dtype fp32
    python benchmarks/generation.py --vllm-python VLLM/bin/python                # vLLM, too: a Python with it and this package's dependencies
    python benchmarks/generation.py --sides ours transformers --peer-batch 128   # without the loop; sequences of transformers at once

Default: 64 questions x 5 samples x 128 tokens at temperature 1, of the bundled one-shot prompt, five rounds after one to warm up, with the
sides in alternating order. Overrides of the configuration (rollout.batch=64) may come first. Prints medians [least, most], and medians of
the rounds' own ratios. Ours and vLLM also give log-probabilities; each takes over the weights before its turn, outside the clock, which
empties vLLM's cache. transformers computes the prompt once a sample, pads to the longest prompt of the batch, and gives tokens alone.

The loop is measured on each of our samplers among the sides, and beside that sampler without it:

    one turn    full-sim: one generation a rollout, beside the same requests in one plain call
    two turns   a search after half of the tokens, answered at once with about 100 more, beside the same two generations a rollout as
                plain calls, which read the same prompts; and beside one plain call of as many new tokens, which reads no prompt again and
                has no documents to attend to

What the loop costs on top holds looking for stop strings, which plain calls do not; the last column is the time outside of the sampler alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from common import Worker, answer, my_turn, show

SIDES = ("ours", "vllm", "transformers", "loop")
LOOPS = ("one turn", "two turns", "two calls")  # two calls: those of the two turns, so they come later in the first round
BESIDE = (("one turn", "plain"), ("two turns", "two calls"), ("two turns", "plain"))
Rows = dict[tuple[str, str], list[dict[str, float]]]  # by side and kind of work, one a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", help="a Python with vLLM")
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: all, vllm where --vllm-python is given")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--new", type=int, default=128, help="tokens of every response")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-batch", type=int, default=64, help="most sequences of transformers at once, all samples of as many questions as fit")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--worker", choices=SIDES[:3], help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*")
    a = parser.parse_args()
    if a.worker:
        work(a)
        return
    sides = a.sides or [side for side in SIDES if side != "vllm" or a.vllm_python]
    if "vllm" in sides and not a.vllm_python:
        parser.error("--vllm-python is missing: a Python that can import vllm")
    if not {"ours", "vllm"} & set(sides) and "loop" in sides:
        parser.error("--sides loop runs on our samplers: add ours or vllm")
    rows = measure(a, sides)
    print(f"{a.questions * a.n} sequences ({a.questions} questions x {a.n}), {a.new} new tokens, {a.dtype}, {a.rounds} rounds\n")
    print(speed(rows))
    if "loop" in sides:
        print("\n" + on_top(rows))


def measure(a: argparse.Namespace, sides: list[str]) -> Rows:
    """All rounds but the first."""
    described(a)
    workers = {side: Worker(command(a, side)) for side in sides if side != "loop"}
    jobs = [(side, kind) for side in workers for kind in ("plain", *(LOOPS if "loop" in sides and side != "transformers" else ()))]
    rows: Rows = defaultdict(list)
    for number in range(a.rounds + 1):
        for side, kind in reversed(jobs) if number % 2 else jobs:
            row = workers[side].turn(kind)
            print(f"round {number}, {side}, {kind}: {row}", file=sys.stderr, flush=True)
            if row["tokens"] != a.questions * a.n * a.new:
                raise SystemExit(f"{side} wrote {row['tokens']:.0f} tokens ({kind}), expected {a.questions * a.n * a.new}")
            rows[side, kind].append(row)
    for worker in workers.values():
        worker.close()
    return {key: found[1:] for key, found in rows.items()}


def command(a: argparse.Namespace, side: str) -> list[str]:
    """How the worker of a side is started; vLLM's Python finds this package by its place."""
    words = [__file__, "--worker", side, *sys.argv[1:]]
    if side != "vllm":
        return [sys.executable, *words]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return ["env", f"PYTHONPATH={path}", a.vllm_python, *words]


def described(a: argparse.Namespace) -> None:
    """Say how long the prompts are; a built-in model is converted here, before workers look for it."""
    from ours import asked

    renderer, questions = asked(configured(a, "ours"))
    sizes = [len(renderer.prompt_ids(question)) for question in questions]
    print(f"prompts of {min(sizes)} to {max(sizes)} tokens", file=sys.stderr)


def configured(a: argparse.Namespace, side: str):
    from ours import compose

    sampler, dtype = "vllm" if side == "vllm" else "hf", "float32" if a.dtype == "fp32" else "bfloat16"
    return compose(
        f"model={a.model}", "experiment=quickstart", "prompt.prefill=''", "algo.kl=none", "trainer=cpu", f"rollout={sampler}", f"rollout.dtype={dtype}",
        f"rollout.n={a.n}", "rollout.temperature=1", "rollout.stop_at_answer=true", f"rollout.max_response_tokens={a.new}",
        f"train.questions={a.questions}", "train.steps=1", *a.overrides)  # fmt: skip


def speed(rows: Rows) -> str:
    """Plain generation, one line a side."""
    lines = ["| | tokens/s | s | times transformers |", "|---|---|---|---|"]
    peer = rows.get(("transformers", "plain"))
    for (side, kind), found in rows.items():
        if kind != "plain":
            continue
        seconds = [row["seconds"] for row in found]
        ratios = [theirs["seconds"] / mine for mine, theirs in zip(seconds, peer, strict=True)] if peer else []
        rates = [row["tokens"] / row["seconds"] for row in found]
        lines.append(f"| {side} | {show(rates)} | {show(seconds)} | {show(ratios) if ratios else ''} |")
    return "\n".join(lines)


def on_top(rows: Rows) -> str:
    """The loop beside plain calls, in percent of these."""
    lines = ["| sampler | loop | beside | s, loop | s, beside | on top, % | outside of the sampler, % |", "|---|---|---|---|---|---|---|"]
    for side in (side for side, kind in rows if kind == "one turn"):
        for loop, plain in BESIDE:
            pairs = list(zip(rows[side, loop], rows[side, plain], strict=True))
            seconds, beside = ([row["seconds"] for row in found] for found in zip(*pairs, strict=True))
            more = [100 * (mine / other - 1) for mine, other in zip(seconds, beside, strict=True)]
            outside = [100 * mine["outside"] / other["seconds"] for mine, other in pairs]
            what = "one plain call" if plain == "plain" else "two plain calls"
            lines.append(f"| {side} | {loop} | {what} | {show(seconds)} | {show(beside)} | {show(more)} | {show(outside)} |")
    return "\n".join(lines)


def work(a: argparse.Namespace) -> None:
    """A side: what it is asked for, a turn each."""
    config = configured(a, a.worker)
    if a.worker == "transformers":
        before, kinds = (lambda: None), {"plain": peer(config, a.peer_batch)}
    else:
        from turns import Turns

        turns = Turns(config)
        before = turns.sampler.publish
        kinds = {"plain": turns.plain, "one turn": turns.one_turn, "two turns": turns.two_turns, "two calls": turns.two_calls}
    while kind := my_turn():
        before()
        answer(timed(kinds[kind]))


def timed(call: Callable[[], tuple[int, float]]) -> dict[str, float]:
    started = time.perf_counter()
    tokens, inside = call()
    seconds = time.perf_counter() - started
    return {"tokens": tokens, "seconds": seconds, "outside": seconds - inside}


def peer(config, batch: int) -> Callable[[], tuple[int, float]]:
    """transformers' `generate`, in batches of all samples of some questions."""
    import torch
    from ours import asked
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from ssrl.policy.load import resolve
    from ssrl.tasks.build import device_of

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    renderer, questions = asked(config)
    tokenizer, n, new = renderer.tokenizer, config.rollout.n, config.rollout.max_response_tokens
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    device = device_of(config)
    model = AutoModelForCausalLM.from_pretrained(resolve(config.model.path), dtype=getattr(torch, config.rollout.dtype)).to(device).eval()
    texts, size = [renderer.prompt_text(question) for question in questions], max(1, batch // n)

    @torch.inference_mode()
    def generate() -> tuple[int, float]:
        started, tokens = time.perf_counter(), 0
        for first in range(0, len(texts), size):
            read = tokenizer(texts[first : first + size], padding=True, return_tensors="pt", add_special_tokens=not config.prompt.chat).to(device)
            found = model.generate(
                input_ids=read.input_ids, attention_mask=read.attention_mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                num_return_sequences=n, min_new_tokens=new, max_new_tokens=new, pad_token_id=tokenizer.pad_token_id)  # fmt: skip
            tokens += sum(map(len, found[:, read.input_ids.shape[1] :].tolist()))
        return tokens, time.perf_counter() - started

    return generate


if __name__ == "__main__":
    main()
