"""Lightning's strategy for sharded weights, with checkpoints in one folder that is either whole or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_optimizer_state_dict

from ssrl.training import ranks
from ssrl.training.files import REST, read_whole, shards_of


class Sharded(ModelParallelStrategy):
    """FSDP2 over all processes. What is cut, and how, says the module's `configure_model`."""

    def __init__(self, *, processes: int, cuda: bool, timeout: timedelta) -> None:
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"  # pieces that are offloaded meet over gloo, those on the GPU over nccl
        super().__init__(data_parallel_size=processes, tensor_parallel_size=1, process_group_backend=backend, timeout=timeout)

    def model_to_device(self) -> None:
        """Sharding has put every piece where it belongs."""

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None) -> None:
        """Every process writes its pieces; then a link is set to them at once, and the pieces before are removed."""
        path = Path(self.broadcast(str(filepath)))
        before, folder = shards_of(path)

        def begin() -> None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

        def end() -> None:
            with open(folder / REST, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            link = path.with_name(f".{path.name}.link")
            link.unlink(missing_ok=True)
            link.symlink_to(folder.name, target_is_directory=True)
            os.replace(link, path)
            shutil.rmtree(before, ignore_errors=True)

        self._by_first(begin)
        optimizers = {f"optimizer_{i}": state for i, state in enumerate(checkpoint.pop("optimizer_states", []))}
        try:
            dcp.save({"state_dict": checkpoint.pop("state_dict"), **optimizers}, checkpoint_id=folder)
        except CheckpointException as problem:  # raised on all processes; no Exception, so nobody would take it for a full disk
            raise OSError("; ".join(str(error) for error, _ in problem.failures.values())) from problem
        self._by_first(end)

    def _by_first(self, work: Callable[[], None]) -> None:
        """The first process does it while the others wait; where it fails, all stop."""
        ranks.together(work if self.is_global_zero else lambda: None, self.root_device, Exception)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        path = Path(self.broadcast(str(checkpoint_path)))
        if path.is_dir():
            return super().load_checkpoint(path.resolve(), weights_only=False)  # it holds the states of random generators
        checkpoint = read_whole(path)  # of a run that was not sharded
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(self.model, checkpoint.pop("state_dict"), options=options)
        for optimizer, state in zip(self.optimizers, checkpoint.pop("optimizer_states"), strict=True):
            set_optimizer_state_dict(self.model, optimizer, self._by_name(optimizer, state), options=options)
        return checkpoint

    def _by_name(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        """An optimiser's state that numbers its parameters, with their names instead."""
        names = {p: name for name, p in self.model.named_parameters()}
        ordered = [names[p] for group in optimizer.param_groups for p in group["params"]]
        return {
            "state": {ordered[i]: values for i, values in state["state"].items()},
            "param_groups": [{**group, "params": [ordered[i] for i in group["params"]]} for group in state["param_groups"]],
        }
