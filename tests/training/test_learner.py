"""Every way of saving work in an update gives the loss and the gradient of the plain computation: all sequences padded, all logits at once."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from ssrl.training.experience import Layout
from ssrl.training.learner import Learner
from tests.families import FAMILIES, right_padded
from tests.training.updates import OBJECTIVES, T, batch, configured, parts, take

SWITCHES = {
    "defaults": [],
    "small rows": ["trainer.row_tokens=40"],
    "a row a rollout": ["trainer.row_tokens=1"],
    "prompts repeated": ["trainer.share_prompt=false"],
    "one mask a row": ["model.attention=sdpa"],
    "logits in chunks": ["trainer.logprob_chunk=7"],
    "old pass": ["trainer.skip_old_pass=false"],
    "groups without signal computed": ["train.skip_no_signal=false"],
    "activations recomputed": ["trainer.gradient_checkpointing=true"],
}


def learned(family, words):
    """[(loss, gradients)] of each update as the learner makes them."""
    config = configured(words)
    model, reference, critic = parts(family, config, config.model.attention)
    if config.trainer.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
    rollouts, rewards = batch()
    found = []

    def optimise(losses, rows):
        total = 0.0
        for _ in range(rows):
            loss, metrics = next(losses)
            loss.backward()
            total += loss.item()
        found.append((total, take(model, critic)))
        return {}

    learner = Learner(config, model, reference, critic)
    learner.learn(Layout.of(rollouts, range(len(rollouts)), torch.device("cpu")), rewards, 1, optimise)
    return found


def states(decoder, rollouts):
    """Hidden states before each trained token, from one right-padded batch."""
    hidden = decoder(**right_padded(rollouts)).last_hidden_state
    return [hidden[i, [len(r.prompt_ids) + t - 1 for t, x in enumerate(r.trained) if x]] for i, r in enumerate(rollouts)]


def logprobs(model, rollouts):
    """Log-probabilities and entropies of the trained tokens of each rollout."""
    out = []
    for hidden, r in zip(states(model.get_decoder(), rollouts), rollouts, strict=True):
        logp = (model.get_output_embeddings()(hidden) / T).log_softmax(-1)
        out.append((logp[range(len(logp)), [i for i, x in zip(r.ids, r.trained, strict=True) if x]], -(logp.exp() * logp).sum(-1)))
    return [a for a, _ in out], [b for _, b in out]


def values_of(critic, model, rollouts):
    return [critic.head(h)[:, 0] for h in states(critic.trunk or model.get_decoder(), rollouts)]


def credited(a, rollouts, rewards, old, reference, values):
    """Advantages and returns of the tokens of each rollout, by loops."""
    if a.advantage == "group_zscore":
        scores = [(r - g.mean()) / (g.std() + 1e-6) for g in rewards.view(3, 3) for r in g]
        return [torch.full((len(o),), float(s)) for s, o in zip(scores, old, strict=True)], None
    advantages, returns = [], []
    for i in range(len(rollouts)):
        earned = torch.zeros(len(old[i]), dtype=torch.float64)
        earned[-1] = rewards[i]
        if a.kl == "reward":
            earned -= a.kl_coef * (old[i] - reference[i]).double()
        v, total = [*values[i].double().tolist(), 0.0], 0.0
        found = []
        for t in reversed(range(len(old[i]))):
            total = float(earned[t]) + a.gamma * v[t + 1] - v[t] + a.gamma * a.lam * total
            found.insert(0, total)
        advantages.append(torch.tensor(found))
        returns.append(torch.tensor(found) + values[i])
    flat = torch.cat(advantages).double()
    spread = ((flat - flat.mean()).square().mean() + 1e-8).sqrt()
    return [((x.double() - flat.mean()) / spread).float() for x in advantages], returns


def plain(family, words):
    """[(loss, gradients)] of each update by the published formulas, from padded batches."""
    config = configured(words)
    a = config.algo
    model, reference, critic = parts(family, config, "sdpa")
    rollouts, rewards = batch()
    with torch.no_grad():
        old = logprobs(model, rollouts)[0]
        kept = logprobs(reference, rollouts)[0] if reference is not None else None
        before = values_of(critic, model, rollouts) if critic is not None else None
    advantages, returns = credited(a, rollouts, rewards, old, kept, before)
    found = []
    for k in range(a.updates):
        members = [i for i in range(len(rollouts)) if (i // 3) % a.updates == k]
        now, entropy = logprobs(model, rollouts)
        values = values_of(critic, model, rollouts) if critic is not None else None
        tokens = sum(len(old[i]) for i in members)
        loss = torch.zeros(())
        for i in members:
            weight = 1 / tokens if a.aggregate == "token_mean" else 1 / (len(old[i]) * len(members))
            gap = now[i] - old[i]
            ratio = (gap.mean().expand_as(gap) if a.surrogate == "sequence" else gap).exp()
            term = torch.maximum(-advantages[i] * ratio, -advantages[i] * ratio.clamp(1 - a.clip_low, 1 + a.clip_high))
            if a.dual_clip is not None:
                term = torch.where(advantages[i] < 0, torch.minimum(term, -a.dual_clip * advantages[i]), term)
            if a.kl == "loss":
                d = kept[i] - now[i]
                term = term + a.kl_coef * (d.exp() - d - 1)
            loss = loss + weight * (term - a.entropy_coef * entropy[i]).sum()
            if critic is not None:
                near = before[i] + (values[i] - before[i]).clamp(-a.critic.value_clip, a.critic.value_clip)
                loss = loss + 0.5 / tokens * torch.maximum((values[i] - returns[i]) ** 2, (near - returns[i]) ** 2).sum()
        loss.backward()
        found.append((loss.item(), take(model, critic)))
    return found


@pytest.fixture(scope="module")
def expected():
    """The plain computation of each family and objective, once."""
    known = {}

    def of(family, objective):
        if (family, objective) not in known:
            known[family, objective] = plain(family, OBJECTIVES[objective])
        return known[family, objective]

    return of


def same(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for (loss, gradients), (other, others) in zip(found, expected, strict=True):
        assert loss == pytest.approx(other, abs=tolerance)
        assert max(g.abs().max().item() for g in others) > 1e-3  # there is something to compare
        for one, two in zip(gradients, others, strict=True):
            assert (one - two).abs().max().item() < tolerance


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradient_are_those_of_the_plain_padded_computation(expected, family, objective):
    for words in SWITCHES.values():
        same(learned(family, OBJECTIVES[objective] + words), expected(family, objective))


@pytest.mark.parametrize("family", FAMILIES)
def test_all_savings_at_once_and_none_of_them_agree(expected, family):
    none = ["trainer.row_tokens=1", "trainer.share_prompt=false", "model.attention=eager", "trainer.skip_old_pass=false", "train.skip_no_signal=false"]
    all_of_them = ["trainer.row_tokens=64", "trainer.logprob_chunk=5", "trainer.gradient_checkpointing=true"]
    for objective in OBJECTIVES:
        same(learned(family, OBJECTIVES[objective] + none), expected(family, objective))
        same(learned(family, OBJECTIVES[objective] + all_of_them), expected(family, objective))


def passes(words):
    """How often the policy and the reference read a row in a step, and the tokens that they read."""
    config = configured([*words, "trainer.row_tokens=1000"])
    model, reference, critic = parts("llama", config, config.model.attention)
    read = []
    for name, each in (("policy", model), ("reference", reference)):
        if each is not None:
            each.get_decoder().register_forward_pre_hook(
                lambda module, args, kwargs, name=name: read.append((name, kwargs["input_ids"].shape[1])), with_kwargs=True)  # fmt: skip
    rollouts, rewards = batch()

    def optimise(losses, rows):
        for _ in range(rows):
            next(losses)[0].backward()
        return {}

    Learner(config, model, reference, critic).learn(Layout.of(rollouts, range(len(rollouts)), torch.device("cpu")), rewards, 1, optimise)
    return read


def test_the_work_that_is_saved_is_not_done():
    rollouts, _ = batch()
    whole = sum(len(prompt) for prompt in {r.prompt_ids for r in rollouts}) + sum(max(t for t, x in enumerate(r.trained) if x) for r in rollouts)
    flat = len(rollouts[6].prompt_ids) + sum(max(t for t, x in enumerate(r.trained) if x) for r in rollouts[6:])
    repeated = sum(2 * len(rollouts[first].prompt_ids) for first in (0, 3))
    plain = ["algo=grpo", "algo.kl=none"]
    assert passes(plain) == [("policy", whole - flat)]  # no old pass, no reference, no group without a signal
    assert passes([*plain, "train.skip_no_signal=false"]) == [("policy", whole)]
    assert passes([*plain, "trainer.share_prompt=false"]) == [("policy", whole - flat + repeated)]
    assert passes([*plain, "trainer.skip_old_pass=false"]) == [("policy", whole - flat)] * 2
    assert passes(["algo=grpo", "algo.kl=loss", "algo.kl_coef=0"]) == [("policy", whole - flat)]
    assert passes(["algo=grpo", "algo.kl=loss", "algo.kl_coef=0.1"]) == [("policy", whole), ("reference", whole)]



@pytest.mark.parametrize(
    ("words", "skips"),
    [
        (("algo=grpo", "algo.kl=none"), True),
        (("algo=grpo", "algo.kl=none", "algo.overlong_buffer=0.2"), False),  # equal scores, but not equal rewards
        (("algo=reinforce", "algo.kl=none", "algo.entropy_coef=0"), False),  # all right is a signal there
    ],
)
def test_equal_scores_mean_no_work_only_where_rollouts_of_a_question_are_compared(words, skips):
    config = configured(words)
    model, reference, critic = parts("llama", config, config.model.attention)
    learner = Learner(config, model, reference, critic)
    assert learner.skips_no_signal and learner.skips_equal_rewards is skips


def test_a_mini_batch_that_no_process_has_a_rollout_of_makes_no_step():
    config = configured(["algo=grpo", "algo.kl=none", "algo.updates=2", "train.skip_no_signal=false"])
    rollouts, rewards = batch()
    steps = []

    def optimise(losses, rows):
        steps.append(rows)
        return {"train/lr": 0.5}

    model, *_ = parts("llama", config, "sdpa")
    numbers = [number + 3 * (number // 3) for number in range(9)]  # the groups 0, 2 and 4, all of the first mini-batch
    metrics, _ = Learner(config, model, None, None).learn(Layout.of(rollouts, numbers, torch.device("cpu")), rewards, 1, optimise)
    assert len(steps) == 1 and steps[0] > 0 and metrics["train/lr"] == 0.5


@pytest.mark.parametrize("words", [["algo.kl=none"], ["algo.kl=none", "train.skip_no_signal=false"], ["algo.kl=reward", "algo.advantage=group_mean"]])
def test_log_probabilities_before_the_updates_are_those_of_the_very_rows_of_the_updates(words):
    config = configured([*words, "algo=grpo", "algo.updates=2", "algo.epochs=2", "trainer.row_tokens=40", "train.questions=3"])
    model, reference, critic = parts("llama", config, config.model.attention)
    read = []
    model.get_decoder().register_forward_pre_hook(lambda module, args, kwargs: read.append(kwargs["input_ids"].tolist()), with_kwargs=True)
    rollouts, rewards = batch()

    def optimise(losses, rows):
        for _ in range(rows):
            next(losses)
        return {}

    Learner(config, model, reference, critic).learn(Layout.of(rollouts, range(len(rollouts)), torch.device("cpu")), rewards, 1, optimise)
    first = read[: len(read) // 3]
    assert len(first) > 2 and read == first * 3  # once before, and in each of two epochs


def test_the_mismatch_with_the_sampler_by_hand():
    model, *_ = parts("llama", config := configured(["algo=grpo", "algo.kl=none", "train.skip_no_signal=false"]), "sdpa")
    rollouts, rewards = batch()
    with torch.no_grad():
        now = logprobs(model, rollouts)[0]
    gaps = itertools.cycle([math.log(2), math.log(2), -math.log(2), 0.0, math.nan])  # policy less sampler; the last is of a token that nobody sampled
    told = [[float(x) - next(gaps) for x in each] for each in now]
    for i, each in enumerate(told):
        values = iter(each)
        rollouts[i] = replace(rollouts[i], logprobs=tuple(next(values) if x else math.nan for x in rollouts[i].trained))
    assert sum(map(len, told)) == 50  # ten of each gap

    def optimise(losses, rows):
        found = [next(losses)[1] for _ in range(rows)]
        return {name: sum(float(each[name]) for each in found) for name in found[0]}

    metrics, _ = Learner(config, model, None, None).learn(Layout.of(rollouts, range(len(rollouts)), torch.device("cpu")), rewards, 1, optimise)
    assert {name: metrics[f"mismatch/{name}"] for name in ("k1", "k3", "mean_abs", "frac_outside")} == {
        "k1": pytest.approx(-math.log(2) * 10 / 40, abs=1e-4),
        "k3": pytest.approx((20 * (1 - math.log(2)) + 10 * (math.log(2) - 0.5)) / 40, abs=1e-4),
        "mean_abs": pytest.approx(30 * math.log(2) / 40, abs=1e-4),
        "frac_outside": pytest.approx(30 / 40, abs=1e-4),
    }
