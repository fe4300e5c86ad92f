"""vLLM servers as the policy's engines: weights reach them through a folder that this process writes and they read."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ssrl.errors import UserError
from ssrl.policy.vllm_protocol import Job, Written

_SHARD = 2**31  # bytes of one file: no more is copied to the host at one time


class Servers(Protocol):
    """Who is asked over HTTP."""

    def load(self, folder: str, version: str) -> None: ...

    def generate(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]: ...


class Served:
    """`folder`: where weights are written, one sub-folder a version, removed once all servers have read it.

    `once` gives what its first argument returns on the first process of the run to all; the others do its second: one talks to the servers.
    """

    def __init__(self, servers: Servers, folder: Path, once: Callable[[Callable[[], str], Callable[[], object]], str]) -> None:
        self.servers, self.folder, self.once = servers, folder.expanduser().absolute(), once

    def generate(self, jobs: Sequence[Job], version: str) -> list[Written]:
        bodies = [{"token_ids": list(job.ids), "sampling_params": job.parameters, "cache_salt": version} for job in jobs]
        return [written(choice) for choice in self.servers.generate(bodies)]

    def load(self, weights: Iterable[tuple[str, Tensor]], version: str) -> str:
        # all go through the weights: where these are cut over the processes, reading one is the work of all
        return self.once(lambda: self._load(weights, version), lambda: deque(weights, maxlen=0))

    def rest(self) -> None:
        """The servers have machines of their own."""

    def _load(self, weights: Iterable[tuple[str, Tensor]], version: str) -> str:
        target = self.folder / version
        try:
            write_weights(weights, target)
            self.servers.load(str(target), version)
        except (OSError, SafetensorError) as error:  # a disk that is full is the latter
            deque(weights, maxlen=0)  # the other processes are still going through them
            raise UserError(f"weights cannot be written to rollout.weights={self.folder} ({error}); name a folder that the servers can read, too") from error
        finally:
            shutil.rmtree(target, ignore_errors=True)
        return version


def write_weights(weights: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """Safetensors files of at most 2 GiB (or one tensor) each."""
    folder.mkdir(parents=True)
    part: dict[str, Tensor] = {}
    size = number = 0
    for name, weight in weights:
        if part and size + weight.nbytes > _SHARD:
            save_file(part, folder / f"model-{number:05d}.safetensors")
            part, size, number = {}, 0, number + 1
        part[name] = weight.detach().to("cpu", copy=True).contiguous()  # a copy: tied tensors share memory, which the format refuses
        size += weight.nbytes
    save_file(part, folder / f"model-{number:05d}.safetensors")


def written(choice: dict[str, Any]) -> Written:
    """What a server's answer says."""
    content = choice["logprobs"]["content"]
    return Written(
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(one["logprob"] for one in content),
        top=tuple(tuple(top["logprob"] for top in one["top_logprobs"]) for one in content),
        finish=choice["finish_reason"] or "",
        versions=tuple(span["version"] for span in choice["weight_versions"] or ()),
    )
