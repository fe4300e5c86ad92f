"""What the benchmarks share, without a library: workers that take turns, peak memory of a stretch of work, and cells of a table."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MARK = "@ "  # begins a worker's answers: libraries print lines of their own


class Worker:
    """A process that does one step a turn, so that two sides alternate on one machine while only one of them computes."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self, what: str = "step") -> dict[str, float]:
        """Let it do a step, or another kind of work that it knows; what it measured."""
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise SystemExit(f"a worker ended early: {' '.join(self.process.args)}")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def my_turn() -> str:
    """In a worker: wait for the next turn; what to do in it, empty where there is none."""
    return sys.stdin.readline().strip()


def answer(row: dict[str, Any]) -> None:
    """In a worker: what a turn has measured."""
    print(MARK + json.dumps(row), flush=True)


def forget_peak() -> None:
    """Begin to measure peak memory anew, after giving back what is free (Linux)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def peak_mib() -> float:
    """The largest resident memory of this process since `forget_peak`."""
    return _kib("VmHWM") / 1024


def resident_mib() -> float:
    return _kib("VmRSS") / 1024


def _kib(name: str) -> int:
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def show(values: Sequence[float]) -> str:
    """Median [least, most]."""
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"
