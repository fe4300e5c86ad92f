"""The second stage: a tiny cross-encoder with random weights reorders what BM25 finds."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

from ssrl.errors import UserError
from ssrl.retrieval.bm25 import Bm25
from ssrl.retrieval.corpus import contents
from ssrl.retrieval.models import locate
from ssrl.retrieval.rerank import Rerank
from ssrl.types import Document, SearchResult, SearchStatus

QUERIES = ("capital of France", "Who painted the Sunflowers?", "xyzzy", "a country in Asia")


def cross_encoder(folder, outputs=1):
    tokenizer = AutoTokenizer.from_pretrained(locate("package:minilm", "retriever.rerank"))
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, num_labels=outputs, initializer_range=0.5)  # fmt: skip
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.set_num_threads(1)
    return cross_encoder(tmp_path_factory.mktemp("cross"))


def slow_score(folder, query, document):
    """One pair at a time, without padding."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return network(**tokenizer(query, contents(document), truncation=True, max_length=64, return_tensors="pt")).logits.item()


def test_the_order_is_that_of_slow_scores_over_the_candidates(bundled, index, model):
    first = Bm25(bundled, index)
    results = Rerank(first, model, candidates=8, device="cpu", batch=3).retrieve(QUERIES, 3)
    for query, result, found in zip(QUERIES, results, first.retrieve(QUERIES, 8), strict=True):
        scored = sorted(((slow_score(model, query, document), document) for document in found.documents), key=lambda pair: -pair[0])[:3]
        assert [document.id for document in result.documents] == [document.id for _, document in scored]
        assert [document.score for document in result.documents] == pytest.approx([score for score, _ in scored], abs=1e-5)
        assert result.status is found.status


class Fixed:
    identity, hint = "fixed", "start it"

    def __init__(self, *results):
        self.results, self.asked = list(results), []

    def retrieve(self, queries, topk):
        self.asked.append(topk)
        return self.results


def test_failures_pass_through_and_equal_scores_keep_their_order(model):
    same = tuple(Document(id=str(number), text="the same") for number in range(6))
    failed = SearchResult(status=SearchStatus.TIMEOUT, error="late", latency_s=2.0)
    first = Fixed(failed, SearchResult(status=SearchStatus.OK, documents=same, latency_s=1.0))
    one, other = Rerank(first, model, candidates=4, device="cpu").retrieve(["a", "b"], 6)
    assert one == failed and first.asked == [6]
    assert [document.id for document in other.documents] == ["0", "1", "2", "3", "4", "5"] and other.latency_s > 1.0


def test_a_passage_of_ten_megabytes_is_cut(model):
    long = Document(text="word " * 2_000_000)
    (score,) = Rerank(Fixed(), model, device="cpu").scores([("query", long)])
    assert score == pytest.approx(slow_score(model, "query", Document(text="word " * 100)), abs=1e-5)


def test_the_identity_holds_both_stages(model):
    rerank = Rerank(Fixed(), model, candidates=7, device="cpu")
    assert "candidates=7" in rerank.identity and rerank.identity.endswith("of fixed") and rerank.hint == "start it"


def test_a_classifier_with_several_outputs_is_refused(tmp_path):
    with pytest.raises(UserError, match="has 3 outputs"):
        Rerank(Fixed(), cross_encoder(tmp_path, outputs=3), device="cpu")


def test_a_missing_model_names_the_key():
    with pytest.raises(UserError, match="retriever.rerank=/no/such"):
        Rerank(Fixed(), "/no/such", device="cpu")
