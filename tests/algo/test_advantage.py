"""Group-relative advantages against slow loops."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ssrl.algo.advantage import discounted, gae, group_mean, group_zscore, leave_one_out, reinforce_pp, reward, token_rewards, whiten
from ssrl.algo.credit import CREDITS, Batch, assign


def slow(rewards, groups, epsilon=1e-6):
    out = []
    for outcome, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        out.append((outcome - statistics.fmean(members)) / (statistics.stdev(members) + epsilon))
    return out


def test_the_advantage_is_the_z_score_of_the_group_with_the_sample_standard_deviation():
    rewards, groups = [1.0, 0.0, 0.1, 0.9, 0.3, 0.0, 1.0], [0, 1, 0, 1, 1, 2, 2]
    found = group_zscore(torch.tensor(rewards), torch.tensor(groups))
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(slow(rewards, groups), abs=1e-6)
    # the last group by hand: 0 and 1 have mean 1/2 and sample standard deviation 1/√2
    assert found[-2:].tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], abs=1e-5)


def test_epsilon_is_added_to_the_standard_deviation():
    found = group_zscore(torch.tensor([0.0, 1.0]), torch.tensor([0, 0]), epsilon=1.0)
    assert found.tolist() == pytest.approx([-0.5 / (math.sqrt(0.5) + 1), 0.5 / (math.sqrt(0.5) + 1)], abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1, width=16)), min_size=1, max_size=12))
def test_the_order_of_the_rollouts_does_not_matter(pairs):
    pairs = [*pairs, *[(group, 0.5) for group, _ in pairs]]  # at least two in every group
    names = sorted({group for group, _ in pairs})
    groups = torch.tensor([names.index(group) for group, _ in pairs])
    rewards = torch.tensor([reward for _, reward in pairs])
    backwards = group_zscore(rewards.flip(0), groups.flip(0)).flip(0)
    assert torch.allclose(group_zscore(rewards, groups), backwards, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.35, 0.4, 1 / 3, 0.9, 1e6])
@pytest.mark.parametrize("size", [2, 3, 5, 7, 8, 49])
def test_equal_rewards_give_exactly_zero(value, size):
    found = group_zscore(torch.full((size,), value), torch.zeros(size, dtype=torch.long))
    assert found.tolist() == [0.0] * size


def test_seven_against_one_leaves_no_residue():
    # 0.35 and 0.4 have no exact binary form: a residue of rounding in the mean must not show as a signal
    rewards = torch.tensor([0.35] * 7 + [0.4])
    found = group_zscore(rewards, torch.zeros(8, dtype=torch.long))
    assert found[:7].unique().numel() == 1
    assert found.tolist() == pytest.approx([-1 / math.sqrt(8)] * 7 + [7 / math.sqrt(8)], abs=1e-3)
    assert abs(found.double().sum().item()) < 1e-6


def test_a_group_of_one_is_an_error():
    with pytest.raises(ValueError, match="at least two"):
        group_zscore(torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0, 0, 1]))


def test_group_mean_and_leave_one_out_by_hand():
    rewards, groups = torch.tensor([1.0, 0.0, 0.5, 3.0, 1.0]), torch.tensor([0, 0, 0, 1, 1])
    assert group_mean(rewards, groups).tolist() == pytest.approx([0.5, -0.5, 0.0, 1.0, -1.0])
    assert leave_one_out(rewards, groups).tolist() == pytest.approx([1 - 0.25, 0 - 0.75, 0.5 - 0.5, 3 - 1, 1 - 3])
    assert reward(rewards, groups).tolist() == rewards.tolist()


@pytest.mark.parametrize("estimator", [group_mean, leave_one_out])
def test_no_estimator_of_a_group_takes_a_group_of_one(estimator):
    with pytest.raises(ValueError, match="at least two"):
        estimator(torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0, 0, 1]))


ALONE = {"total": lambda x: x}


def test_the_outcome_is_on_the_last_trained_token_and_the_kl_on_every_one():
    found = token_rewards(torch.tensor([1.0, 5.0, 2.0]), torch.tensor([0, 0, 2, 2, 2]), torch.tensor([1.0, 2.0, 3.0, 4.0, -5.0]), 0.1)
    assert found.tolist() == pytest.approx([-0.1, 0.8, -0.3, -0.4, 2.5])


def test_a_return_passes_through_an_observation_unchanged():
    # policy token, engine token, policy token with mask [1, 0, 1]; the reward comes at the end: both policy tokens return 1
    returns = discounted(token_rewards(torch.tensor([1.0]), torch.tensor([0, 0])), torch.tensor([0, 0]), 1.0)
    assert returns.tolist() == [1.0, 1.0]
    advantages, returns = gae(
        token_rewards(torch.tensor([1.0]), torch.tensor([0, 0])), torch.tensor([0.25, 0.5]), torch.tensor([0, 0]), gamma=1.0, lam=1.0
    )
    assert advantages.tolist() == [0.75, 0.5] and returns.tolist() == [1.0, 1.0]


def expanded(mask, reward_at_end, kl, values, gamma, lam):
    """Returns and GAE of one trajectory by the textbook's backward loop; untrained steps are passed over, with whatever stands there."""
    last = max(i for i, trained in enumerate(mask) if trained)
    running = advantage = value_after = 0.0
    returns, advantages = [0.0] * len(mask), [0.0] * len(mask)
    for i in reversed(range(len(mask))):
        if mask[i]:
            step = (reward_at_end if i == last else 0.0) - kl[i]
            running = step + gamma * running
            advantage = step + gamma * value_after - values[i] + gamma * lam * advantage
            value_after = values[i]
            returns[i], advantages[i] = running, advantage
    return returns, advantages


