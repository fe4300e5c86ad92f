"""Line charts as SVG text: what the page and the stand-alone plots share. Colours are CSS variables: a page is light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
COLOURS = 8  # the style sheets define --c0 … --c7
MOST_POINTS = 500  # of one drawn line; more are averaged

_MARGIN = (46, 10, 12, 24)  # left, top, right, bottom


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or one set of points."""

    label: str
    points: tuple[Point, ...]  # (step, value), ascending steps, finite values
    colour: int = 0
    dots: bool = False  # validation: few points, drawn as dots joined by a thin line
    faint: bool = False  # behind another line, for comparison: thin and grey
    window: int = 1  # steps in the running mean that is drawn over the raw line; 1: the raw line alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where data lie in a drawing: value ranges and pixel box."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int
    height: int

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of the plot area."""
        left, top, right, bottom = _MARGIN
        return left, top, self.width - right, self.height - bottom

    def at(self, point: Point) -> Point:
        left, top, right, bottom = self.box
        across = (point[0] - self.x[0]) / (self.x[1] - self.x[0])
        up = (point[1] - self.y[0]) / (self.y[1] - self.y[0])
        return left + across * (right - left), bottom - up * (bottom - top)


_NOTHING = 1e-12


def frame(series: Sequence[Series], width: int, height: int) -> Frame:
    """Ranges that hold all points: steps from 0, and values from 0 where none is negative."""
    steps = [x for line in series for x, _ in line.points] or [0.0]
    values = [y for line in series for _, y in line.points] or [0.0]
    low, high = min(values), max(values)
    size = max(abs(high), abs(low))
    if size < _NOTHING or high - low < _NOTHING * size:  # one value, or what rounding leaves of zero
        room = 0.5 * (size if size >= _NOTHING else 1.0)
        high, low = high + room, low - room
    marks = ticks(0.0 if min(values) >= 0 else low, high)
    return Frame(x=(0.0, max(1.0, *steps)), y=(marks[0], marks[-1]), width=width, height=height)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers (1, 2, 2.5 or 5 times a power of ten apart) from at or below `low` to at or above `high`."""
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * power for unit in (1, 2, 2.5, 5, 10) if unit * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def draw(series: Sequence[Series], where: Frame) -> str:
    """Axes and lines as SVG elements, without the enclosing `<svg>`."""
    left, top, right, bottom = where.box
    parts = []
    for value in ticks(*where.y):
        y = where.at((where.x[0], value))[1]
        if top - 1 <= y <= bottom + 1:
            parts.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
            parts.append(f'<text class="tick" x="{left - 6}" y="{y + 3.5:.1f}" text-anchor="end">{_number(value)}</text>')
    for value in _steps(*where.x):
        x = where.at((value, where.y[0]))[0]
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{_number(value)}</text>')
    parts.append(f'<path class="axis" d="M{left} {bottom}H{right}"/>')
    for line in series:
        parts.append(_draw_series(line, where))
    return "".join(parts)


def legend_mark(series: Series) -> str:
    """A small drawing of the line for a legend."""
    inside = f'<path d="M0 5H18" fill="none" stroke="var(--c{series.colour % COLOURS})" stroke-width="{1 if series.dots else 2.2}"/>'
    if series.dots:
        inside += f'<circle cx="9" cy="5" r="3.2" fill="var(--c{series.colour % COLOURS})"/>'
    return f'<svg class="mark" width="18" height="10" aria-hidden="true">{inside}</svg>'


def running_mean(points: Sequence[Point], window: int) -> list[Point]:
    """Each value averaged with its neighbours within `window` steps centred on it (fewer at the ends)."""
    half = window // 2
    out = []
    for index, (x, _) in enumerate(points):
        near = points[max(0, index - half) : index + half + 1]
        out.append((x, sum(y for _, y in near) / len(near)))
    return out


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most `most` points: neighbours averaged in equal bins."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / most)
    bins = [points[start : start + size] for start in range(0, len(points), size)]
    return [(points_in[len(points_in) // 2][0], sum(y for _, y in points_in) / len(points_in)) for points_in in bins]


def _draw_series(line: Series, where: Frame) -> str:
    colour = f"var(--c{line.colour % COLOURS})"
    title = f"<title>{escape(line.label)}</title>"
    if line.dots:
        circles = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in map(where.at, line.points))
        path = _path(line.points, where)
        return f'<g fill="{colour}">{title}<path d="{path}" fill="none" stroke="{colour}" opacity=".6"/>{circles}</g>'
    raw = thinned(line.points)
    if line.faint:
        return f'<path class="faint" d="{_path(raw, where)}">{title}</path>'
    if line.window > 1:
        mean = thinned(running_mean(line.points, line.window))
        faint = f'<path d="{_path(raw, where)}" stroke-width="1" opacity=".3"/>'
        bold = f'<path d="{_path(mean, where)}" stroke-width="2"/>'
        return f'<g fill="none" stroke="{colour}" stroke-linejoin="round">{title}{faint}{bold}</g>'
    drawn = f'<path d="{_path(raw, where)}" stroke-width="2"/>'
    if len(raw) == 1:  # a path of one point is not seen
        x, y = where.at(raw[0])
        drawn = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'
    return f'<g fill="none" stroke="{colour}" stroke-linejoin="round">{title}{drawn}</g>'


def _path(points: Sequence[Point], where: Frame) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in map(where.at, points)) if points else ""


def _steps(low: float, high: float) -> list[float]:
    return [value for value in ticks(low, high, most=6) if low <= value <= high and value == int(value)]


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.10g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.0e}"
