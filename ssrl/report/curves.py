"""Which curves a run has, and several runs' curves side by side as one SVG or HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ssrl.errors import UserError
from ssrl.report.charts import COLOURS, Series, draw, frame
from ssrl.runlog.files import write_text
from ssrl.runlog.folder import RunFolder
from ssrl.runlog.metrics import by_step

# a name without a slash stands for train/<name> and every val/<set>/<name>
CURVES = {
    "reward": "Reward",
    "em": "Exact match",
    "format": "Format score",
    "searches": "Searches per rollout",
    "response_tokens": "Response length (tokens)",
    "entropy": "Entropy (nats)",
    "loss/kl": "KL to the reference",
    "loss/policy": "Policy loss",
    "loss/grad_norm": "Gradient norm",
    "time/tokens_per_s": "Tokens per second",
}
COMPARED = ("reward", "em", "format", "searches", "response_tokens", "entropy")
_SMOOTH_FROM = 20  # points; shorter lines are drawn as they are
_WIDTH, _HEIGHT, _COLUMNS = 330, 190, 3

_SVG_STYLE = """
svg{--c0:#2563c9;--c1:#d4520f;--c2:#2b8a3e;--c3:#9333b0;--c4:#a17c00;--c5:#0b7285;--c6:#c2255c;--c7:#5f6368}
text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.title{font-size:13px;font-weight:600}.legend{font-size:13px}.note,.tick{font-size:11px;fill:#59636e}
.grid{stroke:#d8dee4;fill:none}.axis{stroke:#8c959f;fill:none}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One small plot."""

    key: str
    title: str
    series: tuple[Series, ...]


def charts(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Chart], list[Chart]]:
    """The charts of one run from its rows of metrics: those of `CURVES` that have data, and one for every other number."""
    rows = by_step(list(rows))
    keys = sorted({key for row in rows for key in row} - {"step", "time"})
    main, used = [], set()
    for name, title in CURVES.items():
        found = _keys_of(name, keys)
        used |= set(found)
        series = [_series(rows, key, colour) for colour, key in enumerate(found)]
        if any(line.points for line in series):
            main.append(Chart(key=name, title=title, series=tuple(line for line in series if line.points)))
    rest = [Chart(key=key, title=key, series=(line,)) for key in keys if key not in used and (line := _series(rows, key, 0)).points]
    return main, rest


def compare(run_folders: Mapping[str, Path], out: Path, metrics: Sequence[str] = COMPARED) -> Path:
    """Draws several runs' curves, by label, into one self-contained file: `.svg` (for docs and README) or `.html`."""
    if out.suffix not in (".svg", ".html"):
        raise UserError(f"curves are written as .svg or .html, found {out.name!r}; type e.g. {out.with_suffix('.svg')}")
    runs = {label: by_step(RunFolder(path).metrics()) for label, path in run_folders.items()}
    for label, rows in runs.items():
        if not rows:
            raise UserError(f"{run_folders[label]} ({label}) has no metrics.jsonl with rows; type a folder like runs/<name>-<hash>/seed0")
    svg = _comparison(runs, metrics)
    write_text(out, svg if out.suffix == ".svg" else f"<!doctype html><meta charset=utf-8><title>Learning curves</title>{svg}\n")
    return out


def _comparison(runs: Mapping[str, Sequence[Mapping[str, Any]]], metrics: Sequence[str]) -> str:
    cells = []
    for name in metrics:
        series = []
        for colour, rows in enumerate(runs.values()):
            keys = sorted({key for row in rows for key in row})
            series += [line for key in _keys_of(name, keys) if (line := _series(rows, key, colour)).points]
        if series:
            cells.append((CURVES.get(name, name), series))
    return sheet(cells, list(runs), note="lines: training (bold: running mean), dots: validation; horizontal: training step")


def sheet(cells: Sequence[tuple[str, Sequence[Series]]], legend: Sequence[str], note: str) -> str:
    """Titled drawings side by side as one SVG file's text; `legend`: what each colour stands for, from the first on."""
    top = 34 + 20 * len(legend)
    columns = min(_COLUMNS, len(cells)) or 1
    height = top + -(-len(cells) // columns) * (_HEIGHT + 30) + 8
    width = columns * (_WIDTH + 16) + 16
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">']
    parts.append(f"<style>{_SVG_STYLE}</style><rect width='{width}' height='{height}' fill='#ffffff'/>")
    for index, label in enumerate(legend):
        y = 22 + 20 * index
        parts.append(f'<path d="M18 {y - 4}h24" stroke="var(--c{index % COLOURS})" stroke-width="2.5"/>')
        parts.append(f'<text class="legend" x="50" y="{y}">{escape(label)}</text>')
    parts.append(f'<text class="note" x="18" y="{22 + 20 * len(legend)}">{escape(note)}</text>')
    for index, (title, series) in enumerate(cells):
        x, y = 12 + index % columns * (_WIDTH + 16), top + index // columns * (_HEIGHT + 30)
        parts.append(f'<g transform="translate({x} {y})"><text class="title" x="8" y="18">{escape(title)}</text>')
        parts.append(f'<g transform="translate(0 22)">{draw(series, frame(series, _WIDTH, _HEIGHT))}</g></g>')
    return "".join(parts) + "</svg>"


def _keys_of(name: str, keys: Sequence[str]) -> list[str]:
    if "/" in name:
        return [name] if name in keys else []
    wanted = [key for key in keys if key.startswith("val/") and key.split("/")[-1] == name]
    return ([f"train/{name}"] if f"train/{name}" in keys else []) + wanted


def _series(rows: Sequence[Mapping[str, Any]], key: str, colour: int) -> Series:
    points = tuple((row["step"], float(row[key])) for row in rows if isinstance(row.get(key), (int, float)))
    validation = key.startswith("val/")
    label = " ".join(key.split("/")[:2]) if validation else "train"
    window = 1 if validation or len(points) < _SMOOTH_FROM else max(3, len(points) // 20 * 2 + 1)
    return Series(label=label, points=points, colour=colour, dots=validation, window=window)
