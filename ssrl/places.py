"""Where the package keeps what it makes once and uses in many runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`SSRL_CACHE`, else `ssrl` in the user's cache folder: converted models, indexes."""
    base = os.environ.get("SSRL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ssrl"
    return Path(base)
