"""KL estimators and the coefficient that follows a target."""

import math

import pytest
import torch

from ssrl.algo.kl import ESTIMATORS, Coefficient

FAR = [0.0, 1e-4, 1.0, 9.9, 10.1, 20.1, 88.0, 1e3, 1e4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_stay_finite_however_far_the_policies_are_apart(dtype, estimator):
    for delta in [*FAR, *(-x for x in FAR)]:
        logp = torch.tensor([-1.0 - delta], dtype=dtype, requires_grad=True)
        value = ESTIMATORS[estimator](logp, torch.tensor([-1.0], dtype=dtype))
        value.sum().backward()
        assert value.dtype == torch.float32
        assert value.isfinite().all() and logp.grad.isfinite().all(), delta
        assert estimator == "k1" or value.item() >= 0


@pytest.mark.parametrize(
    ("d", "value", "slope"),  # slope: by d, exp(d) - 1
    [
        (0.0, 0.0, 0.0), (2.0, 4.389056, 6.389056), (2.6, 9.863738, 12.463738), (3.0, 10.0, 0.0),
        (-10.5, 9.500028, -0.999972), (-11.5, 10.0, 0.0), (50.0, 10.0, 0.0),
    ],
)
def test_k3_is_limited_by_its_value_and_not_by_how_far_the_policies_are_apart(d, value, slope):
    reference = torch.tensor([d - 1.0], requires_grad=True)
    found = ESTIMATORS["k3"](torch.tensor([-1.0]), reference)
    found.sum().backward()
    assert found.item() == pytest.approx(value, rel=1e-5) and reference.grad.item() == pytest.approx(slope, rel=1e-5)


def test_k1_and_k3_are_unbiased_and_the_gradient_of_k2_is_that_of_the_divergence():
    logits, other = torch.tensor([0.3, -1.0, 0.8], requires_grad=True), torch.tensor([0.0, 0.5, 0.1]).log_softmax(0)
    logp = logits.log_softmax(0)
    divergence = (logp.exp() * (logp - other)).sum()
    (slope,) = torch.autograd.grad(divergence, logits, retain_graph=True)
    chance = logp.detach().exp()
    for name in ("k1", "k3"):
        assert (chance * ESTIMATORS[name](logp, other)).sum().item() == pytest.approx(divergence.item(), rel=1e-5)
    slopes = {name: torch.autograd.grad((chance * f(logp, other)).sum(), logits, retain_graph=True)[0] for name, f in ESTIMATORS.items()}
    assert torch.allclose(slopes["k2"], slope, atol=1e-6)
    assert torch.allclose(slopes["k1"], torch.zeros(3), atol=1e-6)  # which is why it is of no use as a loss


def test_the_coefficient_moves_towards_its_target_by_hand():
    start = Coefficient(value=0.1, target=0.02, horizon=1000)
    assert start.after(0.022, 100).value == pytest.approx(0.1 * (1 + 0.1 * 0.1))  # 10 % above
    assert start.after(1.0, 100).value == pytest.approx(0.1 * (1 + 0.2 * 0.1))  # the error counts at most 20 %
    assert start.after(0.0, 100).value == pytest.approx(0.1 * (1 - 0.2 * 0.1))
    assert start.after(0.02, 100).value == pytest.approx(0.1)
    assert start.after(0.0, 10**9).value == pytest.approx(0.08)  # never negative


def test_a_fixed_coefficient_and_a_kl_that_is_not_finite_change_nothing():
    assert Coefficient(value=0.1, target=None, horizon=1000).after(5.0, 100).value == 0.1
    assert Coefficient(value=0.1, target=0.02, horizon=1000).after(math.nan, 100).value == 0.1
