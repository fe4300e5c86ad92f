"""`task=report`: a table of finished runs as Markdown, HTML and LaTeX."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ssrl.config import Config, TableConfig
from ssrl.errors import UserError
from ssrl.report.table import Report, gather
from ssrl.report.table_page import table_page
from ssrl.report.table_text import figures_in_markdown, latex, markdown, notes
from ssrl.runlog.files import write_text
from ssrl.table import Cell
from ssrl.tasks.show import relative

WRITERS = {".md": markdown, ".html": table_page, ".tex": latex}


def main(config: Config, found: tuple[TableConfig, list[Cell]]) -> None:
    """Gather the table, print it, and write its files to `out`, or to `tables` under `runs`."""
    files = targets(config)
    report = gather(*found)
    console = Console()
    show_table(console, report)
    for path in files:
        write_text(path, WRITERS[path.suffix](report))
        console.print(f"written: {relative(path)}", highlight=False, markup=False, soft_wrap=True)


def targets(config: Config) -> list[Path]:
    """The files to write: the one that `out` names, or all three in the folder that it names."""
    out = Path(config.out) if config.out else Path(config.runs) / "tables"
    if out.suffix in WRITERS:
        return [out]
    if out.suffix and not out.is_dir():
        raise UserError(f"out={config.out} is no kind of file that a table is written as: type a folder, or a name that ends in {', '.join(WRITERS)}")
    return [out / f"{config.table.name.replace('/', '-')}{suffix}" for suffix in WRITERS]


def show_table(console: Console, report: Report) -> None:
    """The table on the terminal, and what is missing."""
    console.print(report.table.title or report.table.name, style="bold", highlight=False, markup=False, soft_wrap=True)
    missing = [f"missing: {cell.row}, seed {cell.seed} ({state}): {cell.command}" for cell, state in report.missing]
    for line in ("", *figures_in_markdown(report), "", *notes(report), *missing):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
