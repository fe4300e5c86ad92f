"""Built indexes on disk: each in a folder named after everything it depends on, built once, whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from filelock import FileLock

from ssrl.places import cache_folder


def built(index: str | Path | None, kind: str, key: Mapping[str, object], build: Callable[[Path], None]) -> Path:
    """The folder of this kind and key in the folder `index` (None: the default one); `build(folder)` fills it where it is missing.

    The key holds all that the content depends on: corpus, settings, library versions. One process builds while others wait. The folder
    gets its name by a rename at the end, so a build that was killed leaves nothing that could be opened, and the next one clears it away.
    `key.json` in it says in words what the name stands for.
    """
    root = Path(index).expanduser() if index else cache_folder() / "indexes"
    text = json.dumps(dict(key), sort_keys=True, indent=1)
    target = root / f"{kind}-{sha256(text.encode()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not target.is_dir():
            part = root / f".{target.name}.part"
            shutil.rmtree(part, ignore_errors=True)  # of a build that was killed
            part.mkdir()
            build(part)
            (part / "key.json").write_text(text + "\n", encoding="utf-8")
            os.replace(part, target)
    return target
