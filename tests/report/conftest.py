"""A run folder as a short training would leave it, written through the package's own writers."""

import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ssrl.config import Config, DataConfig, ModelConfig, PromptConfig
from ssrl.runlog.folder import RunFolder, State
from ssrl.runlog.manifest import build_manifest
from ssrl.runlog.rollouts import record
from ssrl.types import Block, Document, Question, Rollout, Score, Search, SearchResult, SearchStatus, Segment, Source, Status

FACTS = [
    ("What is the capital of Kenya?", "Nairobi"),
    ("Which element has the symbol Fe?", "iron"),
    ("Who wrote the novel Middlemarch?", "George Eliot"),
    ("What is the currency of Japan?", "yen"),
    ("On which continent does Peru lie?", "South America"),
    ("What is the capital of the country whose currency is the yen?", "Tokyo"),
]


def make_rollout(question: Question, sample: int, skill: float, chance: random.Random, engine: bool = False) -> tuple[Rollout, list[str]]:
    """One rollout whose answer is right with probability `skill`, and its tokens' texts."""
    right = chance.random() < skill
    answer = question.answers[0] if right else chance.choice(["London", "gold", "Jane Austen", "the dollar"])
    searching = chance.random() < 0.5 + skill / 2
    pieces = [(Source.TEMPLATE, Block.THINK, "<think>")]
    pieces += [(Source.POLICY, Block.THINK, f" I need to find out: {question.text} Let me search for it.\n</think>")]
    pieces += [(Source.POLICY, Block.OUTSIDE, "\n")]
    query = question.text.rstrip("?").lower()
    found = f"{answer} is well known in this respect; see also the list of related entries."
    if searching:
        writer = Source.ENGINE if engine else Source.POLICY
        pieces += [(Source.POLICY, Block.SEARCH, f"<search> {query} </search>")]
        pieces += [(writer, Block.INFORMATION, f"\n<information> {found} </information>"), (Source.POLICY, Block.OUTSIDE, "\n")]
    pieces += [(Source.POLICY, Block.ANSWER, f"<answer> {answer} </answer>"), (Source.POLICY, Block.OUTSIDE, "<|im_end|>")]
    texts, sources, blocks = [], [], []
    for source, block, text in pieces:
        for token in re.findall(r"<\|im_end\|>|</?|>|\s?\w{1,6}|\s?[^\w\s<>]|\s", text):
            texts.append(token)
            sources.append(source)
            blocks.append(block)
    count = len(texts)
    after_engine = engine and searching
    information_end = max((index for index in range(count) if blocks[index] is Block.INFORMATION), default=count)
    documents = (Document(text=found, title=answer, id="7", score=12.5),)
    result = SearchResult(status=SearchStatus.OK, documents=documents, latency_s=0.12) if engine else None
    em, form = float(right), 1.0 if searching else 0.5
    rollout = Rollout(
        question=question,
        group=question.id,
        sample=sample,
        prompt_ids=tuple(range(60)),
        ids=tuple(range(count)),
        sources=tuple(sources),
        blocks=tuple(blocks),
        turns=tuple(int(after_engine and index > information_end) for index in range(count)),
        logprobs=tuple(-chance.expovariate(2.0) if source is Source.POLICY else math.nan for source in sources),
        trained=tuple(source is Source.POLICY and block is not Block.INFORMATION for source, block in zip(sources, blocks, strict=True)),
        segments=tuple(Segment(source=source, text=text) for source, _, text in pieces),
        status=Status.ANSWERED,
        searches=(Search(query=query, result=result),) if searching else (),
        score=Score(total=0.8 * em + 0.2 * form, parts={"em": em, "format": form}, answer=answer),
    )
    return rollout, texts