small = st.floats(-2, 2, width=16)
trajectories = st.lists(
    st.tuples(small, st.lists(st.tuples(st.booleans(), small, small), min_size=1, max_size=9).filter(lambda steps: any(s[0] for s in steps))),
    min_size=1, max_size=4)  # fmt: skip


@given(trajectories, st.sampled_from([1.0, 0.9, 0.5, 0.0]), st.sampled_from([1.0, 0.95, 0.0]))
def test_a_compact_trajectory_learns_what_the_expanded_one_does(found, gamma, lam):
    kept = [(r, kl, value) for r, (_, steps) in enumerate(found) for trained, kl, value in steps if trained]
    rollout = torch.tensor([r for r, _, _ in kept])
    kl, values = (torch.tensor([item[i] for item in kept]) for i in (1, 2))
    rewards = token_rewards(torch.tensor([outcome for outcome, _ in found]), rollout, kl, 0.5)
    returns, advantages = discounted(rewards, rollout, gamma).tolist(), gae(rewards, values, rollout, gamma=gamma, lam=lam)[0].tolist()
    expected_returns, expected_advantages = [], []
    for outcome, steps in found:
        mask = [s[0] for s in steps]
        pair = expanded(mask, outcome, [0.5 * s[1] for s in steps], [s[2] for s in steps], gamma, lam)
        for target, source in zip((expected_returns, expected_advantages), pair, strict=True):
            target += [x for x, trained in zip(source, mask, strict=True) if trained]
    assert returns == pytest.approx(expected_returns, abs=1e-6)
    assert advantages == pytest.approx(expected_advantages, abs=1e-5)


def test_whitening_uses_the_population_variance():
    found = whiten(torch.tensor([1.0, 2.0, 6.0]), **ALONE)  # mean 3, variance 14/3
    assert found.tolist() == pytest.approx([x / math.sqrt(14 / 3) for x in (-2, -1, 3)], rel=1e-6)


@pytest.mark.parametrize("values", [[], [3.7], [0.1] * 7, [1 / 3] * 49, [1e6] * 3])
def test_whitening_gives_zero_where_nothing_differs(values):
    assert whiten(torch.tensor(values), **ALONE).tolist() == [0.0] * len(values)


def test_whitening_does_not_blow_up_a_tiny_spread():
    assert whiten(torch.tensor([0.0, 1e-6], dtype=torch.float64), **ALONE).abs().max() < 0.01


def test_a_process_without_tokens_takes_part_in_whitening():
    assert whiten(torch.zeros(0), lambda x: x + 1).tolist() == []


def test_reinforce_pp_whitens_returns_over_the_whole_batch_not_the_group():
    found = reinforce_pp(
        token_rewards(torch.tensor([1.0, 0.0]), torch.tensor([0, 0, 0, 1])), torch.tensor([0, 0, 0, 1]), gamma=1.0, **ALONE
    )
    assert found.tolist() == pytest.approx([0.25 / math.sqrt(3 / 16)] * 3 + [-0.75 / math.sqrt(3 / 16)], rel=1e-6)


@pytest.mark.parametrize("estimator", [name for name in CREDITS if name not in ("gae", "reward", "reinforce_pp")])
def test_a_rollout_without_a_trained_token_still_counts_in_its_group(estimator):
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1])
    rollout = torch.tensor([0, 2, 3, 3])  # the second wrote nothing that is trained
    found = assign(estimator, Batch(rewards=rewards, groups=groups, rollout=rollout), whitened=False, **ALONE).advantages
    assert found[0] > 0 and found[1] < 0


def test_kl_in_the_reward_of_a_rollout_is_the_sum_over_its_tokens():
    batch = Batch(
        rewards=torch.tensor([1.0, 0.0]),
        groups=torch.tensor([0, 0]),
        rollout=torch.tensor([0, 0, 1]),
        kl=torch.tensor([1.0, 2.0, 1.0]),
        kl_coef=0.1,
    )
    assert assign("leave_one_out", batch, whitened=False, **ALONE).advantages.tolist() == pytest.approx([0.7 + 0.1, 0.8, -0.1 - 0.7])


def test_gae_without_a_critic_is_an_error():
    with pytest.raises(ValueError, match="critic"):
        assign(
            "gae", Batch(rewards=torch.ones(1), groups=torch.zeros(1), rollout=torch.zeros(1, dtype=torch.long)), whitened=False, **ALONE
        )


@pytest.mark.parametrize("estimator", CREDITS)
def test_a_process_without_rollouts_takes_part(estimator):
    nothing = torch.zeros(0)
    batch = Batch(rewards=nothing, groups=nothing.long(), rollout=nothing.long(), kl=nothing, kl_coef=0.1, values=nothing)
    assert assign(estimator, batch, whitened=True, **ALONE).advantages.tolist() == []
