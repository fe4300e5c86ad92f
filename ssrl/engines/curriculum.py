"""How likely a simulated reply is noisy at a training step. [ZeroSearch; FACTS 2.3]"""

from __future__ import annotations

from dataclasses import dataclass

from ssrl.errors import UserError


def rise(share: float, base: float) -> float:
    """(base^share - 1)/(base - 1), from 0 at share 0 to 1 at share 1; a straight line at base 1."""
    return share if base == 1 else (base**share - 1) / (base - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The probability p that a reply is noisy: `curriculum`: from start to end, at `total` steps and after; `random`: 0.5; `constant`: start."""

    schedule: str = "curriculum"
    total: int = 1
    base: float = 4.0
    start: float = 0.0
    end: float = 0.5

    def __post_init__(self) -> None:
        if self.schedule not in ("curriculum", "random", "constant"):
            raise UserError(f"simulator.schedule={self.schedule} is unknown; choose one of curriculum, random, constant.")
        for key in ("start", "end"):
            if not 0 <= getattr(self, key) <= 1:
                raise UserError(f"simulator.{key}={getattr(self, key)} is a probability and must lie between 0 and 1.")
        if self.base <= 0:
            raise UserError(f"simulator.base={self.base} must be above 0.")

    def __str__(self) -> str:
        shown = {"curriculum": f" {self.start:g} to {self.end:g} in {self.total} steps, base {self.base:g}", "constant": f" {self.start:g}"}
        return self.schedule + shown.get(self.schedule, "")

    def __call__(self, step: int) -> float:
        """p at a step, counted from 1; step 0 gives the start."""
        if self.schedule == "random":
            return 0.5
        if self.schedule == "constant":
            return self.start
        return self.start + rise(min(step / max(self.total, 1), 1.0), self.base) * (self.end - self.start)