def write_run(path: Path, steps: int = 40, seed: int = 0, engine: bool = False, hostile: str = "") -> RunFolder:
    """A finished run of `steps` steps; `hostile` text is put into question, gold, query, document, token and metric name."""
    chance = random.Random(seed)
    folder = RunFolder(path)
    questions = [
        Question(id=f"q{index}", text=text + hostile, answers=(gold, gold + hostile) if hostile else (gold,), source="bundled")
        for index, (text, gold) in enumerate(FACTS)
    ]
    config = Config(
        recipe="quickstart",
        model=ModelConfig(name="smollm2-135m", path="package:smollm2-135m"),
        data=DataConfig(name="bundled"),
        prompt=PromptConfig(name="quickstart" + hostile, template="{question}"),
    )
    with folder.claim(), folder.tracked("python -m ssrl seed=0" + hostile):
        folder.write_manifest(build_manifest(config, seeds={"run": seed}, data={"bundled": {"train": 480}}, engine={"name": "fullsim"}))
        for step in range(steps + 1):
            skill = 0.15 + 0.6 * (1 - math.exp(-step / (0.4 * steps)))
            if step:
                folder.append_metrics(_training_row(step, skill, chance) | ({f"train/{hostile}": 1.0} if hostile else {}))
            if step % 8 == 0 or step == steps:
                folder.append_metrics(
                    {"step": step, "val/bundled/em": skill + chance.gauss(0, 0.03), "val/bundled/format": min(1, 0.3 + skill)}
                )
                folder.rollouts.append("val", step, [_record(question, 0, step, skill, chance, engine, hostile) for question in questions])
            if step:
                folder.set_status(State.RUNNING, step=step)
                samples = [_record(question, k, step, skill, chance, engine, hostile) for question in questions for k in range(8)]
                folder.rollouts.append("train", step, samples)
        folder.write_summary(SUMMARY)
    return folder


SUMMARY = {
    "before": {
        "test/bundled/em": 0.40,
        "test/bundled/pass@1": 0.161,
        "test/bundled/format": 0.18,
        "test/bundled/searches": 1.02,
        "test/bundled/response_tokens": 61.3,
    },
    "after": {
        "test/bundled/em": 0.66,
        "test/bundled/pass@1": 0.552,
        "test/bundled/format": 0.99,
        "test/bundled/searches": 1.0,
        "test/bundled/response_tokens": 54.8,
    },
    "best_step": 32,
    "test_sets": ["bundled"],
    "counts": {"train": 480, "val": 60, "test": 120},
}


def _training_row(step: int, skill: float, chance: random.Random) -> dict[str, float]:
    return {
        "step": step,
        "time": 17.0 * step,
        "train/reward": 0.8 * skill + 0.2 * min(1, 0.3 + skill) + chance.gauss(0, 0.04),
        "train/em": skill + chance.gauss(0, 0.05),
        "train/format": min(1.0, 0.3 + skill + chance.gauss(0, 0.03)),
        "train/searches": 1.05 + chance.gauss(0, 0.05),
        "train/response_tokens": 62 - 8 * skill + chance.gauss(0, 2),
        "train/entropy": 0.9 * math.exp(-step / 60) + chance.gauss(0, 0.02),
        "loss/policy": chance.gauss(0, 0.01),
        "loss/kl": 0.0004 * step,
        "loss/grad_norm": 0.8 + chance.gauss(0, 0.1),
        "time/generate_s": 9.1,
        "time/update_s": 7.2,
        "time/tokens_per_s": 410 + chance.gauss(0, 20),
    }


def _record(question: Question, sample: int, step: int, skill: float, chance: random.Random, engine: bool, hostile: str) -> dict:
    rollout, texts = make_rollout(question, sample, skill, chance, engine)
    texts[3] += hostile
    item = record(rollout, texts, step, advantage=rollout.score.total - 0.5)
    if hostile:
        item["answer"] += hostile
        item["parts"][hostile] = 1.0
        for search in item["searches"]:
            search["query"] += hostile
            for document in (search["result"] or {"documents": []})["documents"]:
                document["text"] += hostile
    return item


@pytest.fixture
def make_run() -> Callable[..., RunFolder]:
    return write_run
