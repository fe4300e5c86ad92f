"""The label of a question without an answer key: what most of its rollouts answered. [TTRL, arXiv 2504.16084; FACTS 4]"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ssrl.text.normalize import NORMALIZERS


@dataclass(frozen=True, slots=True)
class Vote:
    """The winner and its share of all votes, those without an answer included."""

    label: str | None  # normalised; None where nobody answered
    share: float


def majority(answers: Sequence[str | None], normalizer: str) -> Vote:
    """Votes on the normalised answer. A missing or empty answer never wins; ties go to the answer that was given first.

    The published vote counts exact strings, which splits answers that mean the same (FACTS 7.31).
    """
    votes = [NORMALIZERS[normalizer](answer) for answer in answers if answer is not None]
    counts = Counter(vote for vote in votes if vote)
    if not counts:
        return Vote(None, 0.0)
    label, count = counts.most_common(1)[0]  # of equals the first that was counted
    return Vote(label, count / len(answers))
