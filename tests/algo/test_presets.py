"""Every file of `conf/algo` on one batch of 3 groups x 3 rollouts with unequal lengths: loss and gradient against the papers' formulas in
float64 loops, and what must not change them."""

import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from ssrl.algo.aggregate import AGGREGATES
from ssrl.algo.covariance import SELECTIONS, token_keys
from ssrl.algo.credit import Batch, assign
from ssrl.algo.filters import overlong_penalty
from ssrl.algo.kl import ESTIMATORS
from ssrl.algo.loss import policy_loss
from ssrl.algo.tokens import Objective, Tokens
from ssrl.compose import CONF
from ssrl.config import AlgoConfig

LENGTHS = [3, 1, 4, 2, 2, 5, 1, 6, 3]  # trained tokens of each rollout
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2, 2]
REWARDS = [1.0, 0.125, 0.0, 0.875, 0.875, 0.25, 0.25, 0.25, 0.25]  # the last group has nothing to compare
ROLLOUTS = range(len(LENGTHS))
OWNER = [rollout for rollout in ROLLOUTS for _ in range(LENGTHS[rollout])]
TOKENS = range(len(OWNER))
LIMIT = 8  # longest response, for Dr. GRPO's constant; the longest rollout is inside of DAPO's buffer with 6
# spread over both sides of every clip bound, of the dual clip (log 3 = 1.1) and of k3's limit; multiples of 1/64 are exact in float32
STEPS = [0, 6, -6, 16, -19, 58, -58, 83, -96, 128, 3, -3, 192, -192, 13, -14, 64, 77, -128, 0, 26, -26, 10, -10, 45, -45, 102]
GAPS = [19, -13, 0, 96, -96, 768, -768, 1, -1, 160, 24, -40, 8] * 3
OLD = [-0.5 - 7 / 64 * t for t in TOKENS]
NOW = [old + step / 64 for old, step in zip(OLD, STEPS, strict=True)]
REFERENCE = [NOW[t] + GAPS[t] / 64 for t in TOKENS]
SAMPLER = [OLD[t] + (-1) ** t * t / 64 for t in TOKENS]
ENTROPY = [0.25 + t / 32 for t in TOKENS]
VALUES = [0.5 - t / 64 for t in TOKENS]
NUMBERS = [7, 3, 11, 20, 2, 5, 31, 8, 13]  # of each rollout in the whole run
SEED = 5

PRESETS = {path.stem: OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(AlgoConfig), OmegaConf.load(path)))
           for path in sorted((CONF / "algo").glob("*.yaml"))}  # fmt: skip
EVERY_PRESET = pytest.mark.parametrize("name", PRESETS)
# choices that no preset makes
VARIANTS = {
    "grpo, correction of tokens, dual clip": replace(PRESETS["grpo"], correction="token", correction_cap=1.25, entropy_coef=0.01),
    "gspo, correction of rollouts": replace(PRESETS["gspo"], correction="sequence", clip_low=0.2, clip_high=0.3),
    "ppo, discounted": replace(PRESETS["ppo"], gamma=0.75, lam=0.5),
    "ppo, not whitened, k3": replace(PRESETS["ppo"], whiten=False, kl_estimator="k3", kl_coef=0.25),
    "reinforce++, discounted, dear KL": replace(PRESETS["reinforce_pp"], gamma=0.5, kl_coef=0.25),
    "rloo, dear KL": replace(PRESETS["rloo"], kl_coef=0.25),
    "kl-cov, many tokens": replace(PRESETS["kl_cov"], cov_ratio=0.25, cov_coef=0.5),
    "clip-cov, many tokens": replace(PRESETS["clip_cov"], cov_ratio=0.25, cov_low=0.25),
}


def objective(algo: AlgoConfig) -> Objective:
    return Objective(**{field.name: getattr(algo, field.name) for field in fields(Objective)})


# The package's own path through a batch


