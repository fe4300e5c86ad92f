"""Dense retrieval: a transformers encoder, and inner products of unit vectors, exact or through an HNSW graph by FAISS.

The e5 conventions (FACTS 3.4) are `query_prefix="query: ", passage_prefix="passage: ", pooling="mean", max_tokens=256`. Passages are read in
the form of the Search-R1 corpora: the quoted title, a newline, the text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ssrl.errors import UserError
from ssrl.retrieval.corpus import Corpus, contents
from ssrl.retrieval.models import batches, content_of, load, pick_device
from ssrl.retrieval.store import built
from ssrl.types import Document, SearchResult, SearchStatus

_CHUNK = 2048  # passages encoded between two writes; sorted by length inside, so that little is padded
_CHARACTERS = 50  # a token; what lies beyond is not even tokenised, or one 10 MB line would take minutes
_LINKS, _BUILD, _SEARCH = 64, 128, 256  # HNSW: edges of a node (the published HNSW64), width of the search while building and later


class Encoder:
    """Texts to unit vectors in float32. Pooling `mean` (over the tokens that are no padding) or `cls` (the first token's vector)."""

    def __init__(
        self, name: str = "package:minilm", pooling: str = "mean", max_tokens: int = 256, device: str = "auto", batch: int = 64
    ) -> None:
        self.device = pick_device(device)
        self.model, self.tokenizer = load("AutoModel", name, "retriever.encoder", self.device)
        limit = getattr(self.model.config, "max_position_embeddings", max_tokens)
        if max_tokens > limit:
            raise UserError(
                f"retriever.max_tokens={max_tokens} is more than the {limit} tokens that {name} reads: type retriever.max_tokens={limit}"
            )
        self.pooling, self.max_tokens, self.batch = pooling, max_tokens, batch
        self.content = content_of(self.model, self.tokenizer)
        self._lock = Lock()
        self.width: int = self.model.config.hidden_size

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """[N, D] one unit vector a text."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        for some in batches(order, self.batch):
            vectors[some] = self._encode([texts[index][: _CHARACTERS * self.max_tokens] for index in some])
        return vectors

    def _encode(self, texts: list[str]) -> np.ndarray:
        import torch

        with self._lock:  # padding and truncation are state of the tokenizer, so two threads must not use it at once
            inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        inputs = inputs.to(self.device)
        with torch.inference_mode():
            hidden = self.model(**inputs).last_hidden_state  # [B, T, D]
            if self.pooling == "cls":
                pooled = hidden[:, 0]
            else:
                mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()


class Dense:
    """A retriever by meaning. The passages are encoded once; their vectors lie on disk and are memory-mapped."""

    hint = "name an encoder that can be loaded with retriever.encoder=…"

    def __init__(
        self,
        corpus: Corpus,
        encoder: Encoder,
        query_prefix: str = "",
        passage_prefix: str = "",
        search: str = "flat",
        index: str | Path | None = None,
    ) -> None:
        """search: `flat` compares the query with every passage, `hnsw` with few of them, found through a graph. index: as in `open_corpus`.

        FAISS builds a graph with several threads, so two builds of one may differ in a few neighbours; flat search has no such freedom.

        Raises:
            UserError: FAISS is not installed; it says what to type.
        """
        faiss = _faiss()
        settings = {"encoder": encoder.content, "pooling": encoder.pooling, "max_tokens": encoder.max_tokens, "prefix": passage_prefix}
        key = {"corpus": corpus.content, **settings, "format": 1}
        vectors = built(index, "vectors", key, lambda folder: _encode(corpus, encoder, passage_prefix, folder)) / "vectors.npy"
        self._corpus, self._encoder, self._prefix = corpus, encoder, query_prefix
        self._vectors = np.load(vectors, mmap_mode="r")  # [N, D]
        self._graph: Any = None
        if search == "hnsw":
            key |= {"links": _LINKS, "build": _BUILD, "faiss": faiss.__version__}
            folder = built(index, "hnsw", key, lambda folder: write_graph(faiss, self._vectors, folder))
            self._graph = faiss.read_index(str(folder / "graph.faiss"), faiss.IO_FLAG_MMAP_IFC)
            self._graph.hnsw.efSearch = _SEARCH
        parts = {"search": search, **settings, "query_prefix": query_prefix, "corpus": corpus.content}
        self.identity = "dense " + " ".join(f"{name}={value!r}" if "prefix" in name else f"{name}={value}" for name, value in parts.items())

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        """The nearest passages by cosine, equal ones (to 6 decimals) in the order of the corpus; EMPTY for a blank query.

        The latency is that of the whole batch.
        """
        begin = time.perf_counter()
        asked = [index for index, query in enumerate(queries) if query.strip()]
        documents: dict[int, tuple[Document, ...]] = {}
        if asked and topk > 0:
            scores, found = self._nearest(self._encoder([self._prefix + queries[index] for index in asked]), min(topk, len(self._corpus)))
            documents = {index: self._ranked(scores[row], found[row]) for row, index in enumerate(asked)}
        latency = time.perf_counter() - begin
        return [
            SearchResult(
                status=SearchStatus.OK if documents.get(index) else SearchStatus.EMPTY,
                documents=documents.get(index, ()),
                latency_s=latency,
            )
            for index in range(len(queries))
        ]

    def _nearest(self, vectors: np.ndarray, topk: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores [Q, K] and passage numbers [Q, K]; -1 where a graph found fewer."""
        if self._graph is not None:
            return self._graph.search(vectors, topk)
        faiss = _faiss()
        return faiss.knn(vectors, self._vectors, topk, faiss.METRIC_INNER_PRODUCT)

    def _ranked(self, scores: np.ndarray, found: np.ndarray) -> tuple[Document, ...]:
        scores, found = scores[found >= 0], found[found >= 0]
        order = np.lexsort((found, -scores.round(6)))  # the last bits of a vector depend on its batch
        return self._corpus.documents(found[order], scores[order])


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise UserError("retriever=dense needs FAISS, which is not installed; type: pip install faiss-cpu") from error
    return faiss


def _encode(corpus: Corpus, encoder: Encoder, prefix: str, folder: Path) -> None:
    """Straight into a file of the final size: no more than one chunk is in memory."""
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(len(corpus), encoder.width))
    for numbers in batches(range(len(corpus)), _CHUNK):
        vectors[numbers[0] : numbers[-1] + 1] = encoder([prefix + contents(corpus[number]) for number in numbers])
    vectors.flush()


def write_graph(faiss: Any, vectors: np.ndarray, folder: Path) -> None:
    """`graph.faiss`: an HNSW graph over unit vectors [N, D], which it holds too."""
    graph = faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = _BUILD
    for start in range(0, len(vectors), 1 << 16):
        graph.add(vectors[start : start + (1 << 16)])
    faiss.write_index(graph, str(folder / "graph.faiss"))
