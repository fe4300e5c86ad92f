"""Rewards from the majority: what is trained, and what is only logged."""

import pytest

from ssrl.rewards.score import Reward
from ssrl.training.vote import relabelled, vote_metrics
from ssrl.types import Block, Question, Rollout, Segment, Source, Status

REWARD = Reward("em", "none", 1.0, 0.0)


def group(name, gold, *answers):
    question = Question(id=name, text=name, answers=(gold,))
    texts = [f"<think>x</think><answer>{answer}</answer>" if answer else "<think>x</think>" for answer in answers]
    rollouts = [
        Rollout(
            question=question, group=name, sample=k, prompt_ids=(1,), ids=(2,), sources=(Source.POLICY,), blocks=(Block.OUTSIDE,), turns=(0,),
            logprobs=(0.0,), trained=(True,), segments=(Segment(source=Source.POLICY, text=text),), status=Status.ENDED)
        for k, text in enumerate(texts)
    ]  # fmt: skip
    from dataclasses import replace

    return [replace(r, score=REWARD(r)) for r in rollouts]


def test_the_majority_is_the_label_and_gold_is_only_logged():
    groups = [group("right", "Paris", "Paris", "paris", "Rome", "Paris"), group("wrong", "Oslo", "Bergen", "Bergen", "Oslo", None)]
    kept, sums = relabelled(groups, REWARD, normalizer="squad", min_share=0.0, train=3)
    assert [[r.score.total for r in members] for members in kept] == [[1, 1, 0], [1, 1, 0]]
    assert [[r.score.parts["em"] for r in members] for members in kept] == [[1, 1, 0], [0, 0, 1]]
    assert vote_metrics(sums) == {
        "vote/majority_share": pytest.approx((3 / 4 + 2 / 4) / 2),
        "vote/labelled_frac": 1.0,
        "vote/label_acc": 0.5,
        "vote/reward_acc": 0.5,  # all three of the first group, none of the second
    }


def test_changing_the_gold_answers_changes_no_reward():
    answers = ("a", "b", "b", None)
    totals = {
        gold: [r.score.total for r in relabelled([group("q", gold, *answers)], REWARD, normalizer="squad", min_share=0, train=4)[0][0]]
        for gold in ("a", "b", "c")
    }
    assert totals["a"] == totals["b"] == totals["c"] == [0, 1, 1, 0]


def test_a_group_without_answers_or_with_too_small_a_majority_is_left_out():
    groups = [group("none", "x", None, None, None), group("split", "x", "p", "q", "r"), group("clear", "x", "p", "p", "r")]
    kept, sums = relabelled(groups, REWARD, normalizer="squad", min_share=0.5, train=3)
    assert [members[0].group for members in kept] == ["clear"]
    assert vote_metrics(sums)["vote/labelled_frac"] == pytest.approx(1 / 3)
    assert vote_metrics({name: 0.0 for name in sums}) == {}
