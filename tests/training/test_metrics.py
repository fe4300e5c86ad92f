"""Figures of rollouts, of engines and of updates."""

from dataclasses import replace

import pytest

from ssrl.training.metrics import PARTS, engine_metrics, means, percentile, rollout_metrics
from ssrl.types import Block, Question, Rollout, Score, Search, SearchResult, SearchStatus, Source, Status


def test_a_mean_is_over_the_updates_that_have_the_metric():
    assert means([{"loss": 1.0, "norm": 4.0}, {"loss": 3.0, "entropy": 5.0}]) == {"loss": 2.0, "norm": 4.0, "entropy": 5.0}
    assert means([{}, {}]) == {}


def rollout(*searches):
    return Rollout(
        question=Question(id="q", text="Why?", answers=("so",)), group="g", sample=0, prompt_ids=(1,), ids=(2,), sources=(Source.POLICY,),
        blocks=(Block.OUTSIDE,), turns=(0,), logprobs=(0.0,), trained=(True,), segments=(), status=Status.ENDED, searches=searches)  # fmt: skip


def test_documents_are_no_part_of_the_length_of_a_response():
    def reading(*sources):
        n = len(sources)
        return replace(
            rollout(), ids=(2,) * n, sources=sources, blocks=(Block.OUTSIDE,) * n, turns=(0,) * n, logprobs=(0.0,) * n, trained=(False,) * n,
            score=Score(total=0.0, parts=dict.fromkeys(PARTS, 0.0), answer=None))  # fmt: skip

    template, policy, engine = Source.TEMPLATE, Source.POLICY, Source.ENGINE
    found = rollout_metrics([reading(template, policy, engine, engine, engine, policy), reading(policy)], "train")
    assert (found["train/response_tokens"], found["train/document_tokens"]) == (2.0, 1.5)
    assert "train/document_tokens" not in rollout_metrics([reading(policy)], "train")


def asked(status=SearchStatus.OK, latency_s=1.0, cached=False, truncated=False):
    return Search(query="x", result=SearchResult(status=status, latency_s=latency_s, cached=cached), truncated=truncated)


def test_engine_metrics_count_calls_and_what_became_of_them():
    declined = Search(query="x")
    rollouts = [
        rollout(asked(latency_s=4.0), asked(latency_s=1.0, truncated=True), declined),
        rollout(asked(SearchStatus.TIMEOUT, latency_s=9.0), asked(SearchStatus.EMPTY, latency_s=0.1, cached=True)),
        rollout(declined, asked(latency_s=2.0)),
        rollout(),
    ]
    assert engine_metrics(rollouts, "engine") == {
        "engine/calls": 5.0,
        "engine/cached": 1.0,
        "engine/error_frac": pytest.approx(1 / 5),
        "engine/truncated_frac": pytest.approx(1 / 5),
        "engine/real_searches": pytest.approx(4 / 4),
        "engine/saved_frac": pytest.approx(2 / 7),
        "engine/latency_p50": 2.0,  # of 1, 2, 4, 9
        "engine/latency_p95": 9.0,
    }


def test_an_engine_that_was_never_asked_has_no_metrics():
    assert engine_metrics([rollout(Search(query="x")), rollout()], "engine") == {}


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 2), (0.51, 3), (0.75, 3), (0.95, 4), (1.0, 4)])
def test_the_percentile_is_the_smallest_value_that_the_share_does_not_exceed(share, value):
    assert percentile([1, 2, 3, 4], share) == value


def test_a_search_that_was_not_made_for_want_of_turns_was_not_left_to_the_policy():
    ended = replace(rollout(asked(), Search(query="one too many")), status=Status.OUT_OF_TURNS)
    assert engine_metrics([ended], "engine")["engine/saved_frac"] == 0
