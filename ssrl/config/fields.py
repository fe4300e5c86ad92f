"""How a field of the configuration counts towards a run's identity, and which values it takes."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def free(default: Any, **metadata: Any) -> Any:
    """A field that cannot change a result and so does not count towards the run's identity."""
    return plain(default, identity="free", **metadata)


def content(default: Any, **metadata: Any) -> Any:
    """A path that counts towards the run's identity by the content that lies there."""
    return plain(default, identity="content", **metadata)


def added(default: Any, **metadata: Any) -> Any:
    """A field that came when runs existed already: at its default it does not count, so that these keep their folders."""
    return plain(default, identity="added", **metadata)


def choice(default: Any, *options: str, identity: str = "value", **metadata: Any) -> Any:
    """A string with a closed set of values."""
    return plain(default, identity=identity, options=options, **metadata)


def only(default: Any, *names: str, **metadata: Any) -> Any:
    """A field that acts only where its section's `name` is one of these; elsewhere it does not count towards the identity either."""
    return plain(default, names=names, **metadata)


def plain(default: Any, **metadata: Any) -> Any:
    """A field with this metadata; a list or dictionary is copied for each object."""
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)
