"""Checkpoints that are either whole or not there: one file, or (where weights are sharded) a link to a folder of pieces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

REST = "meta.pt"  # Lightning's name for what is no tensor of model or optimiser


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes to the disk, then renames: a killed save leaves the previous checkpoint as it was."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        try:
            with open(part, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            part.unlink(missing_ok=True)
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None  # a full disk, over whose half-written file torch's own closing stumbles
            raise
        os.replace(part, target)
        for folder in shards_of(target):  # of a run that was sharded before
            shutil.rmtree(folder, ignore_errors=True)

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return read_whole(path)


def shards_of(path: Path) -> tuple[Path, Path]:
    """The folder that the link `path` shows to, or will not; and the one that the next pieces go to."""
    one, other = (path.with_name(f".{path.name}.{name}") for name in ("a", "b"))
    return (other, one) if path.is_symlink() and os.readlink(path) == other.name else (one, other)


def read_rest(path: Path) -> dict[str, Any]:
    """A checkpoint without reading its tensors."""
    file = path / REST if path.is_dir() else path
    return torch.load(file, map_location="cpu", weights_only=False, mmap=True)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The whole weights of a checkpoint, on the CPU."""
    return _pieces(path, {"state_dict"})["state_dict"] if path.is_dir() else read_rest(path)["state_dict"]


def read_whole(path: str | Path) -> dict[str, Any]:
    """A checkpoint as one process that holds everything would have written it."""
    path = Path(path)
    if not path.is_dir():  # into memory: an optimiser keeps what it is given, and a mapped file would hold its place on the disk
        return torch.load(path, map_location="cpu", weights_only=False)
    found = _pieces(path, None)
    names = sorted((name for name in found if name.startswith("optimizer_")), key=lambda name: int(name.removeprefix("optimizer_")))
    return read_rest(path) | {"state_dict": found["state_dict"], "optimizer_states": [_numbered(found[name]) for name in names]}


def load_into(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put whole weights into a module, sharded or not."""
    set_model_state_dict(module, weights, options=StateDictOptions(full_state_dict=True))


def _pieces(folder: Path, keys: set[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _load_state_dict(found, storage_reader=FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(keys=keys), no_dist=True)
    return found


def _numbered(state: dict[str, Any]) -> dict[str, Any]:
    """An optimiser's state that names its parameters, with their numbers instead."""
    number = {name: i for i, name in enumerate(name for group in state["param_groups"] for name in group["params"])}
    return {
        "state": {number[name]: values for name, values in state["state"].items()},
        "param_groups": [{**group, "params": [number[name] for name in group["params"]]} for group in state["param_groups"]],
    }
