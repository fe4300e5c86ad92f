"""`report.html`: one self-contained page of a run, finished or not. It asks for nothing from outside, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ssrl.errors import UserError
from ssrl.report.charts import draw as draw_chart
from ssrl.report.charts import frame, legend_mark, thinned
from ssrl.report.choose import Chosen, choose
from ssrl.report.curves import Chart, charts
from ssrl.report.summary import summary_html
from ssrl.runlog.files import dumps, write_text
from ssrl.runlog.folder import RunFolder, RunStatus, State

_WIDTH, _HEIGHT = 330, 180


def write_page(run_folder: Path) -> Path:
    """Writes `report.html` into a run folder from what lies there, and returns its path."""
    folder = RunFolder(run_folder)
    manifest, status, rows = folder.manifest() or {}, folder.status(), folder.metrics()
    if not manifest and status is None and not rows:
        raise UserError(f"{run_folder} is not a run folder (no manifest, status or metrics in it); type one like runs/<name>-<hash>/seed0")
    rollouts = choose(folder.path)
    main, more = charts(rows)
    script = part("page.js")
    name = f"{folder.path.resolve().parent.name}/{folder.path.resolve().name}"
    state = folder.standing()
    body = Template(part("page.html")).substitute(
        name=escape(name),
        state=state,
        state_class=state_class(state),
        script=script,
        facts=_facts(manifest, status),
        failure=f"<pre>{escape(status.error)}</pre>" if status and status.error else "",
        summary=summary_html(folder.summary()),
        charts="".join(map(_chart, main)) or '<p class="soft">No metrics yet.</p>',
        more_charts=_more(more),
        rollouts_note=_rollouts_note(rollouts),
        manifest=_manifest(manifest),
        data=embedded(rollouts.records),
    )
    out = folder.path / "report.html"
    write_text(out, framed(name, body, script))
    return out


def framed(title: str, body: str, script: str = "") -> str:
    """A self-contained page around a body; no script but this one may run in it."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"; script-src 'sha256-{digest}'" if script else ""
    return Template(part("frame.html")).substitute(title=escape(title), css=part("page.css"), scripts=scripts, body=body)


def embedded(value: Any) -> str:
    """JSON that may stand inside a script element: no `<`, so that no text can close the element or open a comment."""
    return dumps(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def part(name: str) -> str:
    """A file that is put into pages."""
    return (files("ssrl.report") / name).read_text(encoding="utf-8")


def state_class(standing: str) -> str:
    """The class in `page.css` that colours how a run stands."""
    return standing if standing in (State.RUNNING, State.DONE, State.FAILED) else "stopped"


def _facts(manifest: Mapping[str, Any], status: RunStatus | None) -> str:
    config = manifest.get("config", {})
    git = manifest.get("git") or {}
    code = git.get("sha", "")[:10] + (f" with changes ({git['dirty']})" if git.get("dirty") else "")
    earlier = len(manifest.get("history", []))
    pairs = [("recipe", config.get("recipe"))]
    pairs += [(group, (config.get(group) or {}).get("name")) for group in ("model", "engine", "algo", "reward", "data", "prompt")]
    pairs += [("seed", config.get("seed")), ("code", code + (f"; {earlier} earlier version(s), see below" if earlier else ""))]
    if status:
        pairs += [
            ("steps done", status.step),
            ("started", _time(status.started)),
            ("last update", _time(status.updated)),
            ("host", status.host),
        ]
    cells = [_fact(label, value) for label, value in pairs if value not in (None, "")]
    if status and status.command:
        cells.append(f'<div class="whole"><dt>command</dt><dd><code>{escape(status.command)}</code></dd></div>')
    return "".join(cells)


def _time(text: str) -> str:
    return text[:16].replace("T", " ") + " UTC"


def _fact(label: str, value: Any) -> str:
    return f"<div><dt>{escape(label)}</dt><dd>{escape(str(value))}</dd></div>"


def _chart(chart: Chart) -> str:
    where = frame(chart.series, _WIDTH, _HEIGHT)
    points = [[(step, float(f"{value:.4g}")) for step, value in thinned(line.points)] for line in chart.series]
    data = json.dumps({"x": where.x, "box": where.box, "width": _WIDTH, "series": points}, separators=(",", ":"))
    legend = "".join(
        f"<li>{legend_mark(line)}{escape(line.label)}{f' (bold: mean of {line.window})' if line.window > 1 else ''} <output></output></li>"
        for line in chart.series
    )
    drawing = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(chart.title)}">{draw_chart(chart.series, where)}</svg>'
    caption = f"<figcaption>{escape(chart.title)}</figcaption><ul>{legend}</ul>"
    return f'<figure class="chart" data-chart="{escape(data)}">{caption}{drawing}</figure>'


def _more(more: Iterable[Chart]) -> str:
    drawn = "".join(map(_chart, more))
    return f'<details><summary>All other metrics</summary><div class="charts">{drawn}</div></details>' if drawn else ""


def _rollouts_note(chosen: Chosen) -> str:
    if not chosen.files:
        return "none recorded"
    return f"{len(chosen.records)} shown, from {chosen.files_read} of {chosen.files} recorded files; all of them are in rollouts/"


def _manifest(manifest: Mapping[str, Any]) -> str:
    boxes = [(key, manifest[key]) for key in ("config", "data", "engine", "versions", "host", "history") if manifest.get(key)]
    return (
        "".join(
            f"<details><summary>{escape(key)}</summary><pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre></details>"
            for key, value in boxes
        )
        or '<p class="soft">No manifest yet.</p>'
    )