class Processes:
    """Sums and gathers between threads that each play one process."""

    def __init__(self, count: int) -> None:
        self.slots, self.barrier = [None] * count, threading.Barrier(count)

    def everyone(self, rank: int, item: torch.Tensor) -> list[torch.Tensor]:
        self.slots[rank] = item
        self.barrier.wait(30)
        found = list(self.slots)
        self.barrier.wait(30)
        return found

    def run(self, work):
        with ThreadPoolExecutor(len(self.slots)) as pool:
            return list(pool.map(lambda rank: work(
                rank, lambda x: torch.stack(self.everyone(rank, x)).sum(0), lambda x: torch.cat(self.everyone(rank, x))), range(len(self.slots))))  # fmt: skip


def learn(algo, shares=(tuple(ROLLOUTS),), rows=None, *, now=NOW, dtype=torch.float32):
    """Loss, gradient of every token's log-probability, and summed metrics.

    Args:
        shares: rollouts of each process, in its order; whole groups.
        rows: row of each rollout.
    """
    leaf = torch.tensor(now, dtype=dtype, requires_grad=True)

    def work(rank, total, gather):
        mine = shares[rank]
        tokens = torch.tensor([t for r in mine for t in TOKENS if OWNER[t] == r], dtype=torch.long)
        owner = torch.tensor([i for i, r in enumerate(mine) for _ in range(LENGTHS[r])], dtype=torch.long)

        def pick(values):
            return torch.tensor(values, dtype=dtype)[tokens]

        def at(values):
            return torch.tensor([values[r] for r in mine])

        lengths = at(LENGTHS).long()
        rewards = at(REWARDS).float()
        if algo.overlong_buffer:
            rewards = rewards + overlong_penalty(lengths, max_length=6, buffer=6 * algo.overlong_buffer, factor=algo.overlong_penalty)
        kl = ESTIMATORS[algo.kl_estimator](pick(OLD), pick(REFERENCE)) if algo.kl == "reward" else None
        groups = torch.unique(at(GROUPS).long(), return_inverse=True)[1]
        batch = Batch(
            rewards=rewards, groups=groups, rollout=owner, kl=kl, kl_coef=algo.kl_coef, values=pick(VALUES), gamma=algo.gamma, lam=algo.lam
        )
        advantages = assign(algo.advantage, batch, whitened=algo.whiten, total=total).advantages
        count = total(torch.tensor([float(lengths.sum()), float(len(mine))]))
        tokens_of_all, rollouts_of_all = map(int, count)
        weights = AGGREGATES[algo.aggregate](lengths, total_tokens=tokens_of_all, total_rollouts=rollouts_of_all, constant_length=LIMIT)
        everything = Tokens(
            logp=leaf[tokens], old_logp=pick(OLD), advantages=advantages, weights=weights[owner], rollout=owner,
            share=1 / tokens_of_all, reference=pick(REFERENCE) if algo.kl == "loss" else None, sampler_logp=pick(SAMPLER), entropy=pick(ENTROPY).requires_grad_())  # fmt: skip
        if algo.surrogate in SELECTIONS:
            keys = token_keys(at(NUMBERS).long(), owner)
            selected = SELECTIONS[algo.surrogate](objective(algo), everything, keys, seed=SEED, total=total, gather=gather)
            everything = replace(everything, selected=selected)
        return everything, [rows[r] if rows else 0 for r in mine for _ in range(LENGTHS[r])]

    loss, metrics = 0.0, {}
    for everything, row_of in Processes(len(shares)).run(work):
        for row in sorted(set(row_of)):
            where = torch.tensor([row == other for other in row_of])
            part = {f.name: value[where] for f in fields(Tokens) if isinstance(value := getattr(everything, f.name), torch.Tensor)}
            piece, figures = policy_loss(objective(algo), Tokens(share=everything.share, **part))
            piece.backward(retain_graph=True)
            loss += piece.item()
            metrics = {name: metrics.get(name, 0.0) + value.item() for name, value in figures.items()}
    return loss, leaf.grad.double(), metrics


# The same from the papers' formulas, on lists of floats


def mean(values):
    return math.fsum(values) / len(values)


def of_group(rewards, r):
    return [rewards[other] for other in ROLLOUTS if GROUPS[other] == GROUPS[r]]


def slow_kl(estimator, logp, reference):
    d = reference - logp
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d * d / 2
    return min(math.exp(d) - d - 1, 10.0)


