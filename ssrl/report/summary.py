"""The before-and-after table of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

# name, whether more is better (None: neither), digits
METRICS: dict[str, tuple[str, bool | None, int]] = {
    "em": ("Exact match", True, 3),
    "pass@1": ("pass@1 at the training temperature", True, 3),
    "cover_em": ("Cover exact match", True, 3),
    "f1": ("F1", True, 3),
    "reward": ("Reward", True, 3),
    "format": ("Format score", True, 3),
    "searches": ("Searches per rollout", None, 2),
    "response_tokens": ("Response length (tokens)", None, 1),
    "document_tokens": ("Documents of the engine (tokens)", None, 1),
    "answered": ("Share with an answer", True, 3),
    "truncated": ("Share cut by the token budget", False, 3),
    "em_with_search": ("Exact match of rollouts that search", True, 3),
}


def summary_html(summary: Mapping[str, Any] | None) -> str:
    """One table for each test set: every metric before and after training, and the change; after alone where nothing was measured before."""
    if not summary:
        return '<p class="soft">The figures on the test sets appear here when the run ends.</p>'
    before, after = summary.get("before") or {}, summary.get("after") or {}
    sets = list(dict.fromkeys(key.rpartition("/")[0] for key in [*before, *after]))
    tables = "".join(_table(name, before, after) for name in sets)
    notes = [f"best checkpoint: step {summary['best_step']}, chosen on validation"] if summary.get("best_step") is not None else []
    notes += _counts(summary.get("counts") or {})
    return f'<div class="tables">{tables}</div><p class="note">{escape("; ".join(notes))}</p>'


def _counts(counts: Mapping[str, Any], prefix: str = "") -> list[str]:
    notes = []
    for key, value in counts.items():
        notes += _counts(value, f"{prefix}{key} ") if isinstance(value, Mapping) else [f"{prefix}{key}: {value}"]
    return notes


def _table(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    found = [key.rpartition("/")[2] for key in dict.fromkeys([*before, *after]) if key.rpartition("/")[0] == name]
    order = list(METRICS)
    metrics = sorted(found, key=lambda metric: order.index(metric) if metric in METRICS else len(order))
    if not before:
        rows = "".join(_row(metric, after.get(f"{name}/{metric}")) for metric in metrics)
    else:
        rows = "".join(_compared(metric, before.get(f"{name}/{metric}"), after.get(f"{name}/{metric}")) for metric in metrics)
    columns = ("before", "after", "change") if before else ("value",)
    head = "<tr><th>metric</th>" + "".join(f'<th class="num">{column}</th>' for column in columns) + "</tr>"
    return f'<figure><figcaption>{escape(name)}</figcaption><table class="metrics">{head}{rows}</table></figure>'


def _row(metric: str, *values: float | None, change: str = "") -> str:
    title, _, digits = METRICS.get(metric, (metric, None, 3))
    cells = "".join(f'<td class="num">{"–" if value is None else f"{value:.{digits}f}"}</td>' for value in values)
    return f"<tr><td>{escape(title)}</td>{cells}{change}</tr>"


def _compared(metric: str, before: float | None, after: float | None) -> str:
    _, more_is_better, digits = METRICS.get(metric, (metric, None, 3))
    change, colour = "–", ""
    if before is not None and after is not None:
        difference = round(after - before, digits)
        change = f"{difference:+.{digits}f}".replace("-", "−")
        if more_is_better is not None and difference:
            colour = " good" if (difference > 0) is more_is_better else " bad"
    return _row(metric, before, after, change=f'<td class="num{colour}">{change}</td>')
