"""What a finished task prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ssrl.report.summary import METRICS
from ssrl.runlog.folder import RunFolder


def show(console: Console, summary: Mapping[str, Any]) -> None:
    """One table a test set: before, after and change, or the figures alone where nothing was trained."""
    before, after = summary["before"], summary["after"]
    for name in summary["test_sets"]:
        columns = ("before", "after", "change") if before else ("value",)
        table = Table(title=f"{name}, before and after training" if before else name, title_justify="left")
        table.add_column("")
        for column in columns:
            table.add_column(column, justify="right")
        for metric, (title, _, digits) in METRICS.items():
            key = f"{name}/{metric}"
            if key in after and (not before or key in before):
                values = [f"{after[key]:.{digits}f}"]
                if before:
                    values = [f"{before[key]:.{digits}f}", *values, f"{after[key] - before[key]:+.{digits}f}"]
                table.add_row(title, *values)
        console.print(table)


def show_run(console: Console, folder: RunFolder) -> None:
    """What a finished run found, and where to look on."""
    summary = folder.summary()
    show(console, summary)
    path = relative(folder.path)
    for line in (
        f"best checkpoint: step {summary['best_step']} by validation" if "best_step" in summary else "the last checkpoint: nothing was validated",
        f"curves and rollouts: {path}/report.html",
        f'ask it: python -m ssrl task=ask ckpt={path} question="What is the capital of Peru?"',
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def say_finished(folder: RunFolder, *notes: str) -> None:
    """One line about a run that was finished by an earlier command."""
    Console().print("; ".join([f"finished before, in {relative(folder.path)}", *notes]), highlight=False, markup=False, soft_wrap=True)


def relative(path: Path) -> str:
    """A path as short as it can be shown from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
