"""What `trainer=` cannot mean: the rules about the machine that `ssrl/check.py` asks, one sentence or None each."""

from __future__ import annotations

from ssrl.config import Config

FLEX_ON_CPU = "model.attention=flex cannot train on a CPU, where FlexAttention has no backward pass: type model.attention=parts"


def sharding_trains_all_weights(config: Config) -> str | None:
    rank = config.model.lora.rank
    if config.task == "train" and config.trainer.strategy == "fsdp" and rank:
        return (
            f"trainer.strategy=fsdp cuts trained weights over the processes, but with model.lora.rank={rank} only small adapters are trained: "
            "type trainer.strategy=ddp, or model.lora.rank=0"
        )
    return None


def offloading_needs_sharding(config: Config) -> str | None:
    trainer = config.trainer
    if trainer.cpu_offload and trainer.strategy != "fsdp":
        return f"trainer.cpu_offload=true moves the pieces of sharded weights, but trainer.strategy={trainer.strategy} has none: type trainer.strategy=fsdp"
    return None


def fused_attention_needs_cuda(config: Config) -> str | None:
    if config.task == "train" and config.model.attention == "flex" and config.trainer.accelerator == "cpu":
        return FLEX_ON_CPU
    return None


ERRORS = (sharding_trains_all_weights, offloading_needs_sharding, fused_attention_needs_cuda)
