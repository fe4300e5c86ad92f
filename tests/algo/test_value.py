"""The critic's loss and how well it explains the returns."""

import pytest
import torch

from ssrl.algo.value import explained_variance, value_loss


def test_the_value_loss_by_hand():
    values = torch.tensor([1.0, 2.0, 0.0], requires_grad=True)
    old, returns, weights = torch.tensor([0.0, 1.9, 0.0]), torch.tensor([2.0, 0.0, 1.0]), torch.tensor([0.5, 0.25, 0.25])
    # the first moved by 1 and counts as moved by 0.5: its error is (0.5 - 2)² and it is not pulled on; the others are inside
    loss, metrics = value_loss(values, old, returns, weights, clip=0.5)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (0.5 * 2.25 + 0.25 * 4 + 0.25 * 1))
    assert values.grad.tolist() == pytest.approx([0.0, 0.5, -0.25])
    assert metrics["critic/clip_frac"].item() == pytest.approx(0.5) and metrics["critic/loss"].item() == pytest.approx(loss.item())


def test_without_a_clip_it_is_half_the_squared_error():
    loss, metrics = value_loss(torch.tensor([1.0]), torch.tensor([-9.0]), torch.tensor([4.0]), torch.tensor([1.0]), clip=None)
    assert loss.item() == pytest.approx(4.5) and metrics["critic/clip_frac"].item() == 0


@pytest.mark.parametrize(
    ("values", "expected"), [([1.0, 2.0, 3.0], 1.0), ([5.0, 5.0, 5.0], 0.0), ([3.0, 2.0, 1.0], -3.0), ([11.0, 12.0, 13.0], 1.0)]
)
def test_explained_variance_by_hand(values, expected):
    found = explained_variance(torch.tensor(values), torch.tensor([1.0, 2.0, 3.0]), lambda x: x)
    assert found == pytest.approx(expected)


def test_there_is_nothing_to_explain_where_returns_are_equal():
    assert explained_variance(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]), lambda x: x) is None
    assert explained_variance(torch.zeros(0), torch.zeros(0), lambda x: x) is None
