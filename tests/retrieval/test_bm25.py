"""BM25: scores by the formula, ties, words of any script, and the real bundled corpus."""

import math
from collections import Counter

import numpy as np
import pytest

from ssrl.errors import UserError
from ssrl.retrieval.bm25 import Bm25, best, stems
from ssrl.types import SearchStatus

QUERIES = ("capital of France", "Who painted the Sunflowers?", "symbol Cu", "a planet with moons", "euro euro currency")


def slow_scores(query, documents, k1, b):
    """The formula word by word in double precision."""
    lengths = [sum(document.values()) for document in documents]
    mean = sum(lengths) / len(lengths)
    scores = [0.0] * len(documents)
    for word in stems(query):
        having = sum(word in document for document in documents)
        for i, document in enumerate(documents):
            if document[word]:
                idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
                scores[i] += idf * document[word] / (document[word] + k1 * (1 - b + b * lengths[i] / mean))
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75)])
def test_scores_and_order_are_those_of_the_formula(bundled, index, k1, b):
    documents = [Counter(stems(f"{document.title} {document.text}")) for document in bundled]
    places = {document.id: place for place, document in enumerate(bundled)}
    for query, result in zip(QUERIES, Bm25(bundled, index, k1, b).retrieve(QUERIES, 20), strict=True):
        expected = slow_scores(query, documents, k1, b)
        found = [places[document.id] for document in result.documents]
        assert [document.score for document in result.documents] == pytest.approx([expected[place] for place in found], rel=1e-5)
        assert sorted(expected, reverse=True)[: len(found)] == pytest.approx([expected[place] for place in found], rel=1e-5)


def test_equal_passages_come_in_the_order_of_the_corpus(corpus_of):
    corpus = corpus_of("red fish", *["blue fish"] * 50, "one more fish swims", *["blue fish"] * 50)
    result, again = Bm25(corpus, corpus.path.parent).retrieve(["blue fish", "blue"], 60)
    assert [int(document.id) for document in result.documents] == [*range(1, 51), *range(52, 62)]
    assert [int(document.id) for document in again.documents] == [*range(1, 51), *range(52, 62)]


def test_best_is_a_stable_sort_of_what_is_above_zero():
    scores = np.random.default_rng(0).integers(0, 5, 1000).astype(np.float32)
    ranked = [place for place in sorted(range(1000), key=lambda place: (-scores[place], place)) if scores[place] > 0]
    for topk in (1, 3, 500, 2000):
        assert best(scores, topk).tolist() == ranked[:topk]


@pytest.mark.parametrize("query", ["", "   ", "xyzzy plugh", "the of and", "?!…", "\u200b"])
def test_a_query_without_a_known_word_is_empty(bundled, index, query):
    (result,) = Bm25(bundled, index).retrieve([query], 3)
    assert (result.status, result.documents) == (SearchStatus.EMPTY, ())


def test_results_come_in_order_with_latency_and_at_most_topk_documents(bundled, index):
    results = Bm25(bundled, index).retrieve(["copper", "nothingness-xyz", "Oslo"], 2)
    assert [result.status for result in results] == [SearchStatus.OK, SearchStatus.EMPTY, SearchStatus.OK]
    assert "Cu" in results[0].documents[0].text and "Norway" in results[2].documents[0].text
    assert all(0 < result.latency_s < 1 and len(result.documents) <= 2 for result in results)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Bogota", "Bogotá lies high."),
        ("MALÉ", "Male is an island."),
        ("東京塔", "東京タワーは塔です"),
        ("cities", "one city"),
        ("King's", "the king"),
        ("ｆｕｌｌ", "full width"),
        ("vitamin D", "Vitamin D is made in sunlight."),
    ],
)
def test_words_meet_across_spelling(query, text):
    assert set(stems(query)) & set(stems(text)) == set(stems(query))


def test_unicode_and_a_passage_of_ten_megabytes_are_found(corpus_of):
    corpus = corpus_of("😀 smile 日本", "filler " * 100_000 + "x" * 9_300_000 + " needle", "plain")
    needle, japan = Bm25(corpus, corpus.path.parent).retrieve(["needle", "日"], 3)
    assert [document.id for document in needle.documents] == ["1"] and [document.id for document in japan.documents] == ["0"]


def test_a_corpus_without_words_is_an_error(corpus_of):
    corpus = corpus_of("the of", "…")
    with pytest.raises(UserError, match="holds no word"):
        Bm25(corpus, corpus.path.parent)


def test_the_index_is_memory_mapped_and_the_identity_names_corpus_and_settings(bundled, index):
    one, other = Bm25(bundled, index), Bm25(bundled, index, k1=1.2)
    assert isinstance(one._index.scores["data"], np.memmap) and isinstance(one._index.scores["indices"], np.memmap)
    assert bundled.content in one.identity and one.identity != other.identity == Bm25(bundled, index, k1=1.2).identity
