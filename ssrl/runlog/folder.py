"""A run's folder: who owns it, how the run stands, and the files in it."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ssrl.errors import UserError
from ssrl.runlog.files import read_json, write_json
from ssrl.runlog.manifest import continued, now
from ssrl.runlog.metrics import append_metrics, read_metrics, truncate_metrics
from ssrl.runlog.rollouts import RolloutWriter

_PATIENCE_S = 0.5  # someone who only asks `claimed` holds the lock for an instant


class State(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What `status.json` holds."""

    state: State
    started: str  # UTC; of this process, not of the first one
    updated: str
    step: int  # training steps done
    pid: int
    host: str
    command: str  # to type to continue
    error: str | None = None  # traceback of a failed run


class RunFolder:
    """`runs/<name>-<hash>/seed<k>` and what lies in it. Only the process that holds `claim()` writes."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.rollouts = RolloutWriter(self.path)

    @contextmanager
    def claim(self) -> Iterator[RunFolder]:
        """Owns the folder until the block ends. The lock is the operating system's, so that of a killed process is free at once."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self._lock()
        try:
            lock.acquire(timeout=_PATIENCE_S)
        except Timeout:
            raise UserError(self._owner_sentence()) from None
        try:
            write_json(self._owner_path, {"pid": os.getpid(), "host": socket.gethostname(), "since": now()})
            yield self
        finally:
            self._owner_path.unlink(missing_ok=True)
            lock.release()

    def claimed(self) -> bool:
        """Whether a live process owns the folder."""
        lock = self._lock()
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    @contextmanager
    def tracked(self, command: str, step: int = 0) -> Iterator[None]:
        """Keeps `status.json` for the block: running, then done, failed (with the traceback) or interrupted (Ctrl-C, exit)."""
        started = now()
        self._write_status(State.RUNNING, started=started, step=step, command=command)
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit):  # the last: a signal came within the `with` statement's own code
            self.set_status(State.INTERRUPTED)
            raise
        except BaseException:
            self.set_status(State.FAILED, error=traceback.format_exc())
            raise
        status = self.status()
        if status is not None and status.state is State.RUNNING:
            self.set_status(State.DONE)

    def set_status(self, state: State, *, step: int | None = None, error: str | None = None) -> None:
        """Changes the state, and the step where given; start and command stay."""
        old = self.status()
        if old is None:
            raise ValueError(f"{self.path} has no status yet: open `tracked` first")
        self._write_status(state, started=old.started, step=old.step if step is None else step, command=old.command, error=error)

    def status(self) -> RunStatus | None:
        """None before the first start."""
        raw = read_json(self.path / "status.json")
        return None if raw is None else RunStatus(**{**raw, "state": State(raw["state"])})

    def standing(self) -> str:
        """The state in words: `not started`, the last one written, or `stopped without notice` where no live process owns a running one."""
        status = self.status()
        if status is None:
            return "not started"
        return "stopped without notice" if status.state is State.RUNNING and not self.claimed() else status.state.value

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One row of `metrics.jsonl`."""
        append_metrics(self.metrics_path, row)

    def metrics(self) -> list[dict[str, Any]]:
        """All rows of `metrics.jsonl`."""
        return read_metrics(self.metrics_path)

    def truncate_metrics(self, step: int) -> int:
        """Drops the rows beyond a checkpoint's step; returns how many."""
        return truncate_metrics(self.metrics_path, step)

    def rewind(self, step: int) -> None:
        """Makes the records those of a run that has just done `step` steps, so that no step appears twice when it continues.

        -1 stands for a run that begins anew and also drops the records of step 0, before training.
        """
        self.truncate_metrics(step)
        self.rollouts.drop_after(step)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Writes `manifest.json`; code that changed since the run began stays visible in its history."""
        write_json(self.path / "manifest.json", continued(self.manifest(), manifest))

    def manifest(self) -> dict[str, Any] | None:
        return read_json(self.path / "manifest.json")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Writes `summary.json`: figures before and after, best step, test sets, counts."""
        write_json(self.path / "summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        return read_json(self.path / "summary.json")

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def _owner_path(self) -> Path:
        return self.path / "owner.json"

    def _lock(self) -> FileLock:
        return FileLock(self.path / "run.lock")

    def _owner_sentence(self) -> str:
        owner = read_json(self._owner_path) or {"pid": "unknown", "host": "unknown", "since": "an unknown time"}
        return (
            f"{self.path} is in use by process {owner['pid']} on host {owner['host']} since {owner['since']}; "
            f"wait for it, stop it there (`kill -INT {owner['pid']}`), or start a run of its own with another `seed=` or `runs=`."
        )

    def _write_status(self, state: State, *, started: str, step: int, command: str, error: str | None = None) -> None:
        status = RunStatus(
            state=state, started=started, updated=now(), step=step, pid=os.getpid(), host=socket.gethostname(), command=command, error=error
        )
        write_json(self.path / "status.json", asdict(status))
