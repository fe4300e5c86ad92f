"""What a real training step does to the weights, against slow computations of the same."""

import dataclasses
import itertools
from statistics import fmean

import pytest
import torch

from ssrl.algo.loss import policy_loss
from ssrl.errors import UserError
from ssrl.policy.load import load_model
from ssrl.rollout.loop import EpisodeLoop
from ssrl.types import Status

ONE_STEP = ("train.steps=1", "algo.kl=none", "train.grad_clip=0", "train.questions=3")


def largest_gap(left, right):
    return max((a - b).abs().max().item() for a, b in zip(left, right, strict=True))


def plain_gradients(rollouts, aggregate):
    """GRPO's gradient from one unpacked forward pass a rollout, with the published formula in loops."""
    model = load_model("random:tiny").model
    groups = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    total = 0.0
    for group in groups.values():
        rewards = torch.tensor([sum(i % 2 == 0 for i in r.ids) / len(r.ids) for r in group], dtype=torch.float64)
        for rollout, advantage in zip(group, (rewards - rewards.mean()) / (rewards.std() + 1e-6), strict=True):
            ids = torch.tensor([[*rollout.prompt_ids, *rollout.ids]])
            logp = model(input_ids=ids).logits[0].double().log_softmax(-1)
            start = len(rollout.prompt_ids)
            terms = [
                -advantage * (logp[start + t - 1, token] - logp[start + t - 1, token].detach()).exp()
                for t, token in enumerate(rollout.ids)
                if rollout.trained[t]
            ]
            length = sum(rollout.trained)
            weight = 1 / sum(sum(r.trained) for r in rollouts) if aggregate == "token_mean" else 1 / (length * len(rollouts))
            total = total + weight * sum(terms)
    total.backward()
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean"])
def test_one_step_has_the_gradient_of_the_plain_formula(runs, gradients, aggregate):
    runs.run(*ONE_STEP, f"algo.aggregate={aggregate}")
    training = [r for r in runs.scored if r.group.startswith("1/")]
    assert len(training) == 12 and len({r.group for r in training}) == 3
    expected = plain_gradients(training, aggregate)
    assert max(g.abs().max().item() for g in expected) > 1e-3
    assert largest_gap(gradients[0], expected) < 1e-5


@pytest.mark.slow
def test_how_the_work_is_cut_up_changes_no_gradient(runs, gradients, monkeypatch):
    reward = runs.reward  # one group without a signal, so that it can be left out
    flat = lambda rollout: reward(rollout) if not rollout.group.endswith("/1") else dataclasses.replace(reward(rollout), total=0.5)  # noqa: E731
    monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, **kwargs: flat)
    variants = [
        [],
        ["trainer.row_tokens=64"],
        ["trainer.row_tokens=1"],
        ["trainer.logprob_chunk=5"],
        ["trainer.share_prompt=false"],
        ["model.attention=sdpa"],
        ["train.skip_no_signal=false"],
        ["trainer.gradient_checkpointing=true"],
        ["rollout.batch=3"],
    ]
    for number, words in enumerate(variants):
        runs.run(*ONE_STEP, f"runs={runs.home / str(number)}", *words)
    inputs = []
    for number, words in enumerate(variants):
        assert largest_gap(gradients[0], gradients[number]) < 1e-6, words
        (metrics,) = (runs.home / str(number)).glob("*/*/metrics.jsonl")
        inputs.append(float(metrics.read_text().split('"train/input_tokens":')[1].split(",")[0]))
    assert inputs[2] > inputs[0] and inputs[4] > inputs[0] and inputs[6] > inputs[0]  # prompts repeated; a group more


@pytest.mark.parametrize("words", [[], ["algo.updates=2"], ["train.skip_no_signal=false"]])
def test_a_batch_without_a_signal_only_decays_the_weights(runs, monkeypatch, words):
    reward = runs.reward
    monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, **kwargs: lambda rollout: dataclasses.replace(reward(rollout), total=0.5))
    folder = runs.run("train.steps=1", "train.lr=0.1", "train.warmup_steps=0", *words)
    first = load_model("random:tiny").model.state_dict()
    factor = (1 - 0.1 * 0.01) ** (2 if words == ["algo.updates=2"] else 1)
    for name, value in runs.weights(folder).items():
        assert torch.allclose(value, first[name.removeprefix("policy.")] * factor, rtol=1e-6, atol=1e-7), name
    (row,) = [row for row in folder.metrics() if "train/reward" in row]
    assert row["loss/grad_norm"] == 0 and row["rollout/zero_std_frac"] == 1 and row["train/skipped_steps"] == 0


def test_a_mini_batch_without_a_signal_beside_one_with_it_loses_no_metric(runs, monkeypatch):
    reward = runs.reward
    for flat in ("1/0", "1/1"):
        replaced = lambda rollout, flat=flat: dataclasses.replace(reward(rollout), total=0.5) if rollout.group == flat else reward(rollout)  # noqa: E731
        monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, replaced=replaced, **kwargs: replaced)
        folder = runs.run("train.steps=1", "algo.updates=2", f"runs={runs.home / flat.replace('/', '-')}")
        (row,) = [row for row in folder.metrics() if "train/reward" in row]
        assert row["train/entropy"] > 4 and row["loss/grad_norm"] > 0 and "loss/policy" in row


