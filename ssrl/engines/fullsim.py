"""Full-sim: nobody answers, the policy writes the information itself. [SSRL; FACTS 1.1]"""

from __future__ import annotations

from collections.abc import Sequence

from ssrl.types import SearchCall, SearchResult


class FullSim:
    """Always declines, so one generation without a stop string at `</search>` is the whole rollout."""

    name = "fullsim"
    identity = {"engine": "fullsim"}
    answers = False
    may_decline = True
    max_turns = 0
    count_invalid = False
    retry_message = ""
    entropy = None
    wrapper = ("", "")

    def search(self, calls: Sequence[SearchCall]) -> list[SearchResult | None]:
        return [None] * len(calls)

    def render(self, result: SearchResult) -> str:
        raise RuntimeError(f"the engine {self.name} returns no documents to render")

    def figures(self, step: int) -> dict[str, float]:
        return {}

    def ping(self) -> float:
        return 0.0
