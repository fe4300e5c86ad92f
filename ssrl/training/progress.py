"""The lines that a person watches: one a step, with what is going on below them on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("reward", "train/reward", ".3f"),
    ("em", "train/em", ".3f"),
    ("format", "train/format", ".3f"),
    ("searches", "train/searches", ".2f"),
    ("length", "train/response_tokens", ".1f"),
    ("entropy", "train/entropy", ".3f"),
    ("kl", "loss/kl", ".4f"),
    ("tok/s", "time/tokens_per_s", ".0f"),
)
_REPEAT_HEADER = 20


class Progress:
    """Shows a run. `total` steps; on anything but a terminal only whole lines are written."""

    def __init__(self, console: Console, total: int, *, quiet: bool = False) -> None:
        self.console, self.total, self.quiet = console, total, quiet
        self._lines = 0
        self._seconds: list[float] = []
        self._live: Live | None = None

    def phase(self, what: str) -> None:
        """What is being done now."""
        if self.quiet or not self.console.is_terminal:
            return
        if self._live is None:
            self._live = Live(console=self.console, transient=True)
            self._live.start()
        self._live.update(Spinner("dots", text=f"[dim]{what} …[/dim]"), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """One line of a training step; `left` counts the steps that are to come at the pace of the last five."""
        self._seconds = [*self._seconds[-4:], metrics["time/step_s"]]
        left = (self.total - step) * sum(self._seconds) / len(self._seconds)
        cells = [f"{metrics[key]:{form}}" if key in metrics else "–" for _, key, form in COLUMNS]
        if self._lines % _REPEAT_HEADER == 0:
            self.say("[bold]" + _line("step", [name for name, _, _ in COLUMNS], "left") + "[/bold]")
        self._lines += 1
        self.say(_line(f"{step}/{self.total}", cells, f"{int(left) // 60}:{int(left) % 60:02d}"))
        self.phase(f"step {step + 1} of {self.total}" if step < self.total else "finishing")

    def validation(self, step: int, name: str, metrics: Mapping[str, float]) -> None:
        prefix = f"val/{name}"
        figures = ", ".join(f"{part} {metrics[f'{prefix}/{part}']:.3f}" for part in ("em", "format", "searches"))
        self.say(f"[cyan]validation on {name} after step {step}: {figures}[/cyan]")

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, highlight=False, soft_wrap=True)


def _line(first: str, cells: list[str], last: str) -> str:
    return f"{first:>9} " + " ".join(f"{cell:>8}" for cell in cells) + f" {last:>7}"
