import math
from collections.abc import Callable

import pytest

from ssrl.config import Config, DataConfig, ModelConfig, PromptConfig, QuestionsConfig
from ssrl.types import Block, Document, Question, Rollout, Score, Search, SearchResult, SearchStatus, Segment, Source, Status


@pytest.fixture
def config() -> Config:
    return Config(
        model=ModelConfig(name="tiny", path="models/a"),
        data=DataConfig(name="bundled", train={"bundled": QuestionsConfig(path="data/a.jsonl")}),
        prompt=PromptConfig(name="ssrl", template="{question}"),
    )


@pytest.fixture
def make_rollout() -> Callable[..., Rollout]:
    """`<think>` from the template, a search answered by an engine, an answer; one token a word."""

    def make(document: str = "Nairobi is the capital.") -> Rollout:
        result = SearchResult(
            status=SearchStatus.OK, documents=(Document(text=document, title="Kenya", id="1", score=2.0),), latency_s=0.25
        )
        return Rollout(
            question=Question(id="q1", text="What is the capital of Kenya?", answers=("Nairobi",), source="bundled"),
            group="q1-0",
            sample=3,
            prompt_ids=(1, 2, 3),
            ids=(10, 11, 12, 13),
            sources=(Source.TEMPLATE, Source.POLICY, Source.ENGINE, Source.POLICY),
            blocks=(Block.THINK, Block.SEARCH, Block.INFORMATION, Block.ANSWER),
            turns=(0, 0, 0, 1),
            logprobs=(math.nan, -0.123456, math.nan, -2.0),
            trained=(False, True, False, True),
            segments=(Segment(source=Source.TEMPLATE, text="<think>"),),
            status=Status.ANSWERED,
            searches=(Search(query="capital of Kenya", result=result), Search(query="own")),
            score=Score(total=0.9, parts={"em": 1.0, "format": 0.5}, answer="Nairobi"),
        )

    return make
