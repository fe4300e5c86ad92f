"""Training steps of this package as the benchmarks need them: no run folder, responses of forced length, sampled or given."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lightning as L
from omegaconf import OmegaConf

from ssrl.compose import Composer
from ssrl.config import Config
from ssrl.data.order import QuestionStream
from ssrl.overrides import rewrite
from ssrl.policy.hardware import determinism, precision
from ssrl.policy.load import LoadedModel, load_tokenizer
from ssrl.rollout.render import Renderer
from ssrl.tasks.build import build_agent, build_policy, device_of
from ssrl.tasks.sources import load_sources
from ssrl.training.agent import Agent
from ssrl.training.data import QuestionData
from ssrl.training.module import SearchRL
from ssrl.types import Completion, Finish, Question, Request, Rollout, Score

PARTS = ("em", "cover_em", "f1", "format", "searches", "answer_words")


def compose(*words: str) -> Config:
    composer = Composer(None, "config")
    (tree,) = composer.jobs(rewrite(list(words), composer.defaults), False)
    return OmegaConf.to_object(tree)


def asked(config: Config) -> tuple[Renderer, list[Question]]:
    """The questions of all steps in a run's order, and what makes prompts of them."""
    p = config.prompt
    renderer = Renderer(tokenizer=load_tokenizer(config.model.path), template=p.template, system=p.system, chat=p.chat)
    stream = QuestionStream(load_sources(config, ("train",)).train, config.seed)
    return renderer, [draw.question for draw in stream.take(config.train.questions * config.train.steps)]


class Given:
    """Stands in for a sampler: responses of random tokens, so that an update can be measured without waiting for them."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._one(random.Random(request.seed), request.max_new_tokens) for request in requests]

    def publish(self) -> None:
        """It has no weights."""

    def rest(self) -> None:
        """Nor a cache."""

    def _one(self, draw: random.Random, n: int) -> Completion:
        ids = tuple(draw.randrange(self.vocabulary) for _ in range(n))
        return Completion(ids=ids, logprobs=(-1.0,) * n, finish=Finish.LENGTH, entropies=None)


def spread(rollout: Rollout) -> Score:
    """A number between 0 and 1 that is hardly ever the same twice: no group may be without a signal, since it would not be computed."""
    return Score(total=sum(rollout.ids) % 1009 / 1008, parts=dict.fromkeys(PARTS, 0.0), answer=None)


def forced(config: Config, *, given: bool) -> Agent:
    """An agent whose responses all have the full length, which is rollout.max_response_tokens."""
    loaded = build_policy(config)
    loaded = LoadedModel(model=loaded.model.to(device_of(config)), tokenizer=loaded.tokenizer, end_ids=frozenset(), folder=loaded.folder)
    agent = build_agent(config, loaded, Given(loaded.model.config.vocab_size - 1) if given else None)
    return replace(agent, reward=spread)


def train(config: Config, agent: Agent, callback: L.Callback, questions: Sequence[Question] | None = None) -> None:
    """`train.steps` steps in this process."""
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    t = config.trainer
    trainer = L.Trainer(
        accelerator=t.accelerator, devices=1, precision=precision(t.precision, device_of(config).type), max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
        deterministic=determinism(t.deterministic), callbacks=[callback])  # fmt: skip
    asked = questions if questions is not None else load_sources(config, ("train",)).train
    data = QuestionData(asked, seed=config.seed, steps=config.train.steps, size=config.train.questions)
    trainer.fit(SearchRL(config, agent, None), datamodule=data)


class Around(L.Callback):
    """Calls functions before each step, between its rollouts and its update, and (with the module) after it."""

    def __init__(self, before: Callable[[], None], between: Callable[[], None], after: Callable[[SearchRL], None]) -> None:
        self.before, self.between, self.after = before, between, after

    def on_fit_start(self, trainer: L.Trainer, module: SearchRL) -> None:
        learn = module.learner.learn

        def learned(*args: Any) -> Any:
            self.between()
            return learn(*args)

        module.learner.learn = learned

    def on_train_batch_start(self, trainer: L.Trainer, module: SearchRL, *_: object) -> None:
        self.before()

    def on_train_batch_end(self, trainer: L.Trainer, module: SearchRL, *_: object) -> None:
        self.after(module)
