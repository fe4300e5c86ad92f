"""How the cost of an update grows: with its tokens, with the length of rows, and with the size of a group.

    python benchmarks/growth.py --out docs/img/growth.svg

Groups of 5 rollouts share a prompt of about 110 tokens and have 128 tokens each. Curves: (1) seconds and memory a token from 2k to 32k
tokens an update, one group a row; (2) seconds a token at a fixed number of tokens in longer and longer rows, with attention by parts and
with one mask a row; (3) seconds of one group of n, beside (prompt + n x response) tokens at the cost of a token of the group of 8.
Every round takes all sizes in a new order; figures are medians [least, most] over the rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import defaultdict
from pathlib import Path

from common import forget_peak, peak_mib, resident_mib, show
from ours import Around, compose, forced, train

from ssrl.report.charts import Series
from ssrl.report.curves import sheet
from ssrl.training.agent import Agent

PROMPT, NEW, N = 110, 128, 5
GROUP = PROMPT + N * (NEW - 1)  # tokens of a row; the last token of a response is only predicted
Case = tuple[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2_000, 4_000, 8_000, 16_000, 32_000], help="of an update")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8], help="groups a row")
    parser.add_argument("--n", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="sizes of a group")
    parser.add_argument("--out", help="SVG file for the plot")
    parser.add_argument("overrides", nargs="*")
    a = parser.parse_args()
    agents: dict[str, Agent] = {}
    cases: list[Case] = [("tokens", t) for t in a.tokens] + [(f"rows {k}", r) for k in ("parts", "sdpa") for r in a.rows] + [("n", n) for n in a.n]
    found: dict[Case, list[dict[str, float]]] = defaultdict(list)
    measure(cases[0], a, agents)  # to warm up
    for number in range(a.rounds):
        for case in random.Random(number).sample(cases, len(cases)):
            found[case].append(measure(case, a, agents))
    print(tables(a, found))
    if a.out:
        Path(a.out).write_text(plot(a, found), encoding="utf-8")


def measure(case: Case, a: argparse.Namespace, agents: dict[str, Agent]) -> dict[str, float]:
    """Seconds, tokens, and MiB beyond what the process held before the update (weights, optimiser state of a step before).

    `agents`, one an attention, are made on first use.
    """
    kind, size = case
    groups, n, rows, attention = 1, N, 1, "parts"
    if kind == "tokens":
        groups = max(round(size / GROUP), 1)
    elif kind == "n":
        n = size
    else:
        groups, rows, attention = max(a.rows), size, kind.removeprefix("rows ")
    config = compose(
        "model=smollm2-135m", "experiment=quickstart", "prompt.prefill=''", "algo.kl=none", "trainer=cpu", "trainer.precision=32-true",
        f"rollout.n={max(n, 2)}", f"algo.advantage={'reward' if n == 1 else 'group_zscore'}", "rollout.stop_at_answer=false",
        f"rollout.max_response_tokens={NEW}", f"train.questions={groups}", "train.steps=2", "train.skip_no_signal=false", f"trainer.row_tokens={rows * (GROUP + 40) if kind != 'n' else 10**6}",
        f"model.attention={attention}", *([f"rollout.n={n}"] if n == 1 else []), *a.overrides)  # fmt: skip
    steps: list[dict[str, float]] = []
    held: list[float] = []

    def between() -> None:
        forget_peak()
        held.append(resident_mib())

    def after(module) -> None:
        m = module.last.metrics
        steps.append({"s": m["time/update_s"], "tokens": m["train/input_tokens"], "mib": peak_mib() - held[-1]})

    if attention not in agents:
        agents[attention] = forced(config, given=True)
    train(config, agents[attention], Around(lambda: None, between, after))
    return steps[-1]  # the first step makes the optimiser's state


def tables(a: argparse.Namespace, found: dict[Case, list[dict[str, float]]]) -> str:
    lines = ["| tokens an update | ms a token | KiB a token, beyond what is held | s |", "|---|---|---|---|"]
    for size in a.tokens:
        rows = found["tokens", size]
        kib = [1024 * row["mib"] / row["tokens"] for row in rows]
        lines.append(f"| {rows[0]['tokens']:.0f} | {show(_ms(rows))} | {show(kib)} | {show([row['s'] for row in rows])} |")
    lines += ["", "| groups a row | ms a token, by parts | ms a token, one mask |", "|---|---|---|"]
    lines += [f"| {r} | {show(_ms(found['rows parts', r]))} | {show(_ms(found['rows sdpa', r]))} |" for r in a.rows]
    lines += ["", "| n | tokens | s | s / (prompt + n x response) tokens, ms |", "|---|---|---|---|"]
    for n in a.n:
        rows = found["n", n]
        lines.append(f"| {n} | {rows[0]['tokens']:.0f} | {show([row['s'] for row in rows])} | {show(_ms(rows))} |")
    return "\n".join(lines)


def plot(a: argparse.Namespace, found: dict[Case, list[dict[str, float]]]) -> str:
    def line(label: str, cases: list[Case], value, colour: int, across=lambda case, row: row["tokens"]) -> Series:
        points = tuple((across(c, found[c][0]), statistics.median(value(row) for row in found[c])) for c in cases)
        return Series(label=label, points=points, colour=colour, dots=True)

    def ms(row: dict[str, float]) -> float:
        return 1000 * row["s"] / row["tokens"]

    tokens = [("tokens", t) for t in a.tokens]
    by_n = [("n", n) for n in a.n]
    unit = statistics.median(ms(row) for row in found["n", min(a.n, key=lambda n: abs(n - 8))]) / 1000
    linear = Series(label="(prompt + n x response) tokens", points=tuple((n, unit * found["n", n][0]["tokens"]) for n in a.n), colour=1)
    cells = [
        ("ms a token, by tokens an update", [line("one group a row", tokens, ms, 0)]),
        ("MiB of the update, by tokens", [line("one group a row", tokens, lambda row: row["mib"], 0)]),
        ("ms a token, by groups a row", [line(k, [(f"rows {k}", r) for r in a.rows], ms, c, lambda case, row: case[1]) for c, k in enumerate(("parts", "sdpa"))]),
        ("s of a group, by n", [line("measured", by_n, lambda row: row["s"], 0, lambda case, row: case[1]), linear]),
    ]  # fmt: skip
    return sheet(cells, ["measured; attention by parts", "one mask a row; (prompt + n x response) tokens"], "an update of SmolLM2-135M in fp32")


def _ms(rows: list[dict[str, float]]) -> list[float]:
    return [1000 * row["s"] / row["tokens"] for row in rows]


if __name__ == "__main__":
    main()
