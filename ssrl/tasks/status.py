"""`task=status`: how the runs of a table stand, or all runs under `runs`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ssrl.config import Config, TableConfig
from ssrl.report.table import standing
from ssrl.report.table_text import aligned
from ssrl.runlog.folder import RunFolder
from ssrl.table import Cell

HEAD = ("run", "seed", "state", "step", "seconds", "command")


def main(config: Config, found: tuple[TableConfig, list[Cell]] | None) -> None:
    """Print one line a run: how it stands, its training steps, the seconds that they took, and the command that runs or continues it."""
    body = all_runs(Path(config.runs)) if found is None else [
        [cell.row, str(cell.seed), standing(cell), *progress(RunFolder(cell.folder)), cell.command] for cell in found[1]]  # fmt: skip
    console = Console()
    if not body:
        console.print(f"no runs in {config.runs}; python -m ssrl starts one, and runs=FOLDER looks elsewhere", highlight=False, soft_wrap=True)
    for line in aligned(HEAD, body, numbers=(1, 3, 4)) if body else ():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def all_runs(runs: Path) -> list[list[str]]:
    """The lines of every run in a folder of runs."""
    folders = [RunFolder(path.parent) for path in sorted(runs.glob("*/seed*/status.json"))]
    return [
        [f.path.parent.name, f.path.name.removeprefix("seed"), f.standing(), *progress(f), f.status().command] for f in folders
    ]


def progress(folder: RunFolder) -> tuple[str, str]:
    """Training steps done, and the seconds that they took; – where there are none."""
    status = folder.status()
    seconds = [row["time/step_s"] for row in folder.metrics() if row.get("time/step_s") is not None]
    return str(status.step) if status and status.step else "–", f"{sum(seconds):.0f}" if seconds else "–"
