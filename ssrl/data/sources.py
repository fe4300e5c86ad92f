"""What a `path` in `data=` may be: `bundled:NAME`, `hf:REPOSITORY`, or a file."""

from __future__ import annotations

from pathlib import Path

from ssrl.errors import UserError

BUNDLED = Path(__file__).parent / "bundled"
HUB = "hf:"


def bundled_file(path: str) -> Path | None:
    """The file behind `bundled:NAME`; None for any other kind of path."""
    kind, _, name = path.partition(":")
    if kind != "bundled":
        return None
    known = sorted(file.stem for file in BUNDLED.glob("*.jsonl"))
    if name not in known:
        raise UserError(f"{path} does not exist: the bundled sets are {', '.join(f'bundled:{one}' for one in known)}")
    return BUNDLED / f"{name}.jsonl"


def find_file(path: str, local: str | None, root: str | None, key: str) -> Path | None:
    """The file to read, or None where a hub data set must be asked for: the local copy first, then what `path` names.

    `key` is the set's place in the configuration (`data.test.nq`); errors name the override with it. UserError: the file is missing.
    """
    if local and root and (Path(root) / local).is_file():
        return Path(root) / local
    if path.startswith(HUB):
        return None
    file = bundled_file(path) or Path(path).expanduser()
    if file.is_file():
        return file
    found = "is a folder, not a file" if file.is_dir() else "does not exist"
    copy = f", or put {local} into data.root (environment: SSRL_DATA)" if local else ""
    raise UserError(f"data file {path} {found}: name a .jsonl, .parquet or .csv file with {key}.path=…{copy}")
