"""No searches at all: direct answers, chains of thought and R1. Its prompts offer no search tags."""

from __future__ import annotations

from ssrl.engines.fullsim import FullSim


class NoEngine(FullSim):
    """Like full-sim one generation, but information that the policy writes is not what was asked for."""

    name = "none"
    identity = {"engine": "none"}
    may_decline = False
