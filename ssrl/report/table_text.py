"""A table as Markdown, as LaTeX, and as the plain cells that both, the page and the terminal share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

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
    parts = [f"# {report.table.title}", ""] if report.table.title else []
    parts += [*figures_in_markdown(report), "", " ".join(notes(report))]
    if report.missing:
        body = [[cell.row, str(cell.seed), state, f"`{cell.command}`"] for cell, state in report.missing]
        parts += ["", "Missing:", "", *aligned(["run", "seed", "state", "command"], body, numbers=(1,))]
    return "\n".join(parts) + "\n"


def figures_in_markdown(report: Report) -> list[str]:
    """The lines of the Markdown table alone."""
    head = heading(report)
    return aligned(head, list(lines(report)), numbers=range(1, len(head)))


def aligned(head: Sequence[str], body: Sequence[Sequence[str]], numbers: Collection[int]) -> list[str]:
    """A Markdown table whose columns also line up as plain text; those of `numbers` to the right."""
    table = [[cell.replace("|", "\\|") for cell in line] for line in (head, *body)]
    widths = [max(3, *(len(line[index]) for line in table)) for index in range(len(head))]
    rule = ["-" * (width - 1) + ":" if index in numbers else "-" * width for index, width in enumerate(widths)]
    padded = [[f"{cell:{'>' if index in numbers else '<'}{widths[index]}}" for index, cell in enumerate(line)] for line in (table[0], rule, *table[1:])]
    return [f"| {' | '.join(line)} |" for line in padded]


def latex(report: Report) -> str:
    """A `tabular` for the booktabs package; what is missing stands in comments."""
    head = heading(report)
    body = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (head, *lines(report))]
    comments = [f"% missing: {cell.row}, seed {cell.seed} ({state}): {cell.command}" for cell, state in report.missing]
    top = [f"% {report.table.title}. {' '.join(notes(report))}", *comments, rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
    return "\n".join([*top, body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]) + "\n"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