def test_when_every_engine_call_failed_nothing_is_learned_and_nothing_breaks(runs, monkeypatch):
    run = EpisodeLoop.run
    failed = lambda *args, **kwargs: [dataclasses.replace(r, status=Status.FAILED) for r in run(*args, **kwargs)]  # noqa: E731
    monkeypatch.setattr(EpisodeLoop, "run", failed)
    folder = runs.run("train.steps=2", "train.lr=0.1", "train.weight_decay=0.1", "algo.updates=2")
    assert [row["rollout/dropped"] for row in folder.metrics() if "train/reward" in row] == [8, 8]
    first = load_model("random:tiny").model.state_dict()
    assert all(torch.equal(value, first[name.removeprefix("policy.")]) for name, value in runs.weights(folder).items())


def not_finite(monkeypatch, steps):
    """Make the loss NaN in these steps, each of which is one row."""
    number = itertools.count(1)

    def broken(*args):
        loss, metrics = policy_loss(*args)
        return (loss * float("nan") if next(number) in steps else loss), metrics

    monkeypatch.setattr("ssrl.training.learner.policy_loss", broken)


@pytest.mark.slow
def test_a_step_that_is_not_finite_is_skipped_counted_and_kept_for_a_look(runs, monkeypatch):
    not_finite(monkeypatch, {2})
    folder = runs.run("train.steps=1")
    before = runs.weights(folder)
    folder = runs.run("train.steps=2")
    after = runs.weights(folder)
    assert all(torch.equal(before[name], after[name]) for name in before)
    dump = torch.load(folder.path / "bad-step-2-rank0.pt", weights_only=False)
    assert dump["step"] == 2 and len(dump["part"].indices) == 8 and sum(len(row.target) for row in dump["part"].rows) > 0
    folder = runs.run("train.steps=3")
    assert [row["train/skipped_steps"] for row in folder.metrics() if "train/lr" in row] == [0, 1, 0]
    assert all(value.isfinite().all() for value in runs.weights(folder).values())
    assert any(not torch.equal(before[name], value) for name, value in runs.weights(folder).items())


@pytest.mark.slow
def test_bad_steps_in_a_row_stop_the_run_with_a_sentence_and_are_never_saved(runs, monkeypatch):
    not_finite(monkeypatch, {3, 4, 5, 6})
    with pytest.raises(UserError, match="not finite in 3 steps in a row .step 5.*lower train.lr"):
        runs.run("train.steps=9", "train.save_every=1", "train.max_bad_steps=3")
    folder = runs.folder()
    assert folder.status().state == "failed" and "not finite" in folder.status().error
    assert all(value.isfinite().all() for value in runs.weights(folder).values())


def test_the_reference_policy_is_loaded_only_where_it_is_needed(runs, monkeypatch):
    loaded = []
    monkeypatch.setattr("ssrl.tasks.fit.load_model", lambda *args, **kwargs: loaded.append(args) or load_model(*args, **kwargs))
    runs.run("train.steps=1", "algo.kl=none")
    runs.run("train.steps=1", "algo.kl=loss", "algo.kl_coef=0")
    runs.run("train.steps=1", "algo.kl=loss", "algo.kl_coef=0.1", "model.lora.rank=2")
    assert not loaded
    folder = runs.run("train.steps=2", "algo.kl=loss", "algo.kl_coef=0.1")
    assert len(loaded) == 1
    kl = [row["loss/kl"] for row in folder.metrics() if "loss/kl" in row]
    assert kl[0] == pytest.approx(0, abs=1e-9) and kl[1] > 1e-9
    assert not any("reference" in name for name in runs.weights(folder))


def test_adapters_alone_are_trained(runs, gradients):
    folder = runs.run("train.steps=2", "model.lora.rank=2", "algo.kl=loss", "algo.kl_coef=0.1", "trainer.gradient_checkpointing=true")
    first = load_model("random:tiny").model.state_dict()
    trained = runs.weights(folder)
    frozen = {name: value for name, value in trained.items() if "lora_" not in name}
    plain = {name.removeprefix("policy.base_model.model.").replace(".base_layer", ""): value for name, value in frozen.items()}
    assert plain.keys() == first.keys() and all(torch.equal(plain[name], first[name]) for name in first)
    assert all(value.abs().max() > 0 for name, value in trained.items() if "lora_B" in name)  # they begin at 0
    assert len(gradients[0]) == len(trained) - len(frozen)


def test_bf16_autocast_trains_every_weight_in_every_update_of_a_batch(runs, gradients):
    words = ("train.steps=1", "algo.updates=2", "algo.kl=none", "train.lr=0.01", "train.warmup_steps=0")
    folder = runs.run(*words, "trainer.precision=bf16-mixed", f"runs={runs.home / 'half'}")
    runs.run(*words)
    assert all(value.dtype == torch.float32 for value in runs.weights(folder).values())
    for half, full in zip(gradients[:2], gradients[2:], strict=True):
        for a, b in zip(half, full, strict=True):
            assert torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.9


@pytest.mark.slow
def test_training_raises_the_reward(runs):
    words = ("train.steps=25", "train.questions=4", "rollout.n=8", "train.lr=0.003", "eval.every=5", "data.train.bundled.limit=50")
    folder = runs.run(*words, "eval.temperature=1")  # greedy decoding of the random model is at its ceiling before training
    rewards = [row["train/reward"] for row in folder.metrics() if "train/reward" in row]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 0.1  # several times what a batch varies by
    summary = folder.summary()
    assert summary["after"]["test/bundled/em"] > summary["before"]["test/bundled/em"]
    validated = {row["step"]: row["val/bundled/em"] for row in folder.metrics() if "val/bundled/em" in row}
    assert list(validated) == [0, 5, 10, 15, 20, 25]
    assert summary["best_step"] == max(validated, key=lambda step: validated[step])  # the first of equals
