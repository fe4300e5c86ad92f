"""Every `algo=` file trains the tiny model: what its parts do to a run, a resume and its metrics."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from ssrl.compose import Composer
from ssrl.policy.load import load_model
from ssrl.training.module import SearchRL
from ssrl.types import Source

PRESETS = Composer().options("algo")
FOUR = ("train.questions=4", "rollout.n=4", "train.steps=2", "train.warmup_steps=1", "algo.critic.warmup_steps=1")


def rows(folder):
    return [row for row in folder.metrics() if "train/reward" in row]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_moves_the_policy_and_stays_finite(graded, preset):
    folder = graded.run(f"algo={preset}", *FOUR)
    first = load_model("random:tiny").model.state_dict()
    weights = graded.weights(folder)
    assert any(not torch.equal(value, first[name.removeprefix("policy.")]) for name, value in weights.items() if name.startswith("policy."))
    assert all(value.isfinite().all() for value in weights.values())
    for row in rows(folder):
        assert row["train/skipped_steps"] == 0 and row["loss/grad_norm"] > 0 and row["mismatch/mean_abs"] < 1e-4


def test_a_critic_has_its_own_weights_optimiser_and_figures_and_is_not_part_of_the_policy(graded):
    folder = graded.run("algo=ppo", *FOUR)
    saved = torch.load(folder.path / "checkpoints" / "last.ckpt", weights_only=False)
    assert len(saved["optimizer_states"]) == 2
    assert any(name.startswith("critic.trunk.") for name in saved["state_dict"]) and "critic.head.weight" in saved["state_dict"]
    assert all({"critic/loss", "critic/grad_norm", "critic/value_mean", "critic/explained_variance"} <= row.keys() for row in rows(folder))
    from ssrl.tasks.checkpoint import load_weights

    load_weights(load_model("random:tiny").model, folder.path / "checkpoints" / "last.ckpt")


def test_while_the_critic_learns_alone_the_policy_stays(graded):
    folder = graded.run("algo=ppo", "algo.critic.alone_steps=2", *FOUR)
    first, weights = load_model("random:tiny").model.state_dict(), graded.weights(folder)
    assert all(torch.equal(value, first[name.removeprefix("policy.")]) for name, value in weights.items() if name.startswith("policy."))
    assert float(weights["critic.head.weight"].abs().sum()) > 0


def test_a_critic_on_the_policys_trunk_is_a_head_alone(graded):
    weights = graded.weights(graded.run("algo=ppo", "algo.critic.shared=true", *FOUR))
    assert {name for name in weights if name.startswith("critic.")} == {"critic.head.weight", "critic.head.bias"}


@pytest.mark.parametrize("words", [("algo=ppo", "algo.kl=reward", "algo.kl_target=0.001", "algo.kl_horizon=16"), ("algo=dapo",), ("algo=clip_cov", "algo.cov_low=-9", "algo.cov_high=9")])
def test_two_steps_equal_one_and_a_resumed_one(graded, words):
    whole = graded.weights(graded.run(*words, *FOUR))
    parted = (*words, *FOUR, f"runs={graded.home / 'parted'}")
    graded.run(*parted, "train.steps=1")
    assert all(torch.equal(value, whole[name]) for name, value in graded.weights(graded.run(*parted)).items())


def test_dynamic_sampling_fills_the_batch_with_mixed_questions_and_says_what_it_threw_away(graded):
    (row, _) = rows(graded.run("algo=dapo", *FOUR, "rollout.n=2"))
    assert row["rollout/batches"] > 1 and row["rollout/unfilled"] == 0 and 0 < row["rollout/thrown_away_frac"] < 1
    assert row["rollout/batches"] * 4 * (1 - row["rollout/thrown_away_frac"]) == pytest.approx(4)


def test_dynamic_sampling_stops_at_its_limit_with_a_sentence(runs, monkeypatch, capsys):
    reward = runs.reward
    wrong = lambda rollout: dataclasses.replace(reward(rollout), parts=reward(rollout).parts | {"em": 0.0})  # noqa: E731
    monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, **kwargs: wrong)
    folder = runs.run("algo=dapo", "algo.max_batches=2", *FOUR, "train.steps=1")
    (row,) = rows(folder)
    assert (row["rollout/batches"], row["rollout/unfilled"], row["rollout/thrown_away_frac"]) == (2, 4, 1)
    assert "0 of 4 questions" in " ".join(capsys.readouterr().out.split())


def test_the_overlong_penalty_falls_on_what_the_policy_wrote_and_not_on_documents():
    policy, engine = Source.POLICY, Source.ENGINE
    sources = [[policy] * 6, [policy] * 9, [policy] * 12, [policy] * 6 + [engine] * 30 + [policy] * 3]
    rollouts = [SimpleNamespace(score=SimpleNamespace(total=1.0), sources=each) for each in sources]
    (tree,) = Composer().jobs(["algo=dapo", "algo.overlong_buffer=0.5", "rollout.max_response_tokens=12"], False)
    rewards = SearchRL.rewards(SimpleNamespace(config=tree), rollouts)
    assert rewards.tolist() == [1.0, 0.5, 0.0, 0.5]  # free up to 6 tokens, then 1/6 a token


def test_an_entropy_bonus_reaches_the_gradient(graded):
    plain = graded.weights(graded.run("algo=grpo", "algo.kl=none", *FOUR))
    bonus = graded.weights(graded.run("algo=grpo", "algo.kl=none", "algo.entropy_coef=0.1", *FOUR, f"runs={graded.home / 'bonus'}"))
    assert any(not torch.equal(plain[name], bonus[name]) for name in plain)


def test_a_majority_labels_the_rollouts_and_the_first_of_them_are_trained(runs, monkeypatch):
    reward = runs.reward

    def answering(rollout):  # an answer of its own for even and odd first tokens; right by gold is what nobody can know
        score = reward(rollout)
        answer = "even" if rollout.ids[-1] % 2 == 0 else "odd"
        right = float(answer in rollout.question.answers)
        return dataclasses.replace(score, answer=answer, total=right, parts=score.parts | {"em": right})

    monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, **kwargs: answering)
    folder = runs.run("reward.label=majority", "reward.votes=6", *FOUR)
    for row in rows(folder):
        assert row["rollout/group_size_max"] == 4 and row["vote/labelled_frac"] == 1 and row["vote/majority_share"] >= 0.5
        assert row["vote/label_acc"] == 0 and row["train/em"] == 0  # gold says that all of it is wrong, and yet it is trained
        assert row["rollout/dropped"] == 4 * 2 and row["train/trained_tokens"] > 0


@pytest.mark.parametrize("action", ["warn", "stop", "rollback"])
def test_the_guard_says_what_it_saw_and_acts_as_configured(graded, capsys, action):
    watched = ("guard.length_factor=1", "guard.entropy_factor=1", "train.steps=6", "train.save_every=10", "eval.every=1", "train.lr=0.03")
    folder = graded.run(f"guard.action={action}", *FOUR, *watched)
    said = " ".join(capsys.readouterr().out.split())
    assert "guard: step" in said and "in the first steps to" in said
    done = folder.status().step
    assert (done < 6) == (action == "stop")
    assert torch.load(folder.path / "checkpoints" / "last.ckpt", weights_only=False)["ssrl"]["steps_done"] == done
    assert ("back to the best checkpoint" in said) == (action == "rollback")


@pytest.mark.parametrize("action", ["stop", "rollback"])
def test_a_sampler_that_disagrees_stops_a_run_and_takes_no_weights_back(graded, capsys, action):
    folder = graded.run(f"guard.action={action}", "guard.mismatch=0", *FOUR, "train.steps=3", "eval.every=1")  # rounding is enough
    said = " ".join(capsys.readouterr().out.split())
    assert "log-probabilities of sampler and update differ by" in said and "back to the best checkpoint" not in said
    assert (folder.status().step < 3) == (action == "stop")
