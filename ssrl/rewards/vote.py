"""The label of a question without an answer key: what most of its rollouts answered. [TTRL, arXiv 2504.16084; FACTS 4]"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ssrl.text.normalize import comparable


@dataclass(frozen=True, slots=True)
class Vote:
    """The winner and its share of all votes, those without an answer included."""

    label: str | None  # as it was first written; None where nobody answered
    share: float


def majority(answers: Sequence[str | None], normalizer: str) -> Vote:
    """Answers that exact match takes for one count together. A missing or blank one never wins; ties go to the answer that was given first.

    The published vote counts exact strings, which splits answers that mean the same (FACTS 7.31).
    """
    votes = [(comparable(answer or "", normalizer), answer) for answer in answers]
    counts = Counter(vote for vote, _ in votes if vote)
    if not counts:
        return Vote(None, 0.0)
    winner, count = counts.most_common(1)[0]  # of equals the first that was counted
    return Vote(next(answer for vote, answer in votes if vote == winner), count / len(answers))