def slow_whiten(values):
    centre = mean(values)
    variance = mean([(x - centre) ** 2 for x in values])
    return [(x - centre) / math.sqrt(variance + 1e-8) for x in values]


def slow_returns(rewards, kl, gamma):
    """Return of each token: Σ gamma^(s - t) of what follows in its rollout; the outcome comes with the last token."""
    found = []
    for t in TOKENS:
        later = [s for s in TOKENS if OWNER[s] == OWNER[t] and s >= t]
        found.append(sum(gamma ** (s - t) * ((rewards[OWNER[t]] if s == later[-1] else 0) - kl[s]) for s in later))
    return found


def slow_gae(rewards, kl, gamma, lam):
    found = []
    for t in TOKENS:
        later = [s for s in TOKENS if OWNER[s] == OWNER[t] and s >= t]
        deltas = [
            (rewards[OWNER[t]] if s == later[-1] else gamma * VALUES[s + 1]) - kl[s] - VALUES[s] for s in later
        ]  # the value after the last token is 0
        found.append(sum((gamma * lam) ** i * delta for i, delta in enumerate(deltas)))
    return found


def slow_advantages(algo):
    rewards = list(REWARDS)
    if algo.overlong_buffer:
        buffer = 6 * algo.overlong_buffer
        rewards = [r + max(min((6 - buffer - n) / buffer, 0), -1) * algo.overlong_penalty for r, n in zip(rewards, LENGTHS, strict=True)]
    kl = [algo.kl_coef * slow_kl(algo.kl_estimator, OLD[t], REFERENCE[t]) if algo.kl == "reward" else 0.0 for t in TOKENS]
    whole = [rewards[r] - sum(kl[t] for t in TOKENS if OWNER[t] == r) for r in ROLLOUTS]
    match algo.advantage:
        case "group_zscore":
            each = []
            for r in ROLLOUTS:
                group = of_group(whole, r)
                std = math.sqrt(sum((x - mean(group)) ** 2 for x in group) / (len(group) - 1))
                each.append((whole[r] - mean(group)) / (std + 1e-6))
            found = [each[r] for r in OWNER]
        case "group_mean":
            found = [whole[r] - mean(of_group(whole, r)) for r in OWNER]
        case "leave_one_out":
            found = [whole[r] - (sum(of_group(whole, r)) - whole[r]) / 2 for r in OWNER]
        case "reward":
            found = [whole[r] for r in OWNER]
        case "reinforce_pp":
            found = slow_whiten(slow_returns(rewards, kl, algo.gamma))
        case "reinforce_pp_baseline":
            found = slow_whiten(slow_returns([rewards[r] - mean(of_group(rewards, r)) for r in ROLLOUTS], kl, algo.gamma))
        case "gae":
            found = slow_gae(rewards, kl, algo.gamma, algo.lam)
    return slow_whiten(found) if algo.whiten else found


def slow_covariance(advantages, now):
    return [(advantages[t] - mean(advantages)) * (now[t] - mean(now)) for t in TOKENS]


def slow_surrogate(algo, now, advantages, selected, t):
    a, delta = advantages[t], now[t] - OLD[t]
    if algo.surrogate == "plain":
        return -a * (1 + now[t] - NOW[t])
    if algo.surrogate == "sequence":
        delta = mean([now[s] - OLD[s] for s in TOKENS if OWNER[s] == OWNER[t]])
    ratio = math.exp(delta)
    if algo.surrogate == "kl_cov":
        return -a * ratio + (algo.cov_coef * abs(delta) if t in selected else 0)
    if algo.surrogate == "clip_cov" and t in selected:
        return 0.0
    loss = -min(ratio * a, min(max(ratio, 1 - algo.clip_low), 1 + algo.clip_high) * a)
    return min(loss, -algo.dual_clip * a) if algo.dual_clip is not None and a < 0 else loss


def slow_weight(algo, t):
    return {
        "token_mean": 1 / len(OWNER),
        "sequence_mean": 1 / len(LENGTHS) / LENGTHS[OWNER[t]],
        "sequence_sum": 1 / len(LENGTHS),
        "constant": 1 / len(LENGTHS) / LIMIT,
    }[algo.aggregate]


