"""How right an answer is, in [0, 1]: the best over all accepted answers.

The names are exact. Some published code calls cover-EM "EM"; here `em` is equality, and em <= f1 and em <= cover_em hold for every sample.
A missing or blank prediction scores 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ssrl.text.normalize import comparable


def em(prediction: str | None, golds: Sequence[str], normalizer: str = "squad") -> float:
    """1 where the normalised prediction equals a normalised accepted answer."""
    predicted = comparable(prediction or "", normalizer)
    return float(predicted != "" and any(predicted == comparable(gold, normalizer) for gold in golds))


def cover_em(prediction: str | None, golds: Sequence[str], normalizer: str = "squad") -> float:
    """1 where the normalised prediction contains a normalised accepted answer as a substring."""
    predicted = comparable(prediction or "", normalizer)
    return float(any(gold != "" and gold in predicted for gold in (comparable(gold, normalizer) for gold in golds)))


def f1(prediction: str | None, golds: Sequence[str], normalizer: str = "squad") -> float:
    """2 · common words / (words of the prediction + words of the accepted answer), words counted with multiplicity."""
    predicted = Counter(comparable(prediction or "", normalizer).split())
    return max((_overlap(predicted, Counter(comparable(gold, normalizer).split())) for gold in golds), default=0.0)


def _overlap(predicted: Counter[str], gold: Counter[str]) -> float:
    common = (predicted & gold).total()
    return 2 * common / (predicted.total() + gold.total()) if common else 0.0
