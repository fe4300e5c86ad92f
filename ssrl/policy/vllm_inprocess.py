"""One vLLM engine in this process, beside the policy, on the same device. The only file that imports vllm."""

from __future__ import annotations

import gc
import os
import random
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssrl.errors import UserError
from ssrl.policy.vllm_protocol import Job, Written
from ssrl.types import seed_for

_SETTINGS = {  # what vLLM reads from the environment
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives here, so that weights are handed over in memory
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the threads are the trainer's, too
    "VLLM_NO_USAGE_STATS": "1",
}
_ALL = -1
READ = 8192  # tokens of prompts that are read at once on a CPU


class InProcess:
    """An engine without weights of its own until the first `load`.

    What the GPU build does otherwise than the CPU build is decided here from `device` alone: CUDA graphs, which card, sleeping, prompts in
    parts.
    """

    def __init__(
        self, folder: str, *, revision: str | None, device: torch.device, dtype: torch.dtype, context: int, batch: int, cache_gb: float,
        sleep: bool = True,
    ) -> None:  # fmt: skip
        if torch.distributed.is_initialized():
            raise RuntimeError("the engine is made before the processes of a run meet: it takes a process group of its own, and gives it up")
        os.environ |= _SETTINGS
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        self.device = device
        self.sleeps, self.asleep = sleep and device.type == "cuda", False
        on_gpu: dict[str, Any] = {"device_ids": [device.index or 0], "enable_sleep_mode": self.sleeps} if device.type == "cuda" else {}
        on_cpu: dict[str, Any] = {}
        if device.type == "cpu":
            torch._dynamo.config.disable = True  # else its sampler wants a C++ compiler, to count ranks that nobody reads
            # after a part of a prompt, vLLM turns back the request's own generator, which no CPU generator can: prompts are read whole
            on_cpu = {"enforce_eager": True, "enable_chunked_prefill": False, "max_num_batched_tokens": max(context, READ)}
        _plain_library_handles()
        with _undisturbed(device):
            from vllm import LLM
            from vllm.platforms import current_platform

            if current_platform.device_type != device.type:
                raise UserError(
                    f"the installed vllm computes on {current_platform.device_type}, but the policy is on {device.type}: install the build for "
                    f"{device.type}, or type trainer.accelerator={'gpu' if current_platform.device_type == 'cuda' else 'cpu'}"
                )
            try:
                self.engine = LLM(
                    model=folder, revision=revision, tokenizer_revision=revision, dtype=str(dtype).removeprefix("torch."),
                    load_format="dummy", max_model_len=context, max_num_seqs=batch, kv_cache_memory_bytes=int(cache_gb * 2**30),
                    gpu_memory_utilization=0.01,  # asks for nothing beyond the cache above; the policy has the rest
                    hf_overrides={"tie_word_embeddings": False},  # a tied output embedding would keep its first weights
                    enable_prefix_caching=True, logprobs_mode="processed_logprobs", max_logprobs=_ALL, generation_config="vllm",
                    disable_log_stats=True, **on_gpu, **on_cpu)  # fmt: skip
            except (ValueError, RuntimeError) as error:
                raise UserError(f"vLLM cannot run this model ({_last_line(error)}); type rollout=hf, or change what it names") from error
        self._check_heads()
        # Lightning makes a process group of all processes, and would take one that is there for it
        torch.distributed.destroy_process_group()
        self.engine.llm_engine.engine_core._finalizer.detach()  # it would look for that group when Python ends
        gc.unfreeze()  # else what vLLM has frozen is reported as leaked when Python ends

    def _check_heads(self) -> None:
        """The CPU build finds out only when it computes."""
        size = self.engine.llm_engine.model_config.get_head_size()
        if self.device.type != "cpu":
            return
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

        if size not in (known := CPUAttentionBackend.get_supported_head_sizes()):
            sizes = ", ".join(map(str, known))
            raise UserError(f"vLLM's CPU build computes attention heads of {sizes} numbers, and those of this model have {size}: type rollout=hf")

    def generate(self, jobs: Sequence[Job], version: str) -> list[Written]:
        from vllm import SamplingParams

        prompts = [{"prompt_token_ids": list(job.ids), "cache_salt": version} for job in jobs]
        # sampling has a type of its own, also within a training step
        with torch.autocast(self.device.type, enabled=False), torch.random.fork_rng(devices=_cards(self.device)):
            # requests without a generator of their own draw from this process's: no two batches, and no two processes, may do so alike
            torch.manual_seed(seed_for(0, "batch", *(job.seed for job in jobs)))
            outputs = self.engine.generate(prompts, [SamplingParams(**job.parameters) for job in jobs], use_tqdm=False)
        return [_written(output.outputs[0]) for output in outputs]

    def load(self, weights: Iterable[tuple[str, Tensor]], version: str) -> str:
        if self.asleep:
            self.engine.wake_up(tags=["weights"])
        with torch.autocast(self.device.type, enabled=False):
            self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights), "is_checkpoint_format": True})
        if self.asleep:
            self.engine.wake_up(tags=["kv_cache"])
            self.asleep = False
        if not self.engine.reset_prefix_cache():
            raise RuntimeError("vLLM did not drop its prefix cache: requests were still running while weights were taken over")
        self.engine.update_weight_version(version)
        return version

    def rest(self) -> None:
        if self.sleeps and not self.asleep:
            self.engine.sleep(level=2)  # weights and cache are dropped: the next ones are other weights
            self.asleep = True


def _written(output: Any) -> Written:
    return Written(
        ids=tuple(output.token_ids),
        logprobs=tuple(found[token].logprob for token, found in zip(output.token_ids, output.logprobs, strict=True)),
        top=tuple(tuple(one.logprob for one in found.values()) for found in output.logprobs),
        finish=output.finish_reason or "",
        versions=tuple(span.version for span in output.weight_versions or ()),
    )


def _cards(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """vLLM seeds every stream of random numbers of the process and takes over its threads: both are put back."""
    states, threads, set_threads = (random.getstate(), np.random.get_state()), torch.get_num_threads(), torch.set_num_threads
    with torch.random.fork_rng(devices=_cards(device)), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about its own code
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_num_threads = set_threads
            torch.set_num_threads(threads)


def _plain_library_handles() -> None:
    """vLLM's CPU build reads `__dict__` of every object in every module, and llvmlite's handle of its library takes that for a C function."""
    if (ffi := sys.modules.get("llvmlite.binding.ffi")) is None:  # comes with bm25s, where numba is there
        return
    lookup = ffi._lib_wrapper.__getattr__

    def guarded(handle: object, name: str) -> object:
        if name == "__dict__":
            raise AttributeError(name)
        return lookup(handle, name)

    ffi._lib_wrapper.__getattr__ = guarded


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
