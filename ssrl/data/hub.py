"""Rows of a Hugging Face data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ssrl.errors import UserError


def read_hub(repository: str, subset: str | None, split: str | None, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of one split. UserError: `datasets` is missing, there is no split, or the hub does not give the data."""
    if split is None:
        raise UserError(f"hf:{repository} needs a split: name it with {key}.split=test")
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"hf:{repository} needs the package `datasets`: type in the clone pip install -e '.[hub]', or name a file with {key}.path=…"
        ) from error
    try:
        rows = datasets.load_dataset(repository, subset, split=split)
    except (OSError, ValueError) as error:
        asked = ", ".join(part for part in (f"subset {subset}" if subset else "", f"split {split}") if part)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"hf:{repository} ({asked}) could not be loaded ({reason}): check the names, or name a file with {key}.path=…") from error
    for number, row in enumerate(rows, 1):
        yield f"row {number}", dict(row)
