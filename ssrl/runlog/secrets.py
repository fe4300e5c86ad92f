"""Values of secret environment variables never reach a file of the run."""

from __future__ import annotations

import json
import os
import re

_SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST = 8  # shorter values would blank out ordinary words


def redact(text: str) -> str:
    """`text`, which may be JSON, with the value of every environment variable named like a secret (`…_KEY`, `…_TOKEN`) as `<NAME>`."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _SECRET_NAME.search(name):
            for spelling in (value, json.dumps(value, ensure_ascii=False)[1:-1]):
                text = text.replace(spelling, f"<{name}>")
    return text
