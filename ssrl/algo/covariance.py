"""Which tokens of a mini-batch KL-Cov and Clip-Cov act on: one rule and one threshold over all its tokens on all processes.

[Cui et al., "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", arXiv 2505.22617, section 4.2; FACTS 1.11]
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssrl.algo.surrogate import outside
from ssrl.algo.tokens import Gather, Objective, Tokens, Total

_MOST_TOKENS = 24  # bits of a key for the place in a rollout

Selection = Callable[..., Tensor]  # (objective, tokens, keys, *, seed, total, gather) -> [M] bool


def covariances(logp: Tensor, advantages: Tensor, total: Total) -> Tensor:
    """[M] (A - mean A) · (log π - mean log π), the means over the tokens of all processes.

    In float32 although computed in float64, so that what is equal stays equal in whichever order the processes' sums are added up.
    """
    both = torch.stack([advantages.detach().double(), logp.detach().double()])
    sums = total(torch.cat([both.sum(1), both.new_tensor([both.shape[1]])]))
    return (both - (sums[:2] / sums[2].clamp(min=1))[:, None]).prod(0).float()


def kl_cov(o: Objective, t: Tokens, keys: Tensor, *, seed: int, total: Total, gather: Gather) -> Tensor:
    """[M] bool: the `cov_ratio` of all tokens with the largest covariances, at least one; equals by their keys.

    Args:
        t: all tokens of this process's mini-batch; reads logp and advantages.
        keys: [M] from `token_keys`.
        seed: not used here; the selections have one signature.
    """
    return _top(covariances(t.logp, t.advantages, total), keys, _quota(o, t, total), gather)


def clip_cov(o: Objective, t: Tokens, keys: Tensor, *, seed: int, total: Total, gather: Gather) -> Tensor:
    """[M] bool: as many as `cov_ratio` of all tokens (at least one, where there is one), drawn among those whose covariance lies
    strictly between cov_low and cov_high and that the clip leaves alone.

    The draw is a hash of (seed, key), so it depends neither on other draws nor on how tokens are shared out over processes.
    """
    covariance = covariances(t.logp, t.advantages, total)
    low, high = outside(o, t.log_ratio().detach().exp(), t.advantages)
    candidate = (covariance > o.cov_low) & (covariance < o.cov_high) & ~low & ~high
    found = torch.zeros_like(candidate)
    found[candidate] = _top(_mixed(keys[candidate], seed), keys[candidate], _quota(o, t, total), gather)
    return found


def token_keys(numbers: Tensor, rollout: Tensor) -> Tensor:
    """[M] int64, one a token: its rollout's number and its place in the rollout.

    Args:
        numbers: [R] of each rollout, unique over all processes, the same however rollouts are shared out.
        rollout: [M]
    """
    index = torch.arange(len(rollout), device=rollout.device)
    first = torch.cat([rollout.new_ones(1, dtype=torch.bool), rollout[1:] != rollout[:-1]])[: len(rollout)]
    place = index - torch.where(first, index, 0).cummax(0).values
    return (numbers.long()[rollout] << _MOST_TOKENS) + place


def _quota(o: Objective, t: Tokens, total: Total) -> int:
    count = int(total(torch.tensor([len(t.logp)], dtype=torch.float64, device=t.logp.device)))
    return max(int(o.cov_ratio * count + 1e-9), 1)


def _top(scores: Tensor, keys: Tensor, count: int, gather: Gather) -> Tensor:
    """[M] bool: the `count` largest scores over all processes. Each process sends only its own `count` largest."""
    mine = _order(scores, keys)[:count]
    scores, known = gather(scores[mine]), gather(keys[mine])
    return torch.isin(keys, known[_order(scores, known)[:count]])


def _order(scores: Tensor, keys: Tensor) -> Tensor:
    """Indices by falling score, then rising key."""
    by_key = keys.argsort(stable=True)
    return by_key[scores[by_key].argsort(descending=True, stable=True)]


def _mixed(keys: Tensor, seed: int) -> Tensor:
    """The bits of (key, seed), well mixed: the finaliser of splitmix64, in wrapping int64 arithmetic. [Steele et al., OOPSLA 2014]"""
    x = keys ^ _signed((seed * 0x9E3779B97F4A7C15) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ _shifted(x, shift)) * _signed(factor)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # torch shifts the sign in


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


SELECTIONS: dict[str, Selection] = {"kl_cov": kl_cov, "clip_cov": clip_cov}
