"""From configuration to objects: engine, policy, sampler, loop, reward."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from ssrl.config import Config, LoraConfig
from ssrl.errors import UserError
from ssrl.policy.critic import Critic
from ssrl.policy.load import LoadedModel, load_model
from ssrl.rewards.score import Reward
from ssrl.rollout.loop import EpisodeLoop, Limits
from ssrl.rollout.render import Renderer, over_long
from ssrl.tasks.checkpoint import load_weights, locate
from ssrl.tasks.engines import build_engine, evaluation
from ssrl.tasks.samplers import build_sampler
from ssrl.training.agent import Agent
from ssrl.types import Engine, Question, Sampler


def device_of(config: Config) -> torch.device:
    """Where this process's model lives, before a Trainer places it.

    Raises:
        UserError: a GPU is asked for, and PyTorch finds none.
    """
    if config.trainer.accelerator in ("gpu", "cuda") and not torch.accelerator.is_available():
        raise UserError(f"trainer.accelerator={config.trainer.accelerator}: PyTorch finds no GPU on this machine; type trainer=cpu")
    if config.trainer.accelerator == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))))


def place(module: torch.nn.Module, config: Config) -> None:
    """Move it to where this process computes. FSDP does so itself, one layer at a time as it cuts them, so that no card holds all that is trained."""
    if config.trainer.strategy != "fsdp":
        module.to(device_of(config))


def build_policy(config: Config) -> LoadedModel:
    """The model with its adapters, if any."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    c = config.model
    loaded = load_model(c.path, revision=c.revision, dtype=c.dtype, attention=c.attention)
    if config.trainer.gradient_checkpointing:
        loaded.model.gradient_checkpointing_enable({"use_reentrant": False})
        loaded.model.train()  # transformers checkpoints in training mode only; these families have no dropout
    if c.lora.rank:
        return LoadedModel(model=_with_adapters(loaded.model, c.lora), tokenizer=loaded.tokenizer, end_ids=loaded.end_ids, folder=loaded.folder)
    return loaded


def _with_adapters(model: PreTrainedModel, lora: LoraConfig) -> PreTrainedModel:
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    targets = lora.targets[0] if lora.targets == ["all-linear"] else list(lora.targets)
    how = PeftConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`")  # refused below, in one sentence
        adapted = get_peft_model(model, how)
    if model.config.tie_word_embeddings and any(hasattr(m, "base_layer") for m in (model.get_input_embeddings(), model.get_output_embeddings())):
        raise UserError(
            f"model.lora.targets={lora.targets} names an embedding that this model uses for its input and its output: adapters of one would reach "
            "the other; type model.lora.targets=[all-linear], or names of layers between them"
        )
    return adapted


def build_critic(config: Config, loaded: LoadedModel) -> Critic | None:
    """The critic of an actor-critic algorithm: on the policy's trunk, or on one of its own that starts from `algo.critic.path`."""
    c = config.algo.critic
    if config.algo.advantage != "gae":
        return None
    if c.shared:
        return Critic(loaded.model, shared=True)
    m = config.model
    model = load_model(c.path or m.path, revision=None if c.path else m.revision, dtype=m.dtype, attention=m.attention).model
    if config.trainer.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
    return Critic(model, shared=False)


def build_agent(config: Config, loaded: LoadedModel, sampler: Sampler | None = None) -> Agent:
    """The loaded policy with who answers its searches (`config.engine`). `sampler`: of another agent of the same policy, to share its copy."""
    r, p, w = config.rollout, config.prompt, config.reward
    device = device_of(config)
    engine = build_engine(config, str(device))
    renderer = Renderer(
        tokenizer=loaded.tokenizer, template=p.template, system=p.system, chat=p.chat, prefill=p.prefill, thinking=config.model.thinking)  # fmt: skip
    sampler = sampler or build_sampler(config, loaded, device)
    limits = Limits(context=config.model.context, response=r.max_response_tokens, turn=r.max_turn_tokens, information=r.max_information_tokens)
    loop = EpisodeLoop(sampler, engine, renderer, limits, stop_at_answer=r.stop_at_answer, mask=config.algo.mask)
    reward = Reward(
        w.outcome, w.format, w.outcome_weight, w.format_weight, w.normalizer, signed=w.signed,
        native_thinking=bool(config.model.thinking), engine_answers=engine.answers and not engine.may_decline)  # fmt: skip
    return Agent(model=loaded.model, tokenizer=loaded.tokenizer, end_ids=loaded.end_ids, sampler=sampler, loop=loop, reward=reward)


def build_evaluating(config: Config, training: Agent, loaded: LoadedModel) -> Agent:
    """The agent of training with who answers in evaluation; itself where that is the same."""
    other = evaluation(config)
    return training if other is config else build_agent(other, loaded, training.sampler)


def ping(*agents: Agent) -> list[str]:
    """Ask every engine once before anything starts; a sentence about each that something outside answered."""
    engines = {id(agent.loop.engine): agent.loop.engine for agent in agents}.values()
    return [f"{engine.name}: {_behind(engine)} answered in {1000 * engine.ping():.0f} ms" for engine in engines if engine.answers]


def _behind(engine: Engine) -> str:
    """Who was asked, in a word or two; the manifest has the whole identity."""
    return (engine.identity.get("retriever") or engine.identity["simulator"]).split()[0]


def engine_identity(*agents: Agent) -> dict[str, Any]:
    """Who answered, for the manifest: the engine of training first, that of evaluation under `eval` where it is another."""
    first, *others = (agent.loop.engine for agent in agents)
    found: dict[str, Any] = {"name": first.name, **first.identity}
    evaluation = {"name": others[0].name, **others[0].identity} if others and others[0] is not first else None
    return found | ({"eval": evaluation} if evaluation else {})


def short_enough(agent: Agent, questions: Sequence[Question], limit: int, name: str) -> tuple[list[Question], int]:
    """The questions whose prompts fit, and how many do not."""
    agent.loop.renderer.check_thinking(questions[0])
    kept = [q for q, long in zip(questions, over_long(agent.loop.renderer, questions, limit), strict=True) if not long]
    if not kept:
        raise UserError(f"all {len(questions)} prompts of {name} are longer than rollout.max_prompt_tokens={limit}; raise it or shorten the prompt")
    return kept, len(questions) - len(kept)


def build_trained(config: Config) -> LoadedModel:
    """The policy of `config.ckpt`, or the model as it is where there is no checkpoint."""
    loaded = build_policy(config)
    if config.ckpt is not None:
        load_weights(loaded.model, locate(config.ckpt)[1])
    place(loaded.model, config)
    return loaded
