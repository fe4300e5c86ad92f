"""What each engine costs and finds, on one policy: quality per rollout, and wall time of a training step.

    python benchmarks/engines.py                                                   # 64 bundled test questions, bundled passages
    python benchmarks/engines.py --questions questions.jsonl --corpus corpus.jsonl # questions and passages of one's own

The first table asks every question once, greedily. The second trains with learning rate 0, so that all steps have the same policy, and
takes the engines in turn; its ratios are medians of the rounds' ratios to full-sim. Recipe: experiment=quickstart_search, the quickstart's
budgets with room for documents. The simulator is the small model itself in this process (simulator=local) unless overrides say otherwise.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from dataclasses import replace

import lightning as L
from omegaconf import OmegaConf

from ssrl.compose import Composer
from ssrl.config import Config
from ssrl.overrides import rewrite
from ssrl.policy.hardware import determinism
from ssrl.policy.load import LoadedModel
from ssrl.tasks.build import build_agent, build_policy
from ssrl.tasks.sources import load_sources
from ssrl.training.agent import Agent
from ssrl.training.data import QuestionData
from ssrl.training.evaluate import evaluate
from ssrl.training.module import SearchRL
from ssrl.types import Question, Sampling

ENGINES = {
    "none": ["engine=none", "experiment=quickstart_none"],
    "fullsim": ["engine=fullsim"],
    "semireal": ["engine=semireal"],
    "fullreal": ["engine=fullreal"],
    "sim2real, k=1": ["engine=sim2real", "engine.k=1"],
    "sim2real, all": ["engine=sim2real", "engine.k=all"],
    "entropy": ["engine=entropy"],
}
TIMED = ("fullsim", "semireal", "fullreal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", help="JSONL of {id, question, golden_answers}; default: the bundled test questions")
    parser.add_argument("--corpus", help="JSONL of {id, title, contents}; default: the bundled passages")
    parser.add_argument("--count", type=int, default=64, help="questions of the first table")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES, help="rows of the first table")
    parser.add_argument("--rounds", type=int, default=3, help="training steps of each engine in the second table; 0: leave it out")
    parser.add_argument("overrides", nargs="*", help="of the configuration, for every engine: simulator=openai, model=…")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    configs = {name: compose([*words, *arguments.overrides], arguments) for name, words in ENGINES.items()}
    loaded = build_policy(configs["fullsim"])
    agents = {name: build_agent(configs[name], loaded) for name in dict.fromkeys([*arguments.engines, *(TIMED if arguments.rounds else ())])}
    questions = load_sources(configs["fullsim"], ("test",)).test["asked"][: arguments.count]
    print(f"{len(questions)} questions, greedy\n\n| engine | EM | cover EM | searches | answered by the engine | left to the policy | s / rollout |\n|---|---|---|---|---|---|---|")
    for name in arguments.engines:
        print(quality(name, agents[name], questions), flush=True)
    if arguments.rounds:
        print("\n| engine | generate s | update s | step s | ratio to full-sim |\n|---|---|---|---|---|")
        for row in steps(configs, agents, loaded, arguments.rounds):
            print(row, flush=True)


def compose(words: list[str], arguments: argparse.Namespace) -> Config:
    """The configuration of one engine; the questions are `data.test.asked`."""
    composer = Composer(None, "config")
    if not any(word.startswith("experiment=") for word in words):
        words = [*words, "experiment=quickstart_search"]
    words = [*words, f"data.test.asked.path={arguments.questions or 'bundled:test'}", "train.lr=0.0"]
    if arguments.questions:
        words.append("data.test.asked.columns.answers=golden_answers")
    if arguments.corpus:
        words.append(f"retriever.corpus={arguments.corpus}")
    (config,) = composer.jobs(rewrite(words, composer.defaults), False)
    return OmegaConf.to_object(config)


def quality(name: str, agent: Agent, questions: list[Question]) -> str:
    started = time.perf_counter()
    found, rollouts = evaluate(agent, questions, "x", sampling=Sampling(temperature=0.0))
    seconds = (time.perf_counter() - started) / len(rollouts)
    real, saved = found.get("x/engine/real_searches", 0.0), found.get("x/engine/saved_frac")
    left = "" if saved is None else f"{saved:.0%}"
    return f"| {name} | {found['x/em']:.3f} | {found['x/cover_em']:.3f} | {found['x/searches']:.2f} | {real:.2f} | {left} | {seconds:.2f} |"


def steps(configs: dict[str, Config], agents: dict[str, Agent], loaded: LoadedModel, rounds: int) -> list[str]:
    """Rows of the second table: medians and [least, most] over the rounds, after one to warm up."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in TIMED}
    for number in range(rounds + 1):
        for name in TIMED:
            config = replace(configs[name], seed=number)
            module = SearchRL(config, agents[name], None)
            trainer = L.Trainer(
                accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                enable_model_summary=False, use_distributed_sampler=False, deterministic=determinism(config.trainer.deterministic))  # fmt: skip
            questions = load_sources(config, ("train",)).train
            trainer.fit(module, datamodule=QuestionData(questions, seed=number, steps=1, size=config.train.questions))
            if number:
                taken[name].append(module.last.metrics)
    rows = []
    for name in TIMED:
        ratios = [mine["time/step_s"] / base["time/step_s"] for mine, base in zip(taken[name], taken["fullsim"], strict=True)]
        cells = [show([metrics[f"time/{part}"] for metrics in taken[name]]) for part in ("generate_s", "update_s", "step_s")]
        rows.append(f"| {name} | {' | '.join(cells)} | {show(ratios)} |")
    return rows


def show(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


if __name__ == "__main__":
    main()
