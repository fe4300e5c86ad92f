"""What `engine=`, `retriever=`, `simulator=`, `wrapper=` and the token budgets cannot mean: rules that `ssrl/check.py` asks, one sentence or None each;
and how long a sequence they allow."""

from __future__ import annotations

from operator import attrgetter

from ssrl.config import ANSWERING, Config, EngineConfig, RetrieverConfig
from ssrl.schema import idle, keys


def budgets_fit(config: Config) -> str | None:
    rollout, context = config.rollout, config.model.context
    total = rollout.max_prompt_tokens + rollout.max_response_tokens
    if total > context:
        return (
            f"rollout.max_prompt_tokens={rollout.max_prompt_tokens} and rollout.max_response_tokens={rollout.max_response_tokens} make "
            f"{total} tokens, more than model.context={context}: lower one of the two"
        )
    for engine in engines(config):
        documents = answered(engine) * rollout.max_information_tokens
        if total + documents > context:
            return (
                f"{total} tokens of prompt and response and {answered(engine)} answered searches of rollout.max_information_tokens="
                f"{rollout.max_information_tokens} make {total + documents}, more than model.context={context}: lower one of them"
            )
    return None


def longest(config: Config) -> int:
    """Tokens of the longest sequence that a rollout can reach: an engine that samples need not be made for more."""
    rollout, context = config.rollout, config.model.context
    if config.task == "ask" or any(engine.name == "sim2real" and engine.k == "all" for engine in engines(config)):
        return context  # a question of any length, or searches without an end
    answers = max(answered(engine) for engine in engines(config))
    around = len(config.wrapper.before) + len(config.wrapper.after)  # a token has at least one of these characters
    documents = answers * (rollout.max_information_tokens + around)
    return min(context, rollout.max_prompt_tokens + rollout.max_response_tokens + documents)


def engines(config: Config) -> list[EngineConfig]:
    """Who answers in training and in evaluation."""
    return [config.engine] if config.eval.engine.name == "same" else [config.engine, config.eval.engine]


def retrievers(config: Config) -> list[RetrieverConfig]:
    return [config.retriever] if config.eval.retriever.name == "same" else [config.retriever, config.eval.retriever]


def answered(engine: EngineConfig) -> int:
    """Most searches of a rollout that are answered; 0 where their number is not bounded."""
    if engine.name == "sim2real":
        return 0 if engine.k == "all" or not engine.k.isdecimal() else int(engine.k)
    return engine.max_turns if engine.name in ANSWERING else 0


def engine_is_named(config: Config) -> str | None:
    for key in ("engine", "retriever"):
        if getattr(config, key).name == "same":
            return f"{key}=same is only for {key}@eval.{key}: it stands for the {key} of training"
    return None


def k_is_a_number(config: Config) -> str | None:
    for engine in engines(config):
        if engine.name == "sim2real" and engine.k != "all" and not (engine.k.isdecimal() and int(engine.k)):
            return f"engine.k={engine.k} must be a whole number from 1 on, or all: type engine.k=3"
    return None


def retry_holds_no_tag(config: Config) -> str | None:
    for engine in engines(config):
        if engine.retry_message and set("<>") & set(engine.retry_message):
            return f"engine.retry_message={engine.retry_message!r} must not contain < or >, so that it can never be read as a tag: name the tags in words"
    return None


def wrapper_has_tags(config: Config) -> str | None:
    before, after = config.wrapper.before, config.wrapper.after
    if (before.strip(), after.strip()) != ("<information>", "</information>"):
        return f"wrapper.before={before!r} and wrapper.after={after!r} must be <information> and </information>, with white space around them if you like"
    return None


def servers_have_urls(config: Config) -> str | None:
    for retriever in retrievers(config):
        if retriever.name in ("http", "searxng") and not retriever.urls:
            return f"retriever={retriever.name} needs a server: type retriever.urls=[http://127.0.0.1:8000]"
    if config.simulator.name == "openai" and not config.simulator.urls:
        return "simulator=openai needs a server: type simulator.urls=[http://127.0.0.1:6001/v1]"
    return None


def prompt_fits_engine(config: Config) -> str | None:
    prompt = config.prompt.name
    for engine in engines(config):
        if engine.name == "none" and config.prompt.search:
            return f"engine=none answers no search, but prompt={prompt} offers them: type prompt=r1 (or prompt=quickstart_none for a small model)"
        if engine.name in ANSWERING and not config.prompt.search:
            return f"engine={engine.name} waits for searches, but prompt={prompt} does not offer them: type prompt=search_r1"
        if engine.name == "fullsim" and not config.prompt.search:
            return f"engine=fullsim is for searches, but prompt={prompt} does not offer them: type engine=none, or prompt=ssrl"
    return None


def choices_do_nothing(config: Config) -> str | None:
    found = sorted(idle(config))
    told = [f"retriever={config.retriever.name}"] if "retriever" in found and config.retriever.name != "bm25" else []
    told += [f"simulator={config.simulator.name}"] if "simulator" in found and config.simulator.name != "local" else []
    told += [key for key in found if key in keys() and not key.startswith(("eval.", "rollout.")) and attrgetter(key)(config) != keys()[key].default]
    if not told:
        return None
    return f"{', '.join(told)} {'does' if len(told) == 1 else 'do'} nothing with engine={config.engine.name}" + (
        f" and retriever={config.retriever.name}" if any(t.startswith("retriever.") for t in told) else ""
    )


def asking_knows_no_answer(config: Config) -> str | None:
    if config.task == "ask" and "semireal" in {engine.name for engine in engines(config)}:
        return "engine=semireal tells the simulator the gold answer, and a question of task=ask has none: choose another engine"
    return None


ERRORS = (
    asking_knows_no_answer,
    engine_is_named,
    k_is_a_number,
    retry_holds_no_tag,
    wrapper_has_tags,
    servers_have_urls,
    prompt_fits_engine,
    budgets_fit,
)
NOTES = (choices_do_nothing,)
