"""Rewards from the group's own majority. Gold answers, where there are any, are only compared with for the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ssrl.rewards.score import Reward
from ssrl.rewards.vote import majority
from ssrl.text.metrics import em
from ssrl.types import Rollout


def relabelled(
    groups: Sequence[Sequence[Rollout]], reward: Reward, *, normalizer: str, min_share: float
) -> tuple[list[list[Rollout]], dict[str, float]]:
    """Groups scored against their majority's answer; those without one, or whose majority is too small, are left out.

    Args:
        groups: all rollouts of a question vote.
        min_share: smallest share of the votes that a label needs.

    Returns:
        The groups, whose scores have a part `label_em` beside the parts by gold, and sums for `vote_metrics`.
    """
    kept: list[list[Rollout]] = []
    sums = {"votes": 0.0, "labels": 0.0, "shares": 0.0, "label_right": 0.0, "reward_right": 0.0}
    for group in groups:
        vote = majority([r.score.answer for r in group], normalizer)
        sums["votes"] += 1
        sums["shares"] += vote.share
        if vote.label is None or vote.share < min_share:
            continue
        members = [_against(r, vote.label, reward) for r in group]
        sums["labels"] += 1
        sums["label_right"] += em(vote.label, group[0].question.answers, normalizer)
        sums["reward_right"] += fmean(r.score.parts["label_em"] == r.score.parts["em"] for r in members)
        kept.append(members)
    return kept, sums


def unjudged(rollout: Rollout) -> Rollout:
    """What gold answers would give it is no reward of a run that does not learn from them; the parts stay, for the log."""
    return replace(rollout, score=replace(rollout.score, total=math.nan))


def vote_metrics(sums: dict[str, float]) -> dict[str, float]:
    """From sums over all processes: the mean share of the majority, the questions that got a label, and how often label and reward are right."""
    if not sums["votes"]:
        return {}
    found = {"vote/majority_share": sums["shares"] / sums["votes"], "vote/labelled_frac": sums["labels"] / sums["votes"]}
    if sums["labels"]:
        found |= {"vote/label_acc": sums["label_right"] / sums["labels"], "vote/reward_acc": sums["reward_right"] / sums["labels"]}
    return found


def _against(rollout: Rollout, label: str, reward: Reward) -> Rollout:
    by_label = reward(replace(rollout, question=replace(rollout.question, answers=(label,))))
    return replace(rollout, score=replace(by_label, parts=rollout.score.parts | {"label_em": by_label.parts["em"]}))
