"""`metrics.jsonl`: one row a step, appended; the one record of a run's numbers that everything else mirrors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssrl.errors import UserError
from ssrl.runlog.files import append_bytes, dumps, write_text


def append_metrics(path: Path, row: Mapping[str, Any]) -> None:
    """Adds one row, which must say its `step`; keys are namespaced ("train/em"), NaN becomes null. It survives a kill at once."""
    if "step" not in row:
        raise ValueError(f"a row of metrics needs its step, found only {sorted(row)}")
    append_bytes(path, (dumps(row) + "\n").encode())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole rows, in the order in which they were written; a last line that a crash tore is left out. No file: no rows."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # empty where the file ends with a newline, and torn where it does not
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"line {number} of {path} is not JSON ({error}); remove that line") from error
    return rows


def truncate_metrics(path: Path, step: int) -> int:
    """Keeps the rows up to `step`, that of the checkpoint a run continues from, and cuts a torn last line. Returns how many went."""
    rows = read_metrics(path)
    kept = [row for row in rows if row["step"] <= step]
    if path.exists():
        write_text(path, "".join(dumps(row) + "\n" for row in kept))
    return len(rows) - len(kept)


def by_step(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one step (training and validation are written apart) merged into one, in the order of steps; the later value wins."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        merged.setdefault(row["step"], {}).update(row)
    return [merged[step] for step in sorted(merged)]
