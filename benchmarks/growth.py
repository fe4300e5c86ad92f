"""How the cost of an update grows: with its tokens, with the length of rows, and with the size of a group.

    python benchmarks/growth.py --out docs/img/growth.svg

Groups of 5 rollouts share a prompt of about 110 tokens and have 128 tokens each. Curves: (1) seconds and memory a token from 2k to 32k
tokens an update, one group a row; (2) seconds a token at a fixed number of tokens in longer and longer rows, with attention by parts and
with one mask a row; (3) seconds of one group of n, beside (prompt + n x response) tokens at the cost of a token of the group of 8.
All sizes are steps of one run; every round takes them in a new order. Figures are medians [least, most] over the rounds. Memory is that of
further steps, which are not timed, since free memory is given back before each of their updates.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from common import forget_peak, peak_mib, resident_mib, show
from ours import Around, compose, forced, train

from ssrl.config import Config
from ssrl.policy.attention import IMPLEMENTATIONS
from ssrl.report.charts import Series
from ssrl.report.curves import sheet
from ssrl.training.agent import Agent
from ssrl.types import Question, Rollout

PROMPT, NEW, N = 110, 128, 5
GROUP = PROMPT + N * (NEW - 1)  # tokens of a row; the last token of a response is only predicted
Case = tuple[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2_000, 4_000, 8_000, 16_000, 32_000], help="of an update")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8], help="groups a row")
    parser.add_argument("--n", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="sizes of a group")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--out", help="SVG file for the plot")
    parser.add_argument("overrides", nargs="*")
    a = parser.parse_args()
    found = measure(a)
    print(tables(a, found))
    if a.out:
        Path(a.out).write_text(plot(a, found), encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized(Agent):
    """Asks only the first questions of a batch."""

    groups: list[int]  # how many; the last entry counts

    def rollouts(self, questions: Sequence[Question], names: Sequence[tuple[object, ...]], **how: Any) -> list[Rollout]:
        size = self.groups[-1]
        return Agent.rollouts(self, questions[:size], names[:size], **how)


def measure(a: argparse.Namespace) -> dict[Case, list[dict[str, float]]]:
    """Seconds and tokens of each case, a row a round; of ("memory", size), MiB beyond what the process held before the update.

    What the cases differ in is read anew by every step.
    """
    cases: list[Case] = [("tokens", t) for t in a.tokens] + [(f"rows {k}", r) for k in ("parts", "sdpa") for r in a.rows] + [("n", n) for n in a.n]
    rounds = [random.Random(number).sample(cases, len(cases)) for number in range(a.rounds)]
    order = [min(cases, key=lambda case: case[1]), *(case for one in rounds for case in one), *(("memory", t) for t in a.tokens)]
    sizes = [groups_of(case, a) for case in order]
    config = compose(
        f"model={a.model}", "experiment=quickstart", "prompt.prefill=''", "algo.kl=none", "algo.advantage=reward", "trainer=cpu",
        "trainer.precision=32-true", "rollout.stop_at_answer=false", f"rollout.max_response_tokens={NEW}", f"train.questions={max(sizes)}",
        f"train.steps={len(order)}", "train.skip_no_signal=false", *a.overrides)  # fmt: skip
    agent = forced(config, given=True)
    sized = Sized(**{field.name: getattr(agent, field.name) for field in fields(agent)}, groups=[])
    found: dict[Case, list[dict[str, float]]] = defaultdict(list)
    held: list[float] = []
    ahead = iter(zip(order, sizes, strict=True))
    now: list[Case] = []

    def before() -> None:
        case, groups = next(ahead)
        now.append(case)
        sized.groups.append(groups)
        arrange(config, sized, case)

    def between() -> None:
        if now[-1][0] == "memory":
            forget_peak()
            held.append(resident_mib())

    def after(module) -> None:
        m = module.last.metrics
        measured = {"mib": peak_mib() - held[-1]} if now[-1][0] == "memory" else {"s": m["time/update_s"]}
        found[now[-1]].append({"tokens": m["train/input_tokens"], **measured})

    train(config, sized, Around(before, between, after))
    found[order[0]].pop(0)  # it made the optimiser's state
    return found


def groups_of(case: Case, a: argparse.Namespace) -> int:
    """Of the batch."""
    kind, size = case
    if kind in ("tokens", "memory"):
        return max(round(size / GROUP), 1)
    return 1 if kind == "n" else max(a.rows)


def arrange(config: Config, agent: Agent, case: Case) -> None:
    """How the step that begins cuts up its batch."""
    kind, size = case
    config.rollout.n = size if kind == "n" else N
    config.trainer.row_tokens = 10**6 if kind == "n" else (size if kind.startswith("rows") else 1) * (GROUP + 40)
    agent.model.config._attn_implementation = IMPLEMENTATIONS[kind.removeprefix("rows ") if kind.startswith("rows") else "parts"]


def tables(a: argparse.Namespace, found: dict[Case, list[dict[str, float]]]) -> str:
    lines = ["| tokens an update | ms a token | KiB a token, beyond what is held | s |", "|---|---|---|---|"]
    for size in a.tokens:
        rows = found["tokens", size]
        kib = [1024 * row["mib"] / row["tokens"] for row in found["memory", size]]
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
        ("MiB of the update, by tokens", [line("one group a row", [("memory", t) for t in a.tokens], lambda row: row["mib"], 0)]),
        ("ms a token, by groups a row", [line(k, [(f"rows {k}", r) for r in a.rows], ms, c, lambda case, row: case[1]) for c, k in enumerate(("parts", "sdpa"))]),
        ("s of a group, by n", [line("measured", by_n, lambda row: row["s"], 0, lambda case, row: case[1]), linear]),
    ]  # fmt: skip
    return sheet(cells, ["measured; attention by parts", "one mask a row; (prompt + n x response) tokens"], f"an update of {a.model} in fp32")


def _ms(rows: list[dict[str, float]]) -> list[float]:
    return [1000 * row["s"] / row["tokens"] for row in rows]


if __name__ == "__main__":
    main()
