"""Two stages: a retriever's candidates, put into a new order by a cross-encoder that reads query and passage together (FACTS 3.4)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from ssrl.errors import UserError
from ssrl.retrieval.corpus import contents
from ssrl.retrieval.models import batches, content_of, load, pick_device
from ssrl.types import Document, Retriever, SearchResult

_CHARACTERS = 50  # a token; what lies beyond is not even tokenised


class Rerank:
    """A retriever that asks another one for more candidates than it returns. A document's score becomes the cross-encoder's logit."""

    def __init__(
        self, first: Retriever, model: str, candidates: int = 10, max_tokens: int = 512, device: str = "auto", batch: int = 32
    ) -> None:
        """model: a folder or hub id of a cross-encoder with one output, such as cross-encoder/ms-marco-MiniLM-L12-v2.

        Raises:
            UserError: it cannot be loaded, or has more than one output.
        """
        self.device = pick_device(device)
        self.model, self.tokenizer = load("AutoModelForSequenceClassification", model, "retriever.rerank", self.device)
        if self.model.config.num_labels != 1:
            raise UserError(
                f"retriever.rerank={model} has {self.model.config.num_labels} outputs: name a cross-encoder with one, the relevance"
            )
        self._first, self._candidates, self._batch = first, candidates, batch
        self._max_tokens = min(max_tokens, getattr(self.model.config, "max_position_embeddings", max_tokens))
        content = content_of(self.model, self.tokenizer)
        self.identity = f"rerank candidates={candidates} model={content} max_tokens={self._max_tokens} of {first.identity}"
        self.hint = first.hint
        self._lock = Lock()

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        """The best `topk` of the candidates; logits that agree to 5 decimals keep the first stage's order. Failures and empty results pass."""
        begin = time.perf_counter()
        results = self._first.retrieve(queries, max(self._candidates, topk))
        first_s = time.perf_counter() - begin
        pairs = [(query, document) for query, result in zip(queries, results, strict=True) for document in result.documents]
        scores = iter(self.scores(pairs))
        ranked = [sorted([replace(one, score=next(scores)) for one in result.documents], key=_descending)[:topk] for result in results]
        second_s = time.perf_counter() - begin - first_s
        return [
            replace(result, documents=tuple(documents), latency_s=result.latency_s + (second_s if documents else 0.0))
            for result, documents in zip(results, ranked, strict=True)
        ]

    def scores(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
        """The logit of each pair of query and document."""
        import torch

        logits: list[float] = []
        for some in batches(pairs, self._batch):
            queries = [query for query, _ in some]
            texts = [contents(document)[: _CHARACTERS * self._max_tokens] for _, document in some]
            with self._lock:  # padding and truncation are state of the tokenizer, so two threads must not use it at once
                inputs = self.tokenizer(queries, texts, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt")
            with torch.inference_mode():
                logits += self.model(**inputs.to(self.device)).logits[:, 0].tolist()
        return logits


def _descending(document: Document) -> float:
    return -round(document.score or 0.0, 5)  # the same pair differs in the last bits by its place in a batch
