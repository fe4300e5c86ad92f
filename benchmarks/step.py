"""One GRPO step on real bundled prompts, split into generate, score and update, with tokens a second and peak memory.

    python benchmarks/step.py                 # SmolLM2-135M, n = 5 and n = 8, 8 questions, 3 steps each after one to warm up
    python benchmarks/step.py --n 8 --steps 5

Each n runs in a process of its own, so that peak memory is its own. Prints a Markdown table of medians and [least, most].
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from common import show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[5, 8])
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.model, arguments.one, arguments.questions, arguments.steps)))
        return
    print("| n | rollouts | generate s | score s | update s | publish s | new tokens/s, generate | trained row tokens/s, update | peak MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for n in arguments.n:
        command = [sys.executable, __file__, "--one", str(n), "--questions", str(arguments.questions), "--steps", str(arguments.steps)]
        rows = json.loads(subprocess.run([*command, "--model", arguments.model], check=True, capture_output=True, text=True).stdout)
        cells = [show([row[key] for row in rows]) for key in ("generate", "score", "update", "publish", "generated_per_s", "updated_per_s")]
        print(f"| {n} | {n * arguments.questions} | {' | '.join(cells)} | {rows[-1]['peak_mib']} |", flush=True)


def measure(model: str, n: int, questions: int, steps: int) -> list[dict[str, float]]:
    """One row a step: seconds of each part, tokens a second, and the process's peak memory so far."""
    from ours import Around, compose, train

    from ssrl.tasks.build import build_agent, build_policy

    config = compose(f"model={model}", "experiment=quickstart", f"rollout.n={n}", f"train.questions={questions}", f"train.steps={steps + 1}")
    agent = build_agent(config, build_policy(config))
    rows: list[dict[str, float]] = []

    def after(module) -> None:
        metrics = module.last.metrics
        started = time.perf_counter()
        for rollout in module.last.rollouts:
            module.agent.reward(rollout)
        score = time.perf_counter() - started
        rows.append({
            "generate": metrics["time/generate_s"] - score, "score": score, "update": metrics["time/update_s"],
            "publish": metrics["time/publish_s"], "generated_per_s": metrics["time/generated_tokens_per_s"],
            "updated_per_s": metrics["train/input_tokens"] / metrics["time/update_s"],
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024})  # fmt: skip

    train(config, agent, Around(lambda: None, lambda: None, after))
    return rows[1:]


if __name__ == "__main__":
    main()
