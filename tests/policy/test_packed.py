"""Packed linear layers compute what plain ones do."""

import copy

import pytest
import torch
from torch import nn

from ssrl.policy.packed import PackedLinear, can_pack, pack_linears, repack

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs a PyTorch built with oneDNN")


def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(7, 13), nn.ReLU(), nn.Sequential(nn.LayerNorm(13), nn.Linear(13, 5, bias=False))).requires_grad_(False)


@pytest.mark.parametrize("shape", [(1, 7), (64, 7), (3, 5, 7)])
def test_packed_layers_give_the_same_result(shape):
    plain = make()
    packed = copy.deepcopy(plain)
    pack_linears(packed)
    assert [type(m) for m in packed.modules() if isinstance(m, (nn.Linear, PackedLinear))] == [PackedLinear] * 2
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(packed(x), plain(x), atol=1e-5)


def test_repacking_loads_new_weights_of_packed_layers_and_of_others():
    plain, packed = make(), make()
    pack_linears(packed)
    for parameter in plain.parameters():
        parameter.mul_(3).add_(0.1)
    x = torch.randn(4, 7, generator=torch.Generator().manual_seed(1))
    assert not torch.allclose(packed(x), plain(x), atol=1e-2)
    repack(packed, plain.state_dict())
    assert torch.allclose(packed(x), plain(x), atol=1e-5)


def test_the_pack_is_a_copy():
    plain = make()
    packed = PackedLinear(plain[0].weight, plain[0].bias)
    x = torch.ones(1, 7)
    before = packed(x).clone()
    plain[0].weight.zero_()
    plain[0].bias.zero_()
    assert torch.equal(packed(x), before)


def test_other_types_are_left_as_they_are():
    model = make().to(torch.bfloat16)
    assert not can_pack(model)
    pack_linears(model)
    assert not any(isinstance(m, PackedLinear) for m in model.modules())
