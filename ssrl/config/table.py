"""What a table shows (`table=`); none of it changes a run. Its cells are the jobs of the sweep in the same file."""

from __future__ import annotations

from dataclasses import dataclass

from ssrl.config.fields import choice, free, plain


@dataclass
class ColumnConfig:
    """One column: a figure of each run, from its `summary.json` or its `metrics.jsonl`."""

    title: str = free("")
    """Its heading; empty: its name."""
    metrics: list[str] = plain([], identity="free")
    """Names of metrics, added up; those that a run does not have are left out. `*` stands for any name, such as that of a test set, and means the mean over what it matches."""
    of: str = choice("after", "after", "before", "first", "last", "mean", "median", identity="free")
    """`after`, `before`: figures on the test sets after and before training (of the untrained row where the model is the same and the run has none); `first`, `last`, `mean`, `median`: of the training steps."""
    digits: int = free(3)
    """Digits behind the point."""


@dataclass
class TableConfig:
    """A table: runs that are found by their identity, as rows of figures beside each other."""

    name: str = free("")
    """The choice that was made (`table=`), empty where none was; the table's files are named after it."""
    title: str = free("")
    """Heading of the table."""
    rows: list[str] = plain([], identity="free")
    """Groups or keys that are swept over and whose values name a row; runs of a row differ by their seed alone."""
    before: list[str] = plain([], identity="free")
    """What is typed for the first row, the model before any training: usually `task=eval` and a value for each of `rows`. Empty: no such row."""
    columns: dict[str, ColumnConfig] = plain({}, identity="free")
    """Columns by name, from left to right."""
    published: dict[str, dict[str, float]] = plain({}, identity="free")
    """Published values by row and column name, shown below the measured ones."""
