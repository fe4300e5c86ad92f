"""What all engines that answer have in common: a wrapper, turns, a retry message, and an eye on failed calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ssrl.engines.documents import Wrapper
from ssrl.errors import UserError
from ssrl.types import SearchResult, SearchStatus


class Watch(Protocol):
    """Counts how calls ended (`ssrl.calls.health.Health`)."""

    def note(self, statuses: Iterable[SearchStatus]) -> None:
        """Raises UserError where too many of the last calls have failed."""
        ...


class Answering:
    """The part of `ssrl.types.Engine` that does not depend on who answers."""

    name: str
    answers = True
    may_decline = False
    count_invalid = True
    entropy: int | None = None

    def __init__(self, health: Watch, wrapper: Wrapper, *, max_turns: int, retry_message: str = "") -> None:
        if max_turns < 1:
            raise UserError(f"engine={self.name} needs at least one turn, found {max_turns}; or type: engine=fullsim")
        if any(bracket in retry_message for bracket in "<>"):
            raise UserError(f"engine.retry_message={retry_message!r} may hold no tag and no angle bracket; name the tags in words.")
        self.health, self.max_turns, self.retry_message = health, max_turns, retry_message
        self._wrapper = wrapper
        self.wrapper = (wrapper.before, wrapper.after)

    def figures(self, step: int) -> dict[str, float]:
        return {}

    def render(self, result: SearchResult) -> str:
        return self._wrapper.render(result.documents)
