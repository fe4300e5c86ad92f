"""Which tokens KL-Cov and Clip-Cov act on."""

from dataclasses import fields, replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from ssrl.algo.covariance import clip_cov, covariances, kl_cov, token_keys
from ssrl.algo.tokens import Objective, Tokens
from ssrl.config import AlgoConfig

OBJECTIVE = Objective(**{field.name: getattr(AlgoConfig(), field.name) for field in fields(Objective)})
ALONE = {"total": lambda x: x, "gather": lambda x: x}


def tokens(logp, advantages, old=None):
    logp = torch.tensor(logp)
    return Tokens(logp=logp, old_logp=logp if old is None else torch.tensor(old), advantages=torch.tensor(advantages), weights=torch.ones(len(logp)), share=1.0, rollout=torch.arange(len(logp)))  # fmt: skip


def chosen(selection, o, t, seed=0):
    return selection(o, t, torch.arange(len(t.logp)), seed=seed, **ALONE).nonzero().flatten().tolist()


def test_the_covariance_is_the_product_of_the_deviations_from_the_means():
    # means 1 and -2
    found = covariances(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([3.0, 0.0, 0.0]), lambda x: x)
    assert found.tolist() == [2.0, 0.0, 1.0]


def test_kl_cov_takes_the_given_share_and_at_least_one_token():
    t = tokens([-1.0, -2.0, -3.0, -4.0], [1.0, -1.0, 1.0, -1.0])  # covariances 1.5, -0.5, -0.5, 1.5
    assert chosen(kl_cov, replace(OBJECTIVE, cov_ratio=0.0002), t) == [0]  # of two equal ones the first
    assert chosen(kl_cov, replace(OBJECTIVE, cov_ratio=0.5), t) == [0, 3]
    assert chosen(kl_cov, replace(OBJECTIVE, cov_ratio=0.75), t) == [0, 1, 3]
    assert chosen(kl_cov, replace(OBJECTIVE, cov_ratio=1.0), t) == [0, 1, 2, 3]


def test_the_share_of_a_thousand_tokens_is_exact():
    generator = torch.Generator().manual_seed(0)
    logp, advantages = torch.randn(2, 3000, generator=generator).tolist()
    t = tokens(logp, advantages)
    mean_logp, mean_advantage = sum(logp) / 3000, sum(advantages) / 3000
    ranked = sorted(range(3000), key=lambda i: -(advantages[i] - mean_advantage) * (logp[i] - mean_logp))
    for ratio, count in [(0.002, 6), (0.0002, 1), (0.29, 870)]:
        assert chosen(kl_cov, replace(OBJECTIVE, cov_ratio=ratio), t) == sorted(ranked[:count])


def test_clip_cov_draws_among_the_candidates_only_and_by_its_seed():
    # 40 tokens with covariance 2, 40 with 8, which is above cov_high, and pairs that keep the means at 0
    t = tokens([2.0, -2.0] * 20 + [4.0, -4.0] * 20, [1.0, -1.0] * 20 + [2.0, -2.0] * 20)
    o = replace(OBJECTIVE, surrogate="clip_cov", cov_ratio=0.1, cov_low=1.0, cov_high=5.0)
    draws = [chosen(clip_cov, o, t, seed) for seed in range(200)]
    assert all(len(draw) == 8 and max(draw) < 40 for draw in draws)
    assert draws[3] == chosen(clip_cov, o, t, 3) and draws[3] != draws[4]
    share = torch.bincount(torch.tensor([i for draw in draws for i in draw]), minlength=40) / 200
    assert share.min() > 0.08 and share.max() < 0.34  # 1/5 each, with a standard deviation of 0.03


def test_clip_cov_takes_all_candidates_where_there_are_fewer_and_none_where_there_are_none():
    t = tokens([2.0, -2.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0])
    assert chosen(clip_cov, replace(OBJECTIVE, cov_ratio=1.0), t) == [0, 1]
    assert chosen(clip_cov, replace(OBJECTIVE, cov_ratio=1.0, cov_low=3.0), t) == []


def test_a_token_that_the_clip_already_holds_is_no_candidate():
    t = tokens([2.0, -2.0], [1.0, -1.0], old=[1.0, -2.0])  # the first has a ratio of e, above the upper bound
    assert chosen(clip_cov, replace(OBJECTIVE, cov_ratio=1.0), t) == [1]


def test_keys_are_the_rollouts_number_and_the_place_in_it():
    keys = token_keys(torch.tensor([5, 2, 9]), torch.tensor([0, 0, 0, 2, 2]))
    assert keys.tolist() == [5 * 2**24, 5 * 2**24 + 1, 5 * 2**24 + 2, 9 * 2**24, 9 * 2**24 + 1]
    assert token_keys(torch.tensor([5]), torch.tensor([], dtype=torch.long)).tolist() == []


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=30), st.floats(0.01, 1), st.randoms())
def test_equal_covariances_are_broken_by_key_in_whichever_order_tokens_come(pairs, ratio, shuffle):
    logp, advantages = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    order = list(range(len(pairs)))
    shuffle.shuffle(order)
    o = replace(OBJECTIVE, cov_ratio=ratio)
    found = kl_cov(o, tokens(logp, advantages), torch.arange(len(pairs)), seed=0, **ALONE)
    other = kl_cov(o, tokens([logp[i] for i in order], [advantages[i] for i in order]), torch.tensor(order), seed=0, **ALONE)
    assert {i for i, picked in zip(order, other.tolist(), strict=True) if picked} == set(found.nonzero().flatten().tolist())


def test_a_process_without_tokens_takes_part():
    empty = tokens([], [])
    sums = torch.tensor([3.0, -6.0, 3.0], dtype=torch.float64)

    def total(x):
        return x + (sums if len(x) == 3 else 3.0)

    found = kl_cov(
        OBJECTIVE,
        empty,
        torch.zeros(0, dtype=torch.long),
        seed=0,
        total=total,
        gather=lambda x: torch.cat([x, torch.ones(1, dtype=x.dtype)]),
    )
    assert found.tolist() == []
