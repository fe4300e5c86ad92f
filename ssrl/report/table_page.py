"""A table as one self-contained page: the figures, each row's learning curves against the others, and every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import fmean
from string import Template

from ssrl.report.charts import Point, Series, draw, frame
from ssrl.report.curves import COMPARED, CURVES
from ssrl.report.page import framed, part, state_class
from ssrl.report.table import Report, Row, standing
from ssrl.report.table_text import heading, lines, notes
from ssrl.runlog.folder import RunFolder
from ssrl.runlog.metrics import by_step

_WIDTH, _HEIGHT = 250, 150
_OPEN = ("reward", "em")  # shown at once; a click shows the others


def table_page(report: Report) -> str:
    """The whole page."""
    curves = "".join(_multiples(name, found) for name in COMPARED if (found := mean_curves(report.rows, f"train/{name}")))
    title = report.table.title or report.table.name
    body = Template(part("table.html")).substitute(
        title=escape(title),
        table=_table(heading(report), lines(report)),
        notes=escape(" ".join(notes(report))),
        curves=curves or '<p class="soft">No run has finished a training step yet.</p>',
        runs=_runs(report.rows),
    )
    return framed(title, body)


def mean_curves(rows: Sequence[Row], key: str) -> dict[str, tuple[Point, ...]]:
    """The curve of each row that has one: at every step the mean over those of its finished runs that were there."""
    found = {}
    for row in rows:
        steps: dict[int, list[float]] = {}
        for cell in row.finished:
            for entry in by_step(RunFolder(cell.folder).metrics()):
                if isinstance(entry.get(key), (int, float)):
                    steps.setdefault(entry["step"], []).append(entry[key])
        if steps:
            found[row.label] = tuple((step, fmean(steps[step])) for step in sorted(steps))
    return found


def _multiples(name: str, curves: Mapping[str, Sequence[Point]]) -> str:
    """One small plot a row on common axes; all other rows lie behind it in grey."""
    title = CURVES[name]
    series = {label: Series(label=label, points=tuple(points)) for label, points in curves.items()}
    where = frame(list(series.values()), _WIDTH, _HEIGHT)
    figures = []
    for label, line in series.items():
        others = [Series(label=other.label, points=other.points, faint=True) for other in series.values() if other is not line]
        drawing = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(f"{title}, {label}")}">{draw([*others, line], where)}</svg>'
        figures.append(f'<figure class="chart"><figcaption>{escape(label)}</figcaption>{drawing}</figure>')
    opened = " open" if name in _OPEN else ""
    return f'<details{opened}><summary>{escape(title)}</summary><div class="charts small">{"".join(figures)}</div></details>'


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    cells = [f"<th>{escape(head[0])}</th>", *(f'<th class="num">{escape(text)}</th>' for text in head[1:])]
    rows = [f"<td>{escape(line[0])}</td>" + "".join(f'<td class="num">{escape(text)}</td>' for text in line[1:]) for line in body]
    return "".join(f"<tr>{row}</tr>" for row in ("".join(cells), *rows))


def _runs(rows: Sequence[Row]) -> str:
    out = ['<tr><th>row</th><th class="num">seed</th><th>state</th><th>folder</th><th>command</th></tr>']
    for cell in (cell for row in rows for cell in row.cells):
        state = standing(cell)
        out.append(
            f'<tr><td>{escape(cell.row)}</td><td class="num">{cell.seed}</td><td><span class="state {state_class(state)}">{escape(state)}</span></td>'
            f"<td><code>{escape(str(cell.folder))}</code></td><td><code>{escape(cell.command)}</code></td></tr>"
        )
    return "".join(out)
