"""What the processor can do: whether it computes in bfloat16, which decides every `auto` choice of arithmetic."""

from __future__ import annotations

import torch


def computes_bf16(device: str) -> bool:
    """Whether matrix products in bfloat16 run on units of their own; elsewhere they are emulated and many times slower than float32."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device == "cpu" and any(getattr(torch.cpu, name, lambda: False)() for name in probes)


def sampler_dtype(choice: str, device: str) -> torch.dtype:
    """The type behind `rollout.dtype`."""
    if choice == "auto":
        return torch.bfloat16 if computes_bf16(device) else torch.float32
    return getattr(torch, choice)


def precision(choice: str, device: str) -> str:
    """Lightning's name for `trainer.precision`."""
    if choice == "auto":
        return "bf16-mixed" if computes_bf16(device) else "32-true"
    return choice
