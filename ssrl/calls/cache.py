"""Answers that were paid for once: a SQLite file that several processes share and that a killed process leaves whole."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from ssrl.errors import UserError

_BUSY_S = 60.0  # how long another process may hold the file before that is an error; a write takes well under a millisecond
_DAY_S = 86_400.0


class Cache:
    """JSON values by keys that name everything the value depends on. `days`: age at which a value counts as absent; 0: never.

    The file belongs on a disk of this machine: write-ahead logging does not work across hosts on a network file system.
    """

    def __init__(self, path: str | Path, days: float = 0.0) -> None:
        self._path = Path(path).expanduser()
        self._days = days
        self._lock = threading.Lock()
        with self._errors():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            with FileLock(f"{self._path}.lock"):  # switching to the write-ahead log does not wait for others by itself
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, value TEXT NOT NULL, stored_at REAL NOT NULL)")
            self._database.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last values, never the file

    def get(self, key: Mapping[str, object]) -> Any | None:
        """The value stored for an equal key, whatever the order of its fields; None where there is none or it is too old."""
        with self._errors(), self._lock:
            row = self._database.execute("SELECT value, stored_at FROM answers WHERE key = ?", (_text(key),)).fetchone()
        if row is None or (self._days > 0 and time.time() - row[1] > self._days * _DAY_S):
            return None
        return json.loads(row[0])

    def put(self, key: Mapping[str, object], value: Any) -> None:
        """Stores a value that is not None, in place of an older one. It is in the file when this returns."""
        with self._errors(), self._lock:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (_text(key), _text(value), time.time()))

    def close(self) -> None:
        """Ends this process's use of the file; the last one to close it folds the log into it."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            raise UserError(
                f"the cache calls.cache={self._path} cannot be used ({error}); "
                "free the disk, move the file away, or name another one: calls.cache=FILE (calls.cache=null: none)"
            ) from error


def _text(value: Any) -> str:
    """One spelling for equal values, in ASCII so that any text can be stored."""
    if isinstance(value, Mapping):
        value = dict(value)
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
