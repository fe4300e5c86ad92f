"""A run's identity: a hash over everything in its configuration that can change a result, and the folder named after it.

What does nothing in a configuration, such as the retriever of a full-sim run, does not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from ssrl.config import Config
from ssrl.schema import idle

Fingerprint = Callable[[str], str]


def resolved(config: Any) -> dict[str, Any]:
    """The configuration (a dataclass or an OmegaConf tree) as plain values, with every `${…}` filled in."""
    return OmegaConf.to_container(_tree(config), resolve=True)


def counted(config: Any, fingerprint: Fingerprint) -> dict[str, Any]:
    """What counts towards the identity: `value` fields as they are, `content` paths as `fingerprint(path)`, `free`, idle and unused `added` ones left out."""
    tree = _tree(config)
    schema = _schema(tree) or Config
    return _counted(tree, schema, fingerprint, idle(tree) if schema is Config else set(), "")


def run_hash(config: Any, fingerprint: Fingerprint) -> str:
    """8 hex characters over the counted part of the resolved configuration; the order of keys does not matter."""
    text = json.dumps(counted(config, fingerprint), sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def run_folder(config: Any, fingerprint: Fingerprint) -> Path:
    """`<runs>/<name>-<hash>/seed<k>`: the same configuration always finds the same folder."""
    tree = _tree(config)
    name = re.sub(r"[^\w.+-]+", "-", tree.name).strip("-.")
    return Path(tree.runs) / f"{name}-{run_hash(tree, fingerprint)}" / f"seed{tree.seed}"


def eval_folder(config: Any, fingerprint: Fingerprint) -> Path:
    """`<runs>/eval-<name>-<hash>/seed<k>`: the folder of `task=eval`, beside that of the run with the same configuration."""
    folder = run_folder(config, fingerprint)
    return folder.parent.with_name(f"eval-{folder.parent.name}") / folder.name


def _tree(config: Any) -> DictConfig:
    return config if isinstance(config, DictConfig) else OmegaConf.structured(config)


def _schema(node: Any) -> type | None:
    kind = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
    return kind if isinstance(kind, type) and is_dataclass(kind) else None


def _counted(node: DictConfig, schema: type, fingerprint: Fingerprint, idle: set[str], prefix: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(schema):
        kind, name = field.metadata.get("identity", "value"), prefix + field.name
        if kind == "free" or name in idle:
            continue
        if OmegaConf.is_missing(node, field.name):
            out[field.name] = "???"
            continue
        value = node[field.name]
        if kind == "added" and value == field.default:
            continue
        if kind == "content" and value is not None:
            out[field.name] = fingerprint(value)
        else:
            out[field.name] = _value(value, fingerprint, idle, f"{name}.")
    return out


def _value(value: Any, fingerprint: Fingerprint, idle: set[str], prefix: str) -> Any:
    schema = _schema(value)
    if schema is not None:
        return _counted(value, schema, fingerprint, idle, prefix)
    if isinstance(value, Mapping):
        return {str(key): _value(value[key], fingerprint, idle, prefix) for key in value}
    if isinstance(value, (list, tuple, ListConfig)):
        return [_value(item, fingerprint, idle, prefix) for item in value]
    return value
