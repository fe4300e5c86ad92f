"""The content that a path stands for, as a short string: what a run's identity counts instead of the path."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from ssrl.data.sources import bundled_file

WHOLE = 64 << 20  # bytes: larger files are sampled, so that a 100 GB index does not delay the start of a run
SAMPLE = 4 << 20


def fingerprint(path: str) -> str:
    """`sha256:…` over the content of a file, a folder or `bundled:NAME`; what exists nowhere on disk (a hub id, `hf:…`) stands for itself.

    Two copies of one content have one fingerprint, wherever they lie. A folder counts the names and contents of its files, hidden ones
    left out.
    """
    place = bundled_file(path) or Path(path).expanduser()
    if place.is_file():
        return f"sha256:{of_file(place).hex()}"
    if place.is_dir():
        return f"sha256:{of_folder(place).hex()}"
    return path


def of_file(path: Path) -> bytes:
    """Up to 64 MB the whole content; above, the size and 4 MB each of head, middle and tail."""
    size = path.stat().st_size
    digest = sha256()
    with path.open("rb") as file:
        if size <= WHOLE:
            while block := file.read(SAMPLE):
                digest.update(block)
        else:
            digest.update(f"sampled {size}\n".encode())
            for start in (0, (size - SAMPLE) // 2, size - SAMPLE):
                file.seek(start)
                digest.update(file.read(SAMPLE))
    return digest.digest()


def of_folder(folder: Path) -> bytes:
    digest = sha256()
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    for name in names:
        if not any(part.startswith(".") for part in name.split("/")):
            digest.update(name.encode() + b"\0" + of_file(folder / name))
    return digest.digest()
