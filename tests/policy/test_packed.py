"""Packed linear layers compute what plain ones do."""

import copy

import pytest
import torch
from torch import nn

from ssrl.policy.packed import PackedLinear, Sibling, can_pack, pack_linears, repack

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
    packed = PackedLinear([(plain[0].weight, plain[0].bias)])
    x = torch.ones(1, 7)
    before = packed(x).clone()
    plain[0].weight.zero_()
    plain[0].bias.zero_()
    assert torch.equal(packed(x), before)


class Attention(nn.Module):
    """Layers that read one input, under the names that models of these families give them; the middle one without a bias."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(7, 12), nn.Linear(7, 4, bias=False), nn.Linear(7, 4)
        self.o_proj = nn.Linear(12, 7)

    def forward(self, x):
        return self.o_proj(self.q_proj(x)) + torch.cat([self.k_proj(x), self.v_proj(x)], dim=-1)[..., :7]


def attentions():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(Attention(), Attention()).requires_grad_(False)


def test_layers_that_read_the_same_input_are_one_product_with_the_same_results_before_and_after_repacking():
    plain, packed = attentions(), attentions()
    pack_linears(packed)
    assert [type(getattr(packed[0], name)) for name in ("q_proj", "k_proj", "v_proj", "o_proj")] == [Sibling] * 3 + [PackedLinear]
    for _ in range(2):
        for seed in range(2):  # no output of an earlier input is handed out again
            x = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(seed))
            assert torch.allclose(packed(x), plain(x), atol=1e-5)
        for parameter in plain.parameters():
            parameter.mul_(-2).add_(0.1)
        repack(packed, plain.state_dict())


def test_siblings_hold_no_output_once_each_has_its_own():
    packed = attentions()[0]
    pack_linears(packed)
    packed(torch.ones(1, 7))
    assert packed.q_proj.together.input is None and packed.v_proj.together.outputs == ()


def test_other_types_are_left_as_they_are():
    model = make().to(torch.bfloat16)
    assert not can_pack(model)
    pack_linears(model)
    assert not any(isinstance(m, PackedLinear) for m in model.modules())
