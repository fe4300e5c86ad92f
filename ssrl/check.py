"""What is wrong with a configuration, found before anything slow is imported: unknown keys, values out of their set or range, impossible pairs.

A rule is a small function from the configuration to one sentence or None. A broken rule of `ERRORS` stops the run; one of `NOTES` is
said and the run goes on. What needs a tokenizer (the real length of a prompt) is checked when the model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ssrl.check_algo import ERRORS as ALGO_ERRORS
from ssrl.check_algo import NOTES as ALGO_NOTES
from ssrl.check_engine import ERRORS as ENGINE_ERRORS
from ssrl.check_engine import NOTES as ENGINE_NOTES
from ssrl.check_engine import retrievers
from ssrl.check_rollout import ERRORS as ROLLOUT_ERRORS
from ssrl.check_rollout import NOTES as ROLLOUT_NOTES
from ssrl.check_trainer import ERRORS as TRAINER_ERRORS
from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.schema import generic, keys, nearest, suggest, unknown

INFINITY = math.inf
ENGINE = {"max_turns": (1, INFINITY), "topk": (1, INFINITY), "signal_topk": (2, INFINITY), "window": (1, INFINITY), "threshold": (-INFINITY, INFINITY)}
RETRIEVER = {"max_tokens": (1, INFINITY), "rerank_from": (1, INFINITY)}
RANGES: dict[str, tuple[float, float]] = {  # both ends belong to the range
    "seed": (0, INFINITY),
    **{f"{where}.{key}": bounds for where in ("engine", "eval.engine") for key, bounds in ENGINE.items()},
    **{f"{where}.{key}": bounds for where in ("retriever", "eval.retriever") for key, bounds in RETRIEVER.items()},
    "simulator.documents": (1, 100),
    "simulator.temperature": (0, INFINITY),
    "simulator.max_tokens": (1, INFINITY),
    "simulator.steps": (0, INFINITY),
    "simulator.base": (1.000001, INFINITY),
    "simulator.start": (0, 1),
    "simulator.end": (0, 1),
    "calls.timeout_s": (0.001, INFINITY),
    "calls.retries": (0, INFINITY),
    "calls.backoff_s": (0, INFINITY),
    "calls.rate": (0, INFINITY),
    "calls.concurrency": (1, 1024),
    "calls.cache_days": (0, INFINITY),
    "calls.max_error_frac": (0, 1),
    "calls.window": (1, INFINITY),
    "serve.port": (0, 65535),
    "serve.max_queries": (1, INFINITY),
    "serve.max_body_kb": (1, INFINITY),
    "serve.max_topk": (1, INFINITY),
    "serve.timeout_s": (0.001, INFINITY),
    "algo.clip_low": (0, 1),
    "algo.clip_high": (0, INFINITY),
    "algo.gamma": (0, 1),
    "algo.lam": (0, 1),
    "algo.dual_clip": (1, INFINITY),
    "algo.cov_ratio": (0, 1),
    "algo.cov_coef": (0, INFINITY),
    "algo.cov_low": (-INFINITY, INFINITY),
    "algo.cov_high": (-INFINITY, INFINITY),
    "algo.constant_length": (1, INFINITY),
    "algo.kl_coef": (0, INFINITY),
    "algo.kl_target": (1e-9, INFINITY),
    "algo.kl_horizon": (1, INFINITY),
    "algo.correction_cap": (1, INFINITY),
    "algo.entropy_coef": (0, INFINITY),
    "algo.epochs": (1, INFINITY),
    "algo.updates": (1, INFINITY),
    "algo.max_batches": (1, INFINITY),
    "algo.overlong_buffer": (0, 1),
    "algo.overlong_penalty": (0, INFINITY),
    "algo.critic.lr": (0, INFINITY),
    "algo.critic.warmup_steps": (0, INFINITY),
    "algo.critic.alone_steps": (0, INFINITY),
    "algo.critic.value_clip": (1e-9, INFINITY),
    "algo.critic.coef": (0, INFINITY),
    "reward.outcome_weight": (0, INFINITY),
    "reward.format_weight": (0, INFINITY),
    "reward.votes": (1, INFINITY),
    "reward.min_share": (0, 1),
    "model.context": (2, INFINITY),
    "model.lora.rank": (0, INFINITY),
    "model.lora.alpha": (0, INFINITY),
    "data.train.*.limit": (1, INFINITY),
    "data.val.*.limit": (1, INFINITY),
    "data.test.*.limit": (1, INFINITY),
    "rollout.n": (1, INFINITY),
    "rollout.temperature": (0, INFINITY),
    "rollout.top_p": (1e-6, 1),
    "rollout.top_k": (0, INFINITY),
    "rollout.max_prompt_tokens": (1, INFINITY),
    "rollout.max_response_tokens": (1, INFINITY),
    "rollout.max_turn_tokens": (1, INFINITY),
    "rollout.max_information_tokens": (1, INFINITY),
    "rollout.batch": (1, INFINITY),
    "rollout.cache_gb": (0.01, INFINITY),
    "rollout.timeout_s": (0.001, INFINITY),
    "eval.every": (0, INFINITY),
    "eval.temperature": (0, INFINITY),
    "eval.samples": (0, INFINITY),
    "eval.keep_rollouts": (0, INFINITY),
    "train.steps": (0, INFINITY),
    "train.questions": (1, INFINITY),
    "train.lr": (0, INFINITY),
    "train.warmup_steps": (0, INFINITY),
    "train.weight_decay": (0, INFINITY),
    "train.grad_clip": (0, INFINITY),
    "train.save_every": (1, INFINITY),
    "train.max_bad_steps": (1, INFINITY),
    "guard.reward_frac": (0, 1),
    "guard.patience": (1, INFINITY),
    "guard.entropy_factor": (1, INFINITY),
    "guard.length_factor": (1, INFINITY),
    "guard.searches_frac": (0, 1),
    "guard.mismatch": (0, INFINITY),
    "trainer.devices": (1, INFINITY),
    "trainer.num_nodes": (1, INFINITY),
    "trainer.row_tokens": (1, INFINITY),
    "trainer.logprob_chunk": (1, INFINITY),
    "trainer.threads": (0, INFINITY),
    "table.columns.*.digits": (0, 15),
}
LOGGERS = ("wandb", "tensorboard", "csv")


def check(cfg: DictConfig) -> list[str]:
    """Notes on a composed configuration, one sentence each.

    Raises:
        UserError: the first thing that makes the run impossible.
    """
    for name in unknown(OmegaConf.to_container(cfg)):
        raise UserError(f"{name} is not a key of the configuration; {suggest(name)}")
    try:
        for name in sorted(OmegaConf.missing_keys(cfg)):
            raise UserError(f"{name} has no value: type {name}=…")
        values = flatten(OmegaConf.to_container(cfg, resolve=True))
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'the configuration'} cannot be resolved: {str(error).splitlines()[0]}") from error
    for problem in (*wrong_values(values), *filter(None, (rule(config) for rule in ERRORS))):
        raise UserError(problem)
    return [note for note in (rule(config) for rule in NOTES) if note]


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary as one with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def wrong_values(values: dict[str, Any]) -> Iterator[str]:
    """Values outside of their closed set or their range."""
    for name, value in values.items():
        known = generic(name)
        options = keys()[known].options if known in keys() else ()
        if options and value not in options:
            near = nearest(str(value), options, count=1)
            yield f"{name}={value} is not a choice; known: {', '.join(options)}" + (f" (did you mean {near[0]}?)" if near else "")
        if known in RANGES and value is not None:
            low, high = RANGES[known]
            if not (low <= value <= high and math.isfinite(value)):
                yield f"{name}={value} is out of range: it must be {bounds(low, high)}"


def bounds(low: float, high: float) -> str:
    """A range in words."""
    if high == INFINITY:
        return "a finite number" if low == -INFINITY else f"at least {low:g}"
    return f"between {low:g} and {high:g}"


def training_needs_chance(config: Config) -> str | None:
    if config.task == "train" and config.rollout.temperature == 0:
        return "rollout.temperature=0 makes all rollouts of a question the same, so there is nothing to learn from: type rollout.temperature=1"
    return None


def ask_needs_question(config: Config) -> str | None:
    if config.task == "ask" and not (config.question or "").strip():
        return 'task=ask needs a question: type question="Who wrote Hamlet?"'
    return None


def training_takes_no_checkpoint(config: Config) -> str | None:
    if config.task == "train" and config.ckpt:
        return f"ckpt={config.ckpt} is not used by task=train: repeat a run's own command to continue it, or type model.path= with an exported folder"
    return None


def export_needs_checkpoint(config: Config) -> str | None:
    if config.task == "export" and not config.ckpt and not config.out:
        return "task=export needs a checkpoint: type ckpt=FOLDER with the folder of a run, or out=FOLDER to export a model as it is"
    return None


def training_needs_questions(config: Config) -> str | None:
    if config.task == "train" and not config.data.train:
        return f"data={config.data.name} has no training set: choose other data, or type task=eval to evaluate on it"
    return None


def evaluation_needs_questions(config: Config) -> str | None:
    if config.task == "eval" and not config.data.test:
        return f"data={config.data.name} has no test set: choose other data, or add one with data.test.NAME.path=FILE"
    return None


def updates_need_questions(config: Config) -> str | None:
    if config.task == "train" and config.algo.updates > config.train.questions:
        return (
            f"algo.updates={config.algo.updates} is more than train.questions={config.train.questions}: "
            "each update needs at least one question of its own"
        )
    return None


def processes_need_questions(config: Config) -> str | None:
    processes = config.trainer.devices * config.trainer.num_nodes
    if config.task == "train" and processes > config.train.questions:
        return f"{processes} processes share train.questions={config.train.questions}: type train.questions={processes} or more"
    return None


def reward_is_reachable(config: Config) -> str | None:
    if config.reward.outcome_weight == 0 and (config.reward.format_weight == 0 or config.reward.format == "none"):
        return "every reward would be 0: type reward.outcome_weight=1, or choose a reward.format with a weight"
    if config.task == "train" and config.reward.format == "self_search" and not config.prompt.search:
        return (
            f"reward.format=self_search gives 0 to a response without a search, but prompt={config.prompt.name} does not offer one: "
            "choose another prompt or reward.format=none"
        )
    return None


def votes_cover_training(config: Config) -> str | None:
    r = config.reward
    if r.label == "gold" and r.votes is not None:
        return f"reward.votes={r.votes} has nothing to vote on with reward.label=gold: type reward.label=majority or reward.votes=null"
    if r.label == "majority" and r.votes is not None and r.votes < config.rollout.n:
        return f"reward.votes={r.votes} is less than rollout.n={config.rollout.n}, the rollouts that are trained: type reward.votes={config.rollout.n} or more"
    return None


def simulator_must_not_know(config: Config) -> str | None:
    if config.task == "train" and config.reward.label == "majority" and config.engine.name == "semireal":
        return "reward.label=majority learns without answers, but engine=semireal tells the simulator the gold answer: choose another engine"
    return None


def prompt_holds_question(config: Config) -> str | None:
    if "{question}" not in config.prompt.template:
        return f"prompt.template of prompt={config.prompt.name} does not say where the question goes: it must contain {{question}}"
    return None


def system_needs_chat(config: Config) -> str | None:
    if config.prompt.system and not config.prompt.chat:
        return "prompt.system is only delivered through a chat template: type prompt.chat=true, or put it into prompt.template"
    return None


def thinking_comes_first(config: Config) -> str | None:
    if config.model.thinking and not config.prompt.chat:
        return "model.thinking=true acts through the chat template: type prompt.chat=true"
    if config.model.thinking and config.prompt.prefill:
        return (
            f"prompt.prefill={config.prompt.prefill!r} cannot stand before the model's own thinking block: "
            "type model.thinking=false or prompt.prefill=''"
        )
    return None


def betas_are_two(config: Config) -> str | None:
    betas = config.train.betas
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        return f"train.betas={betas} must be two numbers from 0 to below 1, as in train.betas=[0.9,0.999]"
    return None


def loggers_are_known(config: Config) -> str | None:
    for name in config.logger.names:
        if name not in LOGGERS:
            return f"logger.names holds {name!r}; known: {', '.join(LOGGERS)}"
    return None


def rollback_needs_validation(config: Config) -> str | None:
    if config.task != "train" or config.guard.action != "rollback" or (config.eval.every and config.data.val):
        return None
    why = "eval.every=0 never validates" if config.data.val else f"data={config.data.name} has no validation set"
    return (
        f"guard.action=rollback goes back to the best checkpoint, which validation chooses, but {why}: "
        f"type {'eval.every=16' if config.data.val else 'data.val.NAME.path=FILE'}, or guard.action=stop"
    )


def truncation_biases(config: Config) -> str | None:
    if config.task == "train" and (config.rollout.top_p < 1 or config.rollout.top_k > 0):
        return "rollout.top_p below 1 or rollout.top_k above 0 samples from another distribution than the one that is trained, which biases the update"
    return None


def warmup_outlasts_run(config: Config) -> str | None:
    if config.task == "train" and 0 < config.train.steps <= config.train.warmup_steps:
        return (
            f"train.warmup_steps={config.train.warmup_steps} lasts as long as train.steps={config.train.steps}: "
            "the learning rate hardly reaches train.lr"
        )
    return None


def bfloat16_weights_round(config: Config) -> str | None:
    if config.task == "train" and config.model.dtype == "bfloat16" and config.model.lora.rank == 0:
        return "model.dtype=bfloat16 keeps 8 bits of each trained weight, so small updates round to nothing; model.dtype=float32 keeps them"
    return None


def addresses_hold_no_password(config: Config) -> str | None:
    told = {"retriever.urls": [url for r in retrievers(config) for url in r.urls], "simulator.urls": config.simulator.urls, "rollout.urls": config.rollout.urls}
    for key, urls in told.items():
        if any("@" in url.partition("://")[2].partition("/")[0] for url in urls):
            return f"a user or password in {key} would stand in the files of the run: use a server without one, or, for engines, a key in the environment"
    return None


ERRORS = (
    ask_needs_question,
    training_takes_no_checkpoint,
    export_needs_checkpoint,
    training_needs_questions,
    evaluation_needs_questions,
    addresses_hold_no_password,
    *ENGINE_ERRORS,
    *ALGO_ERRORS,
    *ROLLOUT_ERRORS,
    *TRAINER_ERRORS,
    training_needs_chance,
    updates_need_questions,
    processes_need_questions,
    reward_is_reachable,
    votes_cover_training,
    simulator_must_not_know,
    prompt_holds_question,
    system_needs_chat,
    thinking_comes_first,
    betas_are_two,
    loggers_are_known,
    rollback_needs_validation,
)
NOTES = (*ENGINE_NOTES, *ALGO_NOTES, *ROLLOUT_NOTES, truncation_biases, warmup_outlasts_run, bfloat16_weights_round)