def slow_correction(algo, t):
    if algo.correction == "none":
        return 1.0
    same = [t] if algo.correction == "token" else [s for s in TOKENS if OWNER[s] == OWNER[t]]
    return min(math.exp(sum(OLD[s] - SAMPLER[s] for s in same)), algo.correction_cap)


def slow_loss(algo, now, advantages, selected):
    found = 0.0
    for t in TOKENS:
        token = slow_correction(algo, t) * slow_surrogate(algo, now, advantages, selected, t) - algo.entropy_coef * ENTROPY[t]
        if algo.kl == "loss":
            token += algo.kl_coef * slow_kl(algo.kl_estimator, now[t], REFERENCE[t])
        found += slow_weight(algo, t) * token
    return found


def slow_selection(algo, advantages):
    """KL-Cov's tokens; Clip-Cov's are drawn, so its candidates."""
    covariance = slow_covariance(advantages, NOW)
    quota = max(int(algo.cov_ratio * len(OWNER)), 1)
    if algo.surrogate == "kl_cov":
        return set(sorted(TOKENS, key=lambda t: -covariance[t])[:quota]), quota

    def clipped(t):
        ratio = math.exp(NOW[t] - OLD[t])
        return (ratio < 1 - algo.clip_low and advantages[t] < 0) or (ratio > 1 + algo.clip_high and advantages[t] > 0)

    return {t for t in TOKENS if algo.cov_low < covariance[t] < algo.cov_high and not clipped(t)}, quota


def chosen_by(algo, advantages):
    everything = Tokens(
        share=1.0, logp=torch.tensor(NOW), old_logp=torch.tensor(OLD), advantages=torch.tensor(advantages).float(), weights=torch.ones(len(OWNER)),
        rollout=torch.tensor(OWNER))  # fmt: skip
    keys = token_keys(torch.tensor(NUMBERS), everything.rollout)
    found = SELECTIONS[algo.surrogate](objective(algo), everything, keys, seed=SEED, total=lambda x: x, gather=lambda x: x)
    return set(found.nonzero().flatten().tolist())


