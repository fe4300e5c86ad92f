"""Rows of JSON lines, CSV and Parquet files, each with the words that name it in an error ("line 3")."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ssrl.errors import UserError

Row = tuple[str, dict[str, Any]]


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file in its order. UserError: unknown suffix, or a row that cannot be read."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"data file {path} ends in {path.suffix or 'no suffix'!r}: expected one of {', '.join(READERS)}")
    return reader(path)


def text_lines(path: Path) -> Iterator[str]:
    """Lines split at the line feed only (a JSON string may hold U+2028), each with its end, decoded one by one so that a bad one has a number."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                found = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
                raise UserError(f"line {number} of {path} is not UTF-8 ({found}): save the file as UTF-8") from error


def read_jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"line {number} of {path} is not JSON ({error.msg}, column {error.colno}): one object a line is expected") from error
        if not isinstance(row, dict):
            raise UserError(f'line {number} of {path} holds a {type(row).__name__}: expected an object such as {{"question": …}}')
        yield f"line {number}", row


def read_csv(path: Path) -> Iterator[Row]:
    reader = csv.DictReader(text_lines(path), strict=True)
    try:
        for row in reader:
            label = f"line {reader.line_num}"
            if None in row:
                raise UserError(f"{label} of {path} has more cells than the header's {len(reader.fieldnames or [])}: quote cells that hold commas")
            yield label, {name: listed(cell, label, path) for name, cell in row.items()}
    except csv.Error as error:
        raise UserError(f"line {reader.line_num} of {path} is not readable CSV: {error}") from error


def listed(cell: str | None, label: str, path: Path) -> Any:
    """A cell as it is, or the list that it spells in JSON: a CSV has no lists of its own."""
    if cell is None or not (cell.lstrip().startswith("[") and cell.rstrip().endswith("]")):
        return cell
    try:
        return json.loads(cell)
    except json.JSONDecodeError as error:
        raise UserError(f"{label} of {path} holds {cell[:40]!r}, which looks like a list: write lists as JSON, with double quotes") from error


def read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        batches = pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024)
        start = 1
        for batch in batches:
            for offset in range(batch.num_rows):
                label = f"row {start + offset}"
                try:
                    [row] = batch.slice(offset, 1).to_pylist()
                except UnicodeDecodeError as error:
                    raise UserError(f"{label} of {path} holds text that is not UTF-8: write the column again as UTF-8") from error
                yield label, row
            start += batch.num_rows
    except pyarrow.ArrowException as error:
        raise UserError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from error


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {".jsonl": read_jsonl, ".parquet": read_parquet, ".csv": read_csv}
