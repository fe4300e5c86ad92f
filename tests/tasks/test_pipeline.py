"""Rollouts that are sampled beside the update of the step before theirs."""

import shutil

import pytest

from ssrl.errors import UserError
from tests.tasks.test_resume import assert_same, drawn, metrics, state

AHEAD = ("train.pipeline=true", "algo.correction=token", "algo.kl=none")
PLAIN = AHEAD[1:]


def texts(folder):
    return {step: [text for _, text, _ in rows] for step, rows in drawn(folder).items()}


def test_each_batch_is_written_by_the_weights_of_before_the_last_update(runs):
    ahead = runs.run("train.steps=3", *AHEAD)
    rows = [row for row in ahead.metrics() if "train/reward" in row]
    assert [row["rollout/staleness"] for row in rows] == [0, 1, 1]
    assert rows[0]["mismatch/mean_abs"] < 1e-5 < 1e-4 < rows[1]["mismatch/mean_abs"]  # the policy has moved on
    frozen = texts(runs.run("train.steps=2", "train.lr=0", *PLAIN, f"runs={runs.home / 'frozen'}"))
    moving = texts(runs.run("train.steps=2", *PLAIN, f"runs={runs.home / 'moving'}"))
    found = texts(ahead)
    assert found[1] == frozen[1] == moving[1] and found[2] == frozen[2] != moving[2]


def test_a_run_that_failed_between_checkpoints_goes_on_with_what_was_sampled_ahead(runs, monkeypatch):
    words = ("train.steps=5", "train.save_every=2", *AHEAD)
    whole = runs.run(*words)
    expected = state(whole), metrics(whole), drawn(whole)
    shutil.rmtree(whole.path)
    reward, scored = runs.reward, []

    def failing(rollout):
        scored.append(rollout)
        if len(scored) > 3 * 8:  # in the rollouts of step 4, beside the update of step 3
            raise UserError("the reward broke")
        return reward(rollout)

    monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, **kwargs: failing)
    with pytest.raises(UserError, match="the reward broke"):
        runs.run(*words, "eval.before=false")
    monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, **kwargs: reward)
    continued = runs.run(*words, "eval.before=false")
    for found, known in zip((state(continued), metrics(continued), drawn(continued)), expected, strict=True):
        assert_same(found, known)


def test_a_rollback_forgets_what_the_collapsed_policy_has_sampled(runs, monkeypatch):
    sentences = iter([[], [], ["it collapsed"], [], []])
    monkeypatch.setattr("ssrl.training.guard.Watch.trained", lambda watch, metrics: next(sentences))
    folder = runs.run("guard.action=rollback", "train.steps=5", "train.save_every=10", "eval.every=1", *AHEAD)
    assert [row["rollout/staleness"] for row in folder.metrics() if "train/reward" in row] == [0, 1, 1, 0, 1]
