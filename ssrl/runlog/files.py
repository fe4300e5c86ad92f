"""How the run's files are written: whole or not at all, as strict JSON, without secrets, and with a sentence when the disk is full."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ssrl.errors import UserError
from ssrl.runlog.secrets import redact


def plain(value: Any) -> Any:
    """`value` as JSON holds it: NaN and infinities as None, tuples as lists, anything unknown as its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Strict JSON (no NaN) of `plain(value)`, with secrets redacted."""
    options = {"ensure_ascii": False, "allow_nan": False, "indent": indent, "separators": None if indent else (",", ":")}
    try:
        text = json.dumps(value, **options)
    except (TypeError, ValueError):  # only what is not plain already pays for the copy: a batch of rollouts has millions of values
        text = json.dumps(plain(value), **options)
    return redact(text)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns "no space left" into a UserError; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"no space left to write {path}; what was saved before is intact. "
            f"Free some space on that disk (`df -h {path.parent}`), then run the same command to continue."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replaces the file at once: a temporary file in the same folder, fsync, rename. A reader sees the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON, atomically."""
    write_text(path, dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The file's object; None where there is no file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON ({error}); move it away, it will be written anew") from error


def append_bytes(path: Path, data: bytes) -> None:
    """Adds `data` at the end and hands it to the operating system; a write that fails leaves the file as it was."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            except OSError:
                if path.is_file():
                    file.truncate(before)
                raise


def _sync_folder(folder: Path) -> None:
    # the rename itself must survive a power cut, not only the file's content
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
