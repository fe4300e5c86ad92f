"""API keys come from environment variables only: no file of the package or of a run ever holds one."""

from __future__ import annotations

import os

from ssrl.errors import UserError


def key_from(variable: str, *, where: str = "") -> str | None:
    """The key in `variable`. Where there is none: None, or a UserError if `where` says from whom to get one."""
    key = os.environ.get(variable, "").strip()
    if not key and where:
        raise UserError(f"the environment variable {variable} is not set; get a key from {where} and type: export {variable}=…")
    if not all(33 <= ord(char) <= 126 for char in key):
        raise UserError(f"the environment variable {variable} holds a blank or a character that no key has; type: export {variable}=…")
    return key or None
