"""Writes `docs/config.md` from the dataclasses and `conf/`: python -m ssrl.reference > docs/config.md"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from ssrl.compose import CONF
from ssrl.config import Config
from ssrl.schema import Key, describe, items_of, keys, types_of

INTRODUCTION = """\
# Configuration

<!-- Written by `python -m ssrl.reference > docs/config.md`; do not edit. -->

Every key, from `ssrl/config`. A choice is typed as `group=choice`, a value as `group.key=value`; what is typed wins over the files in
`ssrl/conf`, and those win over the defaults below. `python -m ssrl --cfg job --resolve` shows the outcome for any command, and files of
your own join with `--config-dir FOLDER`.

The last column says whether a key counts towards a run's identity, the hash in its folder's name: *value*: by its value; *content*: by what
lies at that path; *no*: not counted, because it changes no result, or because the folder shows it otherwise (`seed`) or a run may be prolonged
(`train.steps`); *where used*: counted only where it differs from the default (a newer key: older runs keep their hash).
"""
IDENTITY = {"value": "value", "content": "content", "free": "no", "added": "where used"}


def page() -> str:
    """The whole page as Markdown."""
    top = [key for key in keys().values() if "." not in key.name]
    parts = [INTRODUCTION, "## Whole runs\n", table(top), "## Experiments (`experiment=`)\n", choices("experiment")]
    for field in fields(Config):
        kind = types_of(Config)[field.name]
        if is_dataclass(kind):
            parts += [f"## `{field.name}`\n", f"{inspect.getdoc(kind)}\n", choices(field.name), *tables(kind, field.name)]
    parts += ["## Where the jobs of a sweep run (`hydra/launcher=`, with `-m`)\n", choices("hydra/launcher")]
    return "\n".join(part for part in parts if part)


def tables(kind: type, name: str) -> Iterator[str]:
    """The table of a dataclass, then those of the dataclasses inside it."""
    depth = name.count(".") + 1
    yield table([key for key in keys().values() if key.name.startswith(f"{name}.") and key.name.count(".") == depth])
    seen = set()
    for field, inner in types_of(kind).items():
        entry = items_of(inner)
        below, path = (entry, f"{name}.{field}.*") if entry else (inner, f"{name}.{field}")
        if is_dataclass(below) and below not in seen:
            seen.add(below)
            same = [f"`{name}.{other}.*`" for other, item in types_of(kind).items() if entry and items_of(item) is entry]
            yield f"### {', '.join(same) or f'`{path}`'}\n"
            yield f"{inspect.getdoc(below)}\n"
            yield from tables(below, path)


def table(rows: list[Key]) -> str:
    """Keys as a Markdown table; empty where there are none."""
    if not rows:
        return ""
    head = "| key | type | default | meaning | identity |\n|---|---|---|---|---|\n"
    return head + "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells(key))} |\n" for key in rows)


def cells(key: Key) -> tuple[str, ...]:
    kind = ", ".join(f"`{option}`" for option in key.options) or describe(key.type)
    return f"`{key.name}`", kind, shown(key.default), key.doc, IDENTITY[key.identity]


def shown(default: Any) -> str:
    """A default as it is typed."""
    if default == MISSING:
        return "set by the chosen file"
    if isinstance(default, str):
        return f"`{default or chr(39) * 2}`"
    return f"`{json.dumps(default)}`"


def choices(group: str) -> str:
    """The files of a group, each with the first sentence of its comment."""
    folder = CONF / group
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.yaml")}
    return "".join(f"- `{group}={choice}`: {summary(files[choice])}\n" for choice in sorted(files))


def summary(path: Path) -> str:
    """The first sentence of the comment at the top of a conf file; it ends at a full stop or before the command."""
    lines: list[str] = []
    for line in path.read_text().splitlines():
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or (lines and text.startswith("python -m ssrl")):
            break
        if text and not text.startswith(("@package", "python -m ssrl")):
            lines.append(text)
    sentence = " ".join(lines).partition(". ")[0]
    return f"{sentence.rstrip('.:')}."


if __name__ == "__main__":
    print(page(), end="")
