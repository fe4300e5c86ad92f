"""The figures of a table, gathered from the folders of its runs: rows by columns, each a mean over seeds with its spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean, median, stdev
from typing import Any

from ssrl.config import ColumnConfig, TableConfig
from ssrl.errors import UserError
from ssrl.runlog.folder import RunFolder, State
from ssrl.runlog.metrics import by_step
from ssrl.table import UNTRAINED, Cell

OVER_STEPS = {"first": lambda values: values[0], "last": lambda values: values[-1], "mean": fmean, "median": median}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What the finished runs of a row have for a column."""

    mean: float
    spread: float | None  # sample standard deviation over seeds; None: one seed
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: the runs that differ by their seed alone."""

    label: str
    cells: tuple[Cell, ...]
    finished: tuple[Cell, ...]
    figures: Mapping[str, Figure]  # by column; a column that no finished run of the row has is absent
    published: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A table with its figures."""

    table: TableConfig
    rows: tuple[Row, ...]
    missing: tuple[tuple[Cell, str], ...]  # unfinished cells, and how each stands
    longer: tuple[tuple[Cell, int], ...]  # cells that trained for more steps than the table asks, and for how many


def gather(table: TableConfig, cells: Sequence[Cell]) -> Report:
    """Reads what the runs of a table have left so far.

    Raises:
        UserError: all runs are finished and none has the metrics of a column, or a published value belongs to no column.
    """
    standings = {cell: standing(cell) for cell in cells}
    finished = [cell for cell in cells if standings[cell] == State.DONE]
    _refuse_unknown(table)
    values = {name: figures_of(column, finished) for name, column in table.columns.items()}
    if len(finished) == len(cells):
        _refuse_empty(table, values)
    rows = []
    for label in dict.fromkeys(cell.row for cell in cells):
        mine = tuple(cell for cell in cells if cell.row == label)
        done = tuple(cell for cell in mine if cell in finished)
        figures = {name: over_seeds(found) for name in table.columns if (found := [values[name][c] for c in done if c in values[name]])}
        rows.append(Row(label=label, cells=mine, finished=done, figures=figures, published=dict(table.published.get(label, {}))))
    steps = {cell: RunFolder(cell.folder).status().step for cell in finished}
    return Report(
        table=table,
        rows=tuple(rows),
        missing=tuple((cell, standings[cell]) for cell in cells if cell not in finished),
        longer=tuple((cell, steps[cell]) for cell in finished if steps[cell] > cell.steps > 0),
    )


def standing(cell: Cell) -> str:
    """How a cell stands: the standing of its run, or `step i of n` where that one ended before the table's number of steps."""
    folder = RunFolder(cell.folder)
    found, status = folder.standing(), folder.status()
    return f"step {status.step} of {cell.steps}" if found == State.DONE and status.step < cell.steps else found


def figures_of(column: ColumnConfig, cells: Sequence[Cell]) -> dict[Cell, float]:
    """A column's value for each finished cell that has one; that of the untrained model where it is a cell's own before training."""
    untrained = {(cell.seed, cell.before): cell for cell in cells if cell.row == UNTRAINED}
    found = {}
    for cell in cells:
        folder = RunFolder(cell.folder)
        if column.of in OVER_STEPS:
            steps = [value for row in by_step(folder.metrics()) if (value := pick(row, column.metrics)) is not None]
            value = OVER_STEPS[column.of](steps) if steps else None
        else:
            figures = (folder.summary() or {}).get(column.of) or {}
            same = untrained.get((cell.seed, cell.before))
            if column.of == "before" and not figures and same and cell.row != UNTRAINED:
                figures = (RunFolder(same.folder).summary() or {}).get("after", {})
            value = pick(figures, column.metrics)
        if value is not None:
            found[cell] = value
    return found


def pick(figures: Mapping[str, Any], metrics: Sequence[str]) -> float | None:
    """The sum of these metrics, each the mean over the names that it matches; None where nothing matches."""
    parts = []
    for pattern in metrics:
        matched = [value for key, value in figures.items() if fnmatchcase(key, pattern) and isinstance(value, (int, float))]
        if matched:
            parts.append(fmean(matched))
    return sum(parts) if parts else None


def over_seeds(values: Sequence[float]) -> Figure:
    return Figure(mean=fmean(values), spread=stdev(values) if len(values) > 1 else None, seeds=len(values))


def _refuse_empty(table: TableConfig, values: Mapping[str, Mapping[Cell, float]]) -> None:
    for name, column in table.columns.items():
        if not values[name]:
            raise UserError(
                f"no run of {table.name} has {' or '.join(column.metrics) or 'a metric'} ({column.of}) for the column {name}: "
                f"correct table.columns.{name}.metrics, or type ~table.columns.{name} to leave it out"
            )


def _refuse_unknown(table: TableConfig) -> None:
    for row, values in table.published.items():
        for name in values:
            if name not in table.columns:
                raise UserError(f"table.published.{row} has a value for {name}, which is no column of {table.name}; known: {', '.join(table.columns)}")
