"""Rewards that a random model can earn more of. They stand in for EM, too."""

from ssrl.types import Rollout, Score

PARTS = ("em", "cover_em", "f1", "format", "searches", "answer_words")


def even_share(rollout: Rollout) -> Score:
    """The share of its tokens with an even id."""
    return _score(sum(i % 2 == 0 for i in rollout.ids) / len(rollout.ids))


def right_or_wrong(rollout: Rollout) -> Score:
    """1 where more than half of its tokens have an even id, which is about half of the time, else 0."""
    return _score(float(sum(i % 2 == 0 for i in rollout.ids) > len(rollout.ids) / 2))


def _score(total: float) -> Score:
    return Score(total=total, parts=dict.fromkeys(PARTS, 0.0) | {"em": total}, answer=None)
