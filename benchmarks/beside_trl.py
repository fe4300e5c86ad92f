"""One GRPO step beside TRL's GRPOTrainer: the same weights, prompts, number of sequences and forced lengths, in turns on one machine.

    python benchmarks/beside_trl.py --peer-python TRL/bin/python                                 # fp32 on both sides
    python benchmarks/beside_trl.py --peer-python TRL/bin/python --dtype bf16                    # autocast over fp32 weights, sampler in bf16
    python benchmarks/beside_trl.py --peer-python TRL/bin/python --given --prompt 300 --new 512  # the update alone, and its peak memory; TRL takes
                                                                                                 # about 40 GiB, with --questions 2 --n 4 17

Default: 20 sequences (4 questions x 5) of the bundled one-shot prompt (about 110 tokens; --prompt 167 puts words before it) and 128 new
tokens, no reference, rows that hold one group, five steps after one to warm up. With --given both sides train on random tokens, so nothing
is sampled. Overrides of the configuration (rollout=vllm, trainer.row_tokens=2048) may follow. Prints medians [least, most], and the median of
the steps' own ratios. Peak memory is the largest resident memory of the process during the update, and "before" what it held when the update
began: of further steps, which are not timed, since free memory is given back for it first.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from common import Worker, answer, forget_peak, my_turn, peak_mib, resident_mib, show

BUNDLED, SLACK = 108, 40  # tokens of a bundled prompt, and how many more one may have
TIMES, MEMORY = ("step", "generate", "update"), ("peak", "before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="a Python with TRL")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--new", type=int, default=128, help="tokens of every response")
    parser.add_argument("--prompt", type=int, help="tokens of a prompt, about; default: the bundled prompt as it is")
    parser.add_argument("--steps", type=int, default=5, help="that are timed")
    parser.add_argument("--peaks", type=int, default=1, help="steps for peak memory")
    parser.add_argument("--given", action="store_true")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*")
    a = parser.parse_args()
    if a.worker:
        work(a)
        return
    if not a.peer_python:
        parser.error("--peer-python is missing: a Python that can import trl")
    ours, peer = workers(a)
    rows = {"ours": [], "TRL": []}
    for number in range(a.steps + 1 + a.peaks):
        what = "step" if number <= a.steps else "peak"
        for name, worker in (("ours", ours), ("TRL", peer)) if number % 2 else (("TRL", peer), ("ours", ours)):
            rows[name].append(worker.turn(what))
            print(f"{what} {number}, {name}: {rows[name][-1]}", file=sys.stderr, flush=True)
    ours.close(), peer.close()
    print(table(a, {name: found[1:] for name, found in rows.items()}))


def table(a: argparse.Namespace, rows: dict[str, list[dict[str, float]]]) -> str:
    """One line a quantity."""
    what = "given" if a.given else "sampled"
    lines = [
        f"{a.questions * a.n} sequences ({a.questions} questions x {a.n}), {a.new} new tokens ({what}), {a.dtype}, {a.steps} steps\n",
        "| | ours | TRL | TRL / ours |", "|---|---|---|---|",
    ]  # fmt: skip
    for key in (*TIMES, *(MEMORY if a.peaks else ())):
        measured = slice(None, a.steps) if key in TIMES else slice(a.steps, None)
        ours, peer = ([row[key] for row in rows[name][measured]] for name in ("ours", "TRL"))
        ratios = [other / mine for mine, other in zip(ours, peer, strict=True) if mine]
        lines.append(f"| {key}, {'s' if key in TIMES else 'MiB'} | {show(ours)} | {show(peer)} | {show(ratios) if ratios else ''} |")
    return "\n".join(lines)


def workers(a: argparse.Namespace) -> tuple[Worker, Worker]:
    """Both sides, loaded and waiting. The peer gets the prompts of our first steps, in our order, as texts."""
    mine = [sys.executable, __file__, "--worker", *sys.argv[1:]]
    config = configured(a)
    folder = Path(tempfile.mkdtemp())
    (folder / "prompts.json").write_text(json.dumps(prompts(config)))
    from ssrl.policy.load import resolve

    peer = [a.peer_python, str(Path(__file__).with_name("trl_worker.py")), resolve(config.model.path), str(folder / "prompts.json")]
    for name in ("questions", "n", "new"):
        peer += [f"--{name}", str(getattr(a, name))]
    peer += ["--steps", str(a.steps + 1 + a.peaks), "--temperature", str(config.rollout.temperature)]
    return Worker(mine), Worker([*peer, *(["--bf16"] if a.dtype == "bf16" else []), *(["--given"] if a.given else [])])


def configured(a: argparse.Namespace):
    from ours import compose

    arithmetic = ("32-true", "float32") if a.dtype == "fp32" else ("bf16-mixed", "bfloat16")
    return compose(
        f"model={a.model}", "experiment=quickstart", "prompt.prefill=''", "algo.kl=none", "trainer=cpu", f"trainer.precision={arithmetic[0]}",
        f"rollout.dtype={arithmetic[1]}", f"rollout.n={a.n}", "rollout.temperature=1", "rollout.stop_at_answer=false",
        f"rollout.max_response_tokens={a.new}", "rollout.max_prompt_tokens=4096", f"train.questions={a.questions}", f"train.steps={a.steps + 1 + a.peaks}",
        "train.lr=1e-6", "train.skip_no_signal=false", f"trainer.row_tokens={(a.prompt or BUNDLED) + SLACK + a.n * a.new}",
        *([padding(a)] if a.prompt else []), *a.overrides)  # fmt: skip


def padding(a: argparse.Namespace) -> str:
    """The override that makes prompts about as long as asked: words before the bundled prompt, one token each."""
    from ours import compose

    template = compose("experiment=quickstart").prompt.template
    return "prompt.template='" + (" the" * max(a.prompt - BUNDLED, 0) + template).replace("'", "\\'") + "'"


def prompts(config) -> list[str]:
    """The prompts of all steps as texts."""
    from ours import asked

    renderer, questions = asked(config)
    texts = [renderer.prompt_text(question) for question in questions]
    sizes = [len(renderer.tokenizer(text).input_ids) for text in texts]
    print(f"prompts of {min(sizes)} to {max(sizes)} tokens", file=sys.stderr)
    return texts


def work(a: argparse.Namespace) -> None:
    """Our side: a step a turn."""
    from ours import Around, forced, train

    config = configured(a)
    agent = forced(config, given=a.given)
    turns: list[str] = []
    before: list[float] = []

    def wait() -> None:
        turns.append(my_turn())
        if not turns[-1]:
            raise SystemExit

    def generated() -> None:
        if turns[-1] == "peak":
            forget_peak()
            before.append(resident_mib())

    def told(module) -> None:
        m = module.last.metrics
        memory = {"peak": peak_mib(), "before": before[-1]} if turns[-1] == "peak" else {}
        answer({"generate": m["time/generate_s"], "update": m["time/update_s"] + m["time/publish_s"], "step": m["time/step_s"], **memory})

    train(config, agent, Around(wait, generated, told))


if __name__ == "__main__":
    main()
