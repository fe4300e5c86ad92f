"""What the processor can do: whether it computes in bfloat16, which decides every `auto` choice of arithmetic; and how memory is held for it."""

from __future__ import annotations

import ctypes
from typing import Literal

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt(3)
_NEVER, _GIB, _MOST = -1, 2**30, 2**25  # bytes; _MOST: what an older glibc allows


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


def keep_freed_memory() -> None:
    """From now on this process keeps the memory that it frees for its next tensors, in pieces of less than 1 GiB.

    It tells glibc so; an older one keeps pieces of up to 32 MiB, and with another C library nothing changes.
    By default, glibc gives every tensor of more than 32 MiB pages of its own and takes them back with it, so that each layer of each row waits
    for the system to clear the same pages again: about a tenth of an update's time on a CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        if not mallopt(_M_MMAP_THRESHOLD, _GIB):
            mallopt(_M_MMAP_THRESHOLD, _MOST)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)


def determinism(wanted: bool) -> Literal["warn"] | bool:
    """Lightning's word for `trainer.deterministic`: kernels whose results repeat, where there are such.

    PyTorch would then also write not-a-number into every new tensor, so that an operation that reads what nobody has written repeats, too. No
    operation of sampler or update does, and all would pay for it in memory traffic; it is switched off.
    """
    torch.utils.deterministic.fill_uninitialized_memory = False
    return "warn" if wanted else False
