"""The policy's sampler, from the configuration."""

from __future__ import annotations

from pathlib import Path

import torch

from ssrl.calls.vllm import VllmServers
from ssrl.check_engine import longest
from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.policy.decode import check_supported
from ssrl.policy.hardware import sampler_dtype
from ssrl.policy.load import LoadedModel
from ssrl.policy.sampler import TransformersSampler
from ssrl.policy.vllm_inprocess import InProcess
from ssrl.policy.vllm_protocol import Backend
from ssrl.policy.vllm_sampler import VllmSampler
from ssrl.policy.vllm_served import Served
from ssrl.processes import is_first_process
from ssrl.training import ranks
from ssrl.types import Sampler


def build_sampler(config: Config, loaded: LoadedModel, device: torch.device) -> Sampler:
    """What `rollout=` names, with a copy of the policy's weights.

    Raises:
        UserError: the model's attention is not one that updates compute, vLLM cannot run it, or a server does not answer as it must.
    """
    r = config.rollout
    sharded = config.trainer.strategy == "fsdp"  # the policy waits on the CPU until it is cut
    dtype = sampler_dtype(r.dtype, device.type)
    if r.name == "hf":
        where = device if sharded else None
        return TransformersSampler(loaded.model, loaded.tokenizer, loaded.end_ids, batch=r.batch, dtype=dtype, device=where)
    check_supported(loaded.model)  # vLLM may sample from it, but packed rows would not see it as vLLM does
    context, made_for = longest(config), getattr(loaded.model.config, "max_position_embeddings", config.model.context)
    if context > made_for:
        raise UserError(
            f"model.context={config.model.context} is more than the {made_for} tokens that the model was made for, which vLLM refuses: "
            f"type model.context={made_for}"
        )
    backend: Backend
    if r.name == "vllm":
        backend = InProcess(
            loaded.folder, revision=config.model.revision, device=device, dtype=dtype, context=context, batch=r.batch, cache_gb=r.cache_gb,
            sleep=r.sleep)  # fmt: skip
    else:
        servers = VllmServers(
            r.urls, model=loaded.folder, dtype=str(dtype).removeprefix("torch."), context=context, batch=r.batch, timeout_s=r.timeout_s)  # fmt: skip
        backend = Served(servers, Path(r.weights or Path(config.runs) / ".weights"), lambda work, beside: ranks.from_first(work, beside, device))
    # further processes join the first only when training starts, and until then it alone may talk to the servers
    return VllmSampler(
        backend, loaded.model, loaded.tokenizer, loaded.end_ids, dtype=dtype, seeded=r.seeded, probes=not sharded,
        publish=r.name == "vllm" or is_first_process())  # fmt: skip
