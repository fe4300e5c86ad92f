"""A table as Markdown, as LaTeX, and as the plain cells that both, the page and the terminal share."""

from __future__ import annotations

from collections.abc import Iterator

from ssrl.report.table import Figure, Report
from ssrl.table import UNTRAINED

NOTHING = "–"
_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {c: rf"\{c}" for c in "&%$#_{}"}


def heading(report: Report) -> list[str]:
    """The headings: that of the rows, then one a column, then the number of seeds."""
    return [", ".join(report.table.rows), *(column.title or name for name, column in report.table.columns.items()), "seeds"]


def lines(report: Report) -> Iterator[list[str]]:
    """The cells of each line; published values follow in a line of their own."""
    for row in report.rows:
        label = f"{row.label} (before training)" if row.label == UNTRAINED else row.label
        figures = [shown(row.figures.get(name), column.digits) for name, column in report.table.columns.items()]
        yield [label, *figures, f"{len(row.finished)} of {len(row.cells)}" if len(row.finished) < len(row.cells) else str(len(row.cells))]
        if row.published:
            values = [f"{row.published[name]:.{column.digits}f}" if name in row.published else NOTHING for name, column in report.table.columns.items()]
            yield [f"{row.label} (published)", *values, ""]


def shown(figure: Figure | None, digits: int) -> str:
    """`0.512 ± 0.034`; without the spread where there is one seed."""
    if figure is None:
        return NOTHING
    return f"{figure.mean:.{digits}f}" + ("" if figure.spread is None else f" ± {figure.spread:.{digits}f}")


def notes(report: Report) -> list[str]:
    """What a reader must know beside the figures."""
    found = ["Mean ± sample standard deviation over seeds, of finished runs."]
    found += [f"{cell.row}, seed {cell.seed}, was trained for {steps} steps instead of {cell.steps}." for cell, steps in report.longer]
    return found


def markdown(report: Report) -> str:
    """The table, the notes, and what is missing with the command that runs it."""
    head = heading(report)
    parts = [f"# {report.table.title}", ""] if report.table.title else []
    parts += [_line(head), _line(["---", *["---:"] * (len(head) - 1)]), *map(_line, lines(report)), "", " ".join(notes(report))]
    if report.missing:
        parts += ["", "Missing:", "", _line(["run", "seed", "state", "command"]), _line(["---"] * 4)]
        parts += [_line([cell.row, str(cell.seed), state, f"`{cell.command}`"]) for cell, state in report.missing]
    return "\n".join(parts) + "\n"


def latex(report: Report) -> str:
    """A `tabular` for the booktabs package; what is missing stands in comments."""
    head = heading(report)
    body = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (head, *lines(report))]
    comments = [f"% missing: {cell.row}, seed {cell.seed} ({state}): {cell.command}" for cell, state in report.missing]
    top = [f"% {report.table.title}. {' '.join(notes(report))}", *comments, rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
    return "\n".join([*top, body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
