"""BM25 over a corpus, by bm25s: scores computed once into a sparse matrix that is opened memory-mapped.

Words are letters and digits in any script, case-folded and without accents, English possessives cut, Han and kana by character; English stop
words are left out and the rest is stemmed (Porter2). The formula is Lucene's (Kamphuis et al., 2020), over title and text:
    score(q, d) = sum over words w of q of ln(1 + (N - n_w + 0.5) / (n_w + 0.5)) * f_wd / (f_wd + k1 (1 - b + b |d| / mean |d|))
"""

from __future__ import annotations

import re
import time
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from ssrl.errors import UserError
from ssrl.retrieval.corpus import Corpus
from ssrl.retrieval.store import built
from ssrl.types import Document, SearchResult, SearchStatus

_UNSPACED = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+")
_POSSESSIVE = re.compile("['\u2019]s\\b")
_ACCENT = re.compile("[\u0300-\u036f]")
_STOP = frozenset(STOPWORDS_EN)
WORDS = 1  # to be raised when `stems` changes, so that indexes are built anew


def stems(text: str) -> list[str]:
    """The words of a passage or query as the index knows them."""
    folded = text.casefold()
    if not folded.isascii():
        folded = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFKD", folded)))
    words = [word for word in _WORD.findall(_POSSESSIVE.sub("", folded)) if word not in _STOP]
    return Stemmer.Stemmer("english").stemWords(words)


class Bm25:
    """A retriever by words. It is fast, needs no model, and finds names better than meanings."""

    hint = "name a corpus that can be read with retriever.corpus=…"

    def __init__(self, corpus: Corpus, index: str | Path | None = None, k1: float = 0.9, b: float = 0.4) -> None:
        """k1 and b: the values of the published BM25 baselines (Anserini and Pyserini). index: as in `open_corpus`."""
        settings = {"k1": k1, "b": b, "words": WORDS, "bm25s": bm25s.__version__, "stemmer": Stemmer.version()}
        key = {"corpus": corpus.content, **settings}
        folder = built(index, "bm25", key, lambda folder: _build(corpus, k1, b, folder))
        self.identity = f"bm25 k1={k1:g} b={b:g} words={WORDS} corpus={corpus.content}"
        self._corpus = corpus
        self._index = bm25s.BM25.load(folder, mmap=True, show_progress=False)

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        """Passages that share a word with the query, best first, equal scores in the order of the corpus; EMPTY where none does."""
        return [self._retrieve(query, topk) for query in queries]

    def _retrieve(self, query: str, topk: int) -> SearchResult:
        begin = time.perf_counter()
        ids = self._index.get_tokens_ids(stems(query))
        documents: tuple[Document, ...] = ()
        if ids:
            scores = self._index.get_scores_from_ids(ids)
            found = best(scores, topk)
            documents = self._corpus.documents(found, scores[found])
        status = SearchStatus.OK if documents else SearchStatus.EMPTY
        return SearchResult(status=status, documents=documents, latency_s=time.perf_counter() - begin)


def best(scores: np.ndarray, topk: int) -> np.ndarray:
    """The positions of the `topk` highest scores above 0, best first; of equal ones the earlier first."""
    found = np.flatnonzero(scores > 0)
    if len(found) > topk:
        least = np.partition(scores[found], -topk)[-topk]
        found = found[scores[found] >= least]
    return found[np.argsort(-scores[found], kind="stable")[:topk]]


class _Words(Sequence[Sequence[int]]):
    """The word numbers of every passage in one flat array: 4 bytes a word, so that millions of passages fit into memory."""

    def __init__(self, corpus: Corpus) -> None:
        self.vocabulary: dict[str, int] = {}
        self._flat, self._ends = array("i"), array("q", [0])
        for document in corpus:
            self._flat.extend(self.vocabulary.setdefault(stem, len(self.vocabulary)) for stem in stems(f"{document.title} {document.text}"))
            self._ends.append(len(self._flat))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> array:
        return self._flat[self._ends[index] : self._ends[index + 1]]

    def __iter__(self) -> Iterator[array]:
        return map(self.__getitem__, range(len(self)))


def _build(corpus: Corpus, k1: float, b: float, folder: Path) -> None:
    words = _Words(corpus)
    if not words.vocabulary:
        raise UserError(f"{corpus.path} holds no word that BM25 could find: name another corpus with retriever.corpus=…")
    index = bm25s.BM25(k1=k1, b=b, method="lucene")
    index.scores = index.build_index_from_ids(range(len(words.vocabulary)), words, show_progress=False)
    index.vocab_dict = words.vocabulary
    index.save(folder, show_progress=False)
