"""Who may import whom: the table of the package's rooms, read against every import statement in it, lazy ones included."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ssrl"
SCORING = {"types", "text", "rewards"}
LEARNING = {"types", "algo", "policy", "rollout"}
OUTSIDE = {"calls", "retrieval", "engines"}
ENTRY = {"config", "schema", "check", "overrides", "compose"}
ROOMS: dict[str, set[str]] = {  # room: the rooms that it may import besides itself and errors
    "errors": set(),
    "processes": set(),
    "places": set(),
    "types": set(),
    "config": set(),
    "schema": {"config"},
    "check_algo": {"config"},
    "check_engine": {"config", "schema"},
    "check_rollout": {"config", "schema"},
    "check_trainer": {"config"},
    "check": {"config", "schema", "check_algo", "check_engine", "check_rollout", "check_trainer"},
    "overrides": {"schema"},
    "compose": {"config", "schema"},
    "reference": {"config", "schema", "compose"},
    "table": {"config", "compose", "overrides", "data", "runlog"},
    "app": ENTRY | {"processes", "table", "tasks"},
    "__main__": {"app"},
    "text": {"types"},
    "calls": {"types"},
    "algo": set(),
    "rewards": {"types", "text"},
    "retrieval": {"types", "calls", "places"},
    "engines": {"types", "text", "calls"},
    "data": {"types"},
    "policy": {"types", "algo", "places"},
    "rollout": {"types", "text"},
    "runlog": {"types", "config", "schema"},
    "report": {"types", "config", "runlog", "table"},
    "training": SCORING | LEARNING | OUTSIDE | {"config", "data", "runlog"},
    "tasks": SCORING | LEARNING | OUTSIDE | ENTRY | {"check_engine", "check_trainer", "processes", "data", "runlog", "table", "report", "training"},
}
TORCH = {"torch", "lightning", "transformers", "peft", "vllm", "accelerate"}
TORCH_ROOMS = {"algo", "policy", "rollout", "training", "tasks"}
LAZY = {("app", "tasks"), ("runlog", "lightning"), ("retrieval", "torch"), ("retrieval", "transformers")}  # imported inside a function only, because torch comes with it
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Modules that are imported, and whether at the top level of the file."""
    top = set(map(id, getattr(tree, "body", ())))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"ssrl.{alias.name}" for alias in node.names] if node.module == "ssrl" else [node.module]
            yield from ((name, id(node) in top) for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_what_the_table_allows(path):
    room = room_of(path)
    assert room in ROOMS, f"{room} is not in the table"
    for name, at_top in imports(ast.parse(path.read_text())):
        parts = name.split(".")
        if parts[0] == "ssrl" and len(parts) > 1:
            assert parts[1] in ROOMS[room] | {room, "errors"}, f"{room} must not import {name}"
            assert not at_top or (room, parts[1]) not in LAZY, f"{room} must import {name} inside a function"
        elif parts[0] in TORCH:
            assert room in TORCH_ROOMS or ((room, parts[0]) in LAZY and not at_top), f"{room} must not import {name}"


def test_the_table_allows_no_room_to_reach_torch_but_those_named():
    for room, allowed in ROOMS.items():
        if room not in TORCH_ROOMS:
            assert not {other for other in allowed & TORCH_ROOMS if (room, other) not in LAZY}, room


def test_nothing_but_the_torch_rooms_brings_torch_with_it():
    modules = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES if room_of(path) not in TORCH_ROOMS]
    modules = [name.removesuffix(".__init__") for name in modules if not name.endswith(".__main__")]
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\nprint(sorted(set(sys.modules) & {TORCH!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "[]"
