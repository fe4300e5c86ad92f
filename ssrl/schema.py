"""The dataclasses of `ssrl/config` as a list of keys, and the nearest known names to a mistyped one.

A dotted key is `group.field`; the entries of a dictionary are written `*` (`data.train.*.path`).
"""

from __future__ import annotations

import ast
import difflib
import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from omegaconf import MISSING

from ssrl.config import ANSWERING, RETRIEVING, Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One leaf of the configuration."""

    name: str  # dotted
    type: Any
    default: Any  # MISSING ("???") where there is none
    options: tuple[str, ...]  # empty: not a closed set
    identity: str  # "value", "content", "free" or "added": how it counts towards the run's identity
    doc: str  # "" where the field has no docstring
    names: tuple[str, ...] = ()  # the choices of its section with which it acts; empty: all


@cache
def docstrings(schema: type) -> dict[str, str]:
    """The string below each field of a dataclass."""
    body = ast.parse(inspect.getsource(schema)).body[0].body
    pairs = zip(body, body[1:], strict=False)
    return {
        item.target.id: after.value.value.strip()
        for item, after in pairs
        if isinstance(item, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


@cache
def types_of(schema: type) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    return typing.get_type_hints(schema)


def items_of(kind: Any) -> Any | None:
    """The type of a dictionary's values, or None where `kind` is not a dictionary."""
    return typing.get_args(kind)[1] if typing.get_origin(kind) is dict else None


def walk(schema: type = Config, prefix: str = "") -> Iterator[Key]:
    """Every leaf, in the order in which the dataclasses declare them."""
    for field in fields(schema):
        name, kind = prefix + field.name, types_of(schema)[field.name]
        inner = items_of(kind)
        if is_dataclass(kind):
            yield from walk(kind, f"{name}.")
        elif is_dataclass(inner):
            yield from walk(inner, f"{name}.*.")
        else:
            metadata = field.metadata
            yield Key(
                name=name,
                type=kind,
                default=_default(field),
                options=tuple(metadata.get("options", ())),
                identity=metadata.get("identity", "value"),
                doc=docstrings(schema).get(field.name, ""),
                names=tuple(metadata.get("names", ())),
            )


def _default(field: Field) -> Any:
    if field.default is not NO_DEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not NO_DEFAULT else MISSING


@cache
def keys() -> dict[str, Key]:
    """Every leaf by its dotted name."""
    return {key.name: key for key in walk()}


def idle(config: Any) -> set[str]:
    """Dotted names of sections and keys that do nothing in a configuration, because of who answers a search or samples in it."""
    engines = {config.engine.name, config.eval.engine.name} - {"same"}
    found = {"eval.retriever"} if not engines & set(RETRIEVING) else set()
    found |= {"retriever"} if not engines & set(RETRIEVING) and config.task != "serve" else set()
    found |= {"simulator"} if "semireal" not in engines else set()
    found |= {"wrapper"} if not engines & set(ANSWERING) else set()
    for key in keys().values():
        section = key.name.rpartition(".")[0]
        if key.names and section not in found and attrgetter(section)(config).name not in key.names:
            found.add(key.name)
    return found


def locate(name: str) -> tuple[str, Any] | None:
    """The name under which the schema knows a dotted key, dictionary entries as `*`, and its type; None where it does not know it.

    Interior nodes are known too: `algo`, `data.train.mine`.
    """
    kind: Any = Config
    parts = []
    for part in name.split("."):
        inner = items_of(kind)
        if inner is not None:
            kind, part = inner, "*"
        elif is_dataclass(kind) and part in types_of(kind):
            kind = types_of(kind)[part]
        else:
            return None
        parts.append(part)
    return ".".join(parts), kind


def generic(name: str) -> str | None:
    """The name alone of `locate`."""
    found = locate(name)
    return found[0] if found else None


def unknown(values: Any, schema: Any = Config, prefix: str = "") -> Iterator[str]:
    """Dotted names of the leaves in a plain nested dictionary that the schema does not know."""
    if not isinstance(values, dict):
        return
    for name, value in values.items():
        child = items_of(schema) or (types_of(schema).get(name) if is_dataclass(schema) else None)
        if child is None and not (isinstance(value, dict) and value):
            yield f"{prefix}{name}"
        else:
            yield from unknown(value, child, f"{prefix}{name}.")


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known dotted names most like a mistyped one; those in the same group come first."""
    group, _, leaf = name.rpartition(".")

    def likeness(other: str) -> float:
        other_group, _, other_leaf = other.rpartition(".")
        alike = difflib.SequenceMatcher(None, leaf.lower(), other_leaf.lower()).ratio()
        return alike + 0.25 * (group == other_group)

    ranked = sorted(((likeness(other), other) for other in known), key=lambda pair: (-pair[0], pair[1]))
    if not ranked:
        return []
    floor = max(0.65, ranked[0][0] - 0.2)
    return [other for score, other in ranked[:count] if score >= floor]


def suggest(name: str, also: Iterable[str] = ()) -> str:
    """An ending for a sentence about an unknown key: the nearest known ones, or where all of them are listed."""
    group, _, leaf = name.rpartition(".")
    known_group = generic(group) if group else ""
    near = nearest(f"{known_group}.{leaf}" if known_group else name, [*keys(), *also])
    if not near:
        return "python -m ssrl.reference lists all keys"
    near = [f"{group}.{other.removeprefix(f'{known_group}.')}" if known_group and other.startswith(f"{known_group}.") else other for other in near]
    return f"did you mean {' or '.join([', '.join(near[:-1]), near[-1]] if near[1:] else near)}?"


def describe(kind: Any) -> str:
    """A type in words: `number or null`, `list of text`."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(describe(part) for part in typing.get_args(kind))
    if typing.get_origin(kind) is list:
        return f"list of {describe(typing.get_args(kind)[0])}"
    words = {int: "whole number", float: "number", bool: "true or false", str: "text", type(None): "null"}
    return words.get(kind, "group of keys")
