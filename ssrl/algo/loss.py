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
        The row's share of the loss, and metrics that add up over rows and processes to weighted means over tokens: loss/policy,
        loss/kl, loss/…_frac, loss/total.
    """
    surrogate, happened = SURROGATES[o.surrogate](o, t)
    correction, capped = CORRECTIONS[o.correction](o, t)
    loss = policy = (t.weights * correction * surrogate).sum()
    metrics = {"loss/policy": policy} | {f"loss/{name}": (t.weights * tokens).sum() for name, tokens in (happened | capped).items()}
    if o.correction != "none":
        metrics["loss/correction_mean"] = (t.weights * correction).sum()
    if t.reference is not None:
        kl = (t.weights * ESTIMATORS[o.kl_estimator](t.logp, t.reference)).sum()
        loss = loss + o.kl_coef * kl
        far = (t.logp.float() - t.reference.float()).abs() > K3_LIMIT
        metrics |= {"loss/kl": kl, "loss/kl_clamped_frac": (t.weights * far).sum()}
    if o.entropy_coef:
        loss = loss - o.entropy_coef * (t.weights * t.entropy.float()).sum()
    return loss, {name: value.detach().float() for name, value in (metrics | {"loss/total": loss}).items()}
