"""Linear layers whose weights are laid out for the processor: oneDNN's packed matrix product is about twice as fast on small batches on CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

_ROWS = 64  # batch size that the layout is chosen for
_SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # layers of one module that read the same input, in the order of their calls
Weights = Sequence[tuple[Tensor, Tensor | None]]  # and biases, one a layer


class PackedLinear(nn.Module):
    """y = x Wᵀ + b with a oneDNN-packed W, for inference on a CPU in float32. Layers that read the same input are one matrix product."""

    def __init__(self, layers: Weights) -> None:
        super().__init__()
        self.sizes = [len(weight) for weight, _ in layers]
        self.pack(layers)

    def pack(self, layers: Weights) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(torch.cat([weight.detach().float() for weight, _ in layers]), _ROWS)
        self.bias = None
        if any(bias is not None for _, bias in layers):
            self.bias = torch.cat([weight.new_zeros(len(weight)) if bias is None else bias.detach() for weight, bias in layers]).float()

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], the layers' outputs side by side."""
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


class Sibling(nn.Module):
    """One of the layers of a PackedLinear, in its place: the first that is called with an input computes for all."""

    def __init__(self, together: Together, index: int) -> None:
        super().__init__()
        self.together, self.index = together, index

    def forward(self, x: Tensor) -> Tensor:
        return self.together.output(x, self.index)


class Together:
    """What siblings share. It holds an input and its outputs only until the last of them has its own."""

    def __init__(self, linear: PackedLinear) -> None:
        self.linear = linear
        self.input: Tensor | None = None
        self.outputs: tuple[Tensor, ...] = ()

    def output(self, x: Tensor, index: int) -> Tensor:
        if x is not self.input:
            self.input, self.outputs = x, self.linear(x).split(self.linear.sizes, dim=-1)
        found = self.outputs[index]
        if index == len(self.linear.sizes) - 1:
            self.input, self.outputs = None, ()
        return found


def can_pack(model: nn.Module) -> bool:
    parameter = next(model.parameters())
    return parameter.device.type == "cpu" and parameter.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def pack_linears(model: nn.Module) -> None:
    """Replace every linear layer of a frozen float32 CPU model by a packed one; elsewhere do nothing."""
    if not can_pack(model):
        return
    for parent in list(model.modules()):
        for names in _grouped([name for name, child in parent.named_children() if isinstance(child, nn.Linear)]):
            layers = [parent.get_submodule(name) for name in names]
            packed = PackedLinear([(layer.weight, layer.bias) for layer in layers])
            together = Together(packed)
            for index, name in enumerate(names):
                setattr(parent, name, packed if len(names) == 1 else Sibling(together, index))


def _grouped(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    found = [siblings for siblings in _SIBLINGS if set(siblings) <= set(names)]
    yield from found
    yield from ((name,) for name in names if not any(name in siblings for siblings in found))


def repack(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load new weights into a model that `pack_linears` has been through."""
    layers: dict[PackedLinear, list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear | Sibling):
            layers.setdefault(module.together.linear if isinstance(module, Sibling) else module, []).append(name)
    for packed, names in layers.items():
        packed.pack([(weights[f"{name}.weight"], weights.get(f"{name}.bias")) for name in names])
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
