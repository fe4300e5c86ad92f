"""`task=status`: how the runs of a table stand, or all runs under `runs`."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ssrl.config import Config, TableConfig
from ssrl.report.table import standing
from ssrl.runlog.folder import RunFolder
from ssrl.table import Cell
from ssrl.tasks.show import relative


def main(config: Config, found: tuple[TableConfig, list[Cell]] | None) -> None:
    """Print one line a run: its state, steps, seconds and command."""
    console = Console(soft_wrap=True)
    table = Table(box=box.MARKDOWN)
    for name, justify in (("run", "left"), ("seed", "right"), ("state", "left"), ("step", "right"), ("seconds", "right"), ("command", "left")):
        table.add_column(name, justify=justify, no_wrap=True, overflow="ignore")
    if found is not None:
        for cell in found[1]:
            table.add_row(cell.row, str(cell.seed), standing(cell), *progress(RunFolder(cell.folder)), cell.command)
    else:
        for path in sorted(Path(config.runs).glob("*/seed*/status.json")):
            folder = RunFolder(path.parent)
            name, seed = relative(path.parents[1]), path.parent.name.removeprefix("seed")
            table.add_row(name, seed, folder.standing(), *progress(folder), folder.status().command)
    console.print(table)


def progress(folder: RunFolder) -> tuple[str, str]:
    """Training steps done, and the seconds that they took; – where there are none."""
    status = folder.status()
    seconds = [row["time/step_s"] for row in folder.metrics() if row.get("time/step_s") is not None]
    return str(status.step) if status and status.step else "–", f"{sum(seconds):.0f}" if seconds else "–"