@pytest.mark.parametrize("name", [*PRESETS, *VARIANTS])
def test_loss_and_gradient_equal_the_papers_formulas(name):
    algo = (PRESETS | VARIANTS)[name]
    advantages, selected = slow_advantages(algo), set()
    if algo.surrogate in SELECTIONS:
        selected, (allowed, quota) = chosen_by(algo, advantages), slow_selection(algo, advantages)
        assert selected <= allowed and len(selected) == min(quota, len(allowed)) > 0
    loss, gradient, metrics = learn(algo)
    assert loss == pytest.approx(slow_loss(algo, NOW, advantages, selected), rel=1e-6, abs=1e-6)
    assert metrics["loss/total"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    step = 1e-6
    for t in TOKENS:
        up, down = ([x + sign * step * (s == t) for s, x in enumerate(NOW)] for sign in (1, -1))
        slope = (slow_loss(algo, up, advantages, selected) - slow_loss(algo, down, advantages, selected)) / (2 * step)
        assert gradient[t].item() == pytest.approx(slope, rel=1e-6, abs=1e-6), f"token {t}"


@pytest.mark.parametrize("name", [*PRESETS, *VARIANTS])
@settings(max_examples=12, deadline=None)
@given(order=st.permutations([0, 1, 2]), cut=st.sampled_from([(3,), (1, 2), (2, 1), (1, 1, 1)]), rows=st.lists(st.integers(0, 3), min_size=9, max_size=9),
       shuffle=st.randoms())  # fmt: skip
def test_order_rows_and_processes_change_nothing(name, order, cut, rows, shuffle):
    groups = [[r for r in ROLLOUTS if GROUPS[r] == g] for g in order]
    for members in groups:
        shuffle.shuffle(members)
    shares = [tuple(r for members in groups[sum(cut[:i]) : sum(cut[: i + 1])] for r in members) for i in range(len(cut))]
    algo = (PRESETS | VARIANTS)[name]
    loss, gradient, metrics = learn(algo)
    other_loss, other_gradient, other_metrics = learn(algo, shares, rows)
    assert other_loss == pytest.approx(loss, rel=1e-6, abs=1e-6)
    assert torch.allclose(other_gradient, gradient, rtol=1e-6, atol=1e-6)
    assert other_metrics == pytest.approx(metrics, rel=1e-5, abs=1e-6)


@EVERY_PRESET
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_loss_and_gradient_are_finite_however_far_the_policy_has_moved(name, dtype, scale):
    draw = random.Random(3)
    now = [OLD[t] + draw.choice([-1, 1]) * scale for t in TOKENS]
    loss, gradient, metrics = learn(PRESETS[name], now=now, dtype=dtype)
    assert math.isfinite(loss) and gradient.isfinite().all() and all(map(math.isfinite, metrics.values()))
    if scale > 20 and PRESETS[name].surrogate in ("clip", "kl_cov", "clip_cov"):
        assert metrics["loss/clamped_frac"] == pytest.approx(1.0)


def policy_gradient(algo, now):
    return learn(replace(algo, surrogate="plain"), now=now)[1]


RATIO_PRESETS = [name for name, algo in PRESETS.items() if algo.surrogate != "plain"]


@pytest.mark.parametrize("name", RATIO_PRESETS)
def test_a_surrogate_with_a_ratio_differs_from_the_policy_gradient_once_the_policy_has_moved(name):
    algo = PRESETS[name]
    assert (learn(algo)[1] - policy_gradient(algo, NOW)).abs().max() > 1e-3
    unclipped = learn(replace(algo, surrogate="clip", clip_low=1.0, clip_high=1e9, dual_clip=None))[1]
    assert (learn(algo)[1] - unclipped).abs().max() > 1e-3  # and it is not the ratio alone that does it


@pytest.mark.parametrize("name", RATIO_PRESETS)
def test_where_the_policy_has_not_moved_it_is_the_policy_gradient(name):
    algo = PRESETS[name]
    if algo.surrogate == "clip_cov":
        algo = replace(algo, cov_low=1e9, cov_high=2e9)  # it drops a token at any ratio
    expected = policy_gradient(algo, OLD)
    if algo.surrogate == "sequence":  # a rollout's tokens share its gradient, which here is the same for each of them
        expected = learn(replace(algo, surrogate="plain", aggregate="sequence_mean"), now=OLD)[1]
    assert torch.allclose(learn(algo, now=OLD)[1], expected, atol=1e-7)


@pytest.mark.parametrize("name", RATIO_PRESETS)
def test_a_preset_whose_surrogate_needs_a_ratio_makes_several_updates(name):
    assert PRESETS[name].updates >= 4 or name == "grpo"  # as published: one update a batch, with a note (FACTS 1.3)


def test_the_published_values_are_those_of_the_sheet():
    clip = {name: (algo.clip_low, algo.clip_high) for name, algo in PRESETS.items()}
    assert (clip["dapo"], clip["gspo"], clip["clip_cov"], clip["ppo"]) == ((0.2, 0.28), (3e-4, 4e-4), (1.0, 1.0), (0.2, 0.2))
    assert {name: PRESETS[name].cov_ratio for name in ("kl_cov", "kl_cov_32b", "clip_cov")} == {
        "kl_cov": 0.002,
        "kl_cov_32b": 0.0002,
        "clip_cov": 0.0002,
    }
    assert {name for name, algo in PRESETS.items() if algo.kl == "none"} == {"dapo", "dr_grpo", "gspo", "kl_cov", "kl_cov_32b", "clip_cov"}
    assert {name for name, algo in PRESETS.items() if algo.dynamic_sampling} == {"dapo", "kl_cov", "kl_cov_32b", "clip_cov"}
    ppo = PRESETS["ppo"]
    assert (ppo.gamma, ppo.lam, ppo.whiten, ppo.kl, ppo.kl_estimator, ppo.kl_coef) == (1.0, 1.0, True, "reward", "k1", 0.001)
    assert (ppo.critic.lr, ppo.critic.value_clip) == (1e-5, 0.5)
