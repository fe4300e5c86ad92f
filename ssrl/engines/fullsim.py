"""Full-sim: nobody answers, the policy writes the information itself. [SSRL; FACTS 1.1]"""

from __future__ import annotations

from collections.abc import Sequence

from ssrl.types import SearchCall, SearchResult


class FullSim:
    """Always declines, so one generation without a stop string at `</search>` is the whole rollout."""

    name = "fullsim"
    answers = False
    max_turns = 0
    wants_entropy = False
    wrapper = ("", "")

    def search(self, calls: Sequence[SearchCall]) -> list[SearchResult | None]:
        return [None] * len(calls)

    def render(self, result: SearchResult) -> str:
        raise RuntimeError("the full-sim engine returns no documents to render")
