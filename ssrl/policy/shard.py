"""Weights cut into pieces over processes (FSDP2): each keeps its share, and a layer is whole only while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

T = TypeVar("T")


class Scope(nn.Module):
    """The root of a sharded model: its weights outside of the layers are whole while `work` runs under it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], T]) -> T:
        return work()


def shard(root: nn.Module, decoders: Sequence[nn.Module], mesh: DeviceMesh, *, half: bool, offload: bool) -> None:
    """Cut the trainable modules under `root` in place: each layer of the decoders by itself, the rest together.

    The forward of `root` must hold whatever reads its weights, and take no tensors. Gradients are averaged over processes.

    Args:
        half: layers are gathered in bfloat16, as autocast would cast their products (norms, which it leaves alone, are rounded, too); gradients are still summed in float32.
        offload: pieces, gradients and optimiser state stay in the memory of the CPU.
    """
    policy = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy()
    of_layers = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False) if half else MixedPrecisionPolicy()
    for decoder in decoders:
        for layer in decoder.layers:
            fully_shard(layer, mesh=mesh, mp_policy=of_layers, offload_policy=policy)
    fully_shard(root, mesh=mesh, offload_policy=policy, reshard_after_forward=True)


def is_sharded(module: nn.Module) -> bool:
    return any(isinstance(p, DTensor) for p in module.parameters())


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the pieces of all processes, which must all ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class WholeWeights(Mapping[str, Tensor]):
    """A model's weights by name, each gathered when it is read, so that one at a time is whole. All processes must read them in one order."""

    def __init__(self, model: nn.Module) -> None:
        self._pieces = model.state_dict()

    def __getitem__(self, name: str) -> Tensor:
        return whole(self._pieces[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)
