"""Rewards from the majority: what is trained, and what is only logged."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ssrl.data.order import Draw
from ssrl.rewards.score import Reward
from ssrl.training.collect import Collector, Sampled
from ssrl.training.metrics import rollout_metrics
from ssrl.training.vote import relabelled, unjudged, vote_metrics
from ssrl.types import Block, Question, Rollout, Segment, Source, Status
from tests.training.updates import configured

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
    return [replace(r, score=REWARD(r)) for r in rollouts]


def test_the_majority_is_the_label_and_gold_is_only_logged():
    groups = [group("right", "Paris", "Paris", "paris", "Rome", "Paris"), group("wrong", "Oslo", "Bergen", "Bergen", "Oslo", None)]
    kept, sums = relabelled(groups, REWARD, normalizer="squad", min_share=0.0)
    assert [[r.score.total for r in members] for members in kept] == [[1, 1, 0, 1], [1, 1, 0, 0]]
    assert [[r.score.parts["em"] for r in members] for members in kept] == [[1, 1, 0, 1], [0, 0, 1, 0]]
    assert vote_metrics(sums) == {
        "vote/majority_share": pytest.approx((3 / 4 + 2 / 4) / 2),
        "vote/labelled_frac": 1.0,
        "vote/label_acc": 0.5,
        "vote/reward_acc": (4 / 4 + 1 / 4) / 2,  # all of the first group, and who gave no answer in the second
    }


def test_changing_the_gold_answers_changes_no_reward():
    answers = ("a", "b", "b", None)
    totals = {
        gold: [r.score.total for r in relabelled([group("q", gold, *answers)], REWARD, normalizer="squad", min_share=0)[0][0]]
        for gold in ("a", "b", "c")
    }
    assert totals["a"] == totals["b"] == totals["c"] == [0, 1, 1, 0]


def test_a_group_without_answers_or_with_too_small_a_majority_is_left_out():
    groups = [group("none", "x", None, None, None), group("split", "x", "p", "q", "r"), group("clear", "x", "p", "p", "r")]
    kept, sums = relabelled(groups, REWARD, normalizer="squad", min_share=0.5)
    assert [members[0].group for members in kept] == ["clear"]
    assert vote_metrics(sums)["vote/labelled_frac"] == pytest.approx(1 / 3)
    assert vote_metrics({name: 0.0 for name in sums}) == {}


def test_whoever_is_not_trained_is_judged_by_the_label_too_and_where_there_is_none_nobody_is():
    labelled, split = group("7/0", "gold", "wrong", "wrong", "gold"), group("7/1", "gold", "gold", "other", None)
    failed = group("7/2", "gold", "wrong", "wrong", "wrong")
    failed[0] = replace(failed[0], status=Status.FAILED)
    config = configured(["reward.label=majority", "reward.votes=3", "reward.min_share=0.5", "rollout.n=2"])
    collector = Collector(config, SimpleNamespace(reward=REWARD))
    collector.ahead = Sampled(rollouts=[*labelled, *split, *failed], seconds=1.0)
    draws = [Draw(question=members[0].question, epoch=0, position=i) for i, members in enumerate((labelled, split, failed))]
    collected = collector.collect(draws, 7, [], torch.device("cpu"))
    assert [(r.group, r.sample) for r in collected.kept] == [("7/0", 0), ("7/0", 1), ("7/2", 1), ("7/2", 2)]
    nobody = pytest.approx(math.nan, nan_ok=True)
    assert [r.score.total for r in collected.rollouts] == [1, 1, 0, nobody, nobody, nobody, nobody, 1, 1]
    found = rollout_metrics(collected.rollouts, "train")
    assert found["train/reward"] == pytest.approx(4 / 5)
    assert found["train/em"] == pytest.approx(2 / 9)  # by gold, of all
    assert "train/reward" not in rollout_metrics([unjudged(r) for r in split], "train")
