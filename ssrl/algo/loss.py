"""The objective of one packed row: surrogate, correction, KL and entropy put together. This is the whole algorithm on one screen."""

from __future__ import annotations

from torch import Tensor

from ssrl.algo.correction import CORRECTIONS
from ssrl.algo.kl import ESTIMATORS, K3_LIMIT
from ssrl.algo.surrogate import SURROGATES
from ssrl.algo.tokens import Objective, Tokens


def policy_loss(o: Objective, t: Tokens) -> tuple[Tensor, dict[str, Tensor]]:
    """Σ over trained tokens of weight · (correction · surrogate + kl_coef · KL - entropy_coef · H).

    The KL term is there where the tokens carry a reference, the entropy term where its coefficient is not 0.

    Returns:
        The row's share of the loss, and metrics that add up over rows and processes: loss/total and loss/policy as they are minimised;
        loss/kl, loss/correction_mean and loss/…_frac as means over trained tokens, however the loss weighs them.
    """
    surrogate, happened = SURROGATES[o.surrogate](o, t)
    correction, capped = CORRECTIONS[o.correction](o, t)
    loss = policy = (t.weights * correction * surrogate).sum()
    means = happened | capped
    if o.correction != "none":
        means["correction_mean"] = correction
    if t.reference is not None:
        means["kl"] = kl = ESTIMATORS[o.kl_estimator](t.logp, t.reference)
        if o.kl_estimator == "k3":
            means["kl_clamped_frac"] = kl >= K3_LIMIT
        loss = loss + o.kl_coef * (t.weights * kl).sum()
    if o.entropy_coef:
        loss = loss - o.entropy_coef * (t.weights * _entropy(t)).sum()
    metrics = {"loss/total": loss, "loss/policy": policy} | {f"loss/{name}": t.share * values.sum() for name, values in means.items()}
    return loss, {name: value.detach().float() for name, value in metrics.items()}


def _entropy(t: Tokens) -> Tensor:
    if t.entropy is None or t.logp.requires_grad and not t.entropy.requires_grad:
        raise ValueError("an entropy bonus needs entropies that carry a gradient: without one it would do nothing")
    return t.entropy.float()
