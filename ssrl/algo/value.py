"""What a critic learns from, and how well it does."""

from __future__ import annotations

import torch
from torch import Tensor

from ssrl.algo.tokens import Total


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, weights: Tensor, *, clip: float | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Σ weight · ½ max((V - G)², (V_old + clip(V - V_old, ±clip) - G)²). [the PPO of OpenAI's baselines; FACTS 1.11]

    Args:
        values: [M] the critic's values of the row's trained tokens, with gradient.
        old_values: [M] its values when advantages were computed.
        returns: [M] from `advantage.gae`.
        weights: [M] token mean over the optimiser step; they add up to 1 over rows and processes.
        clip: how far a value may move and still be pulled on; None: as far as it likes.

    Returns:
        The row's share of the loss, and metrics that add up: critic/loss, critic/clip_frac.
    """
    values, old_values, returns = values.float(), old_values.float(), returns.float()
    error = loss = (values - returns).square()
    if clip is not None:
        loss = torch.maximum(error, (old_values + (values - old_values).clamp(-clip, clip) - returns).square())
    total = 0.5 * (weights * loss).sum()
    return total, {"critic/loss": total.detach(), "critic/clip_frac": (weights * (loss > error)).sum().detach()}


def explained_variance(values: Tensor, returns: Tensor, total: Total) -> float | None:
    """1 - Var(G - V) / Var(G) over the tokens of all processes: 1 for a perfect critic, 0 for a constant; None where all returns are equal."""
    both = torch.stack([returns.double(), returns.double() - values.double()])  # [2, M]
    sums = total(torch.cat([both.sum(1), both.new_tensor([both.shape[1]])]))
    centred = both - (sums[:2] / sums[2].clamp(min=1))[:, None]
    of_returns, of_errors = total(centred.square().sum(1)).tolist()
    return 1 - of_errors / of_returns if of_returns > 1e-12 * float(sums[2]) else None
