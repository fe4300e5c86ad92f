"""Queries a second and recall@3 of gold-bearing passages, BM25 and dense, with the questions themselves as queries.

    python benchmarks/retrieval.py                                          # the bundled corpus and questions
    python benchmarks/retrieval.py --corpus corpus.jsonl --questions dev.jsonl --limit 200
    python benchmarks/retrieval.py --retrievers dense hnsw --encoder intfloat/e5-base-v2 --query-prefix "query: " --passage-prefix "passage: "

A passage bears gold where its title or text holds an accepted answer as whole words, after the SQuAD normaliser; questions whose answer is
yes or no are left out, and so are those whose answer no passage of the corpus holds (their share is printed). Queries a second are medians
of several passes over all questions, in batches and one by one, with [least, most]. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ssrl.data.fingerprint import fingerprint
from ssrl.data.sources import BUNDLED, bundled_file
from ssrl.retrieval.bm25 import Bm25
from ssrl.retrieval.corpus import Corpus, open_corpus
from ssrl.retrieval.dense import Dense, Encoder
from ssrl.retrieval.rerank import Rerank
from ssrl.text.normalize import comparable
from ssrl.types import Retriever

TOPK = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="bundled:passages")
    parser.add_argument(
        "--questions", nargs="+", type=Path, default=[BUNDLED / f"{split}.jsonl" for split in ("train", "validation", "test")]
    )
    parser.add_argument("--retrievers", nargs="+", default=["bm25", "dense", "hnsw"], choices=["bm25", "dense", "hnsw"])
    parser.add_argument("--encoder", default="package:minilm")
    parser.add_argument("--query-prefix", default="")
    parser.add_argument("--passage-prefix", default="")
    parser.add_argument("--rerank", help="a cross-encoder: a second stage over 10 candidates")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, help="the first so many questions")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    arguments = parser.parse_args()

    place = bundled_file(arguments.corpus) or arguments.corpus
    rows = [json.loads(line) for path in arguments.questions for line in path.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as index:
        corpus = open_corpus(place, fingerprint(arguments.corpus), index)
        asked, answerable = answerable_rows(rows[: arguments.limit], corpus)
        print(f"{len(corpus)} passages, {len(asked)} questions; the corpus holds an answer to {len(answerable)} of them\n")
        print("| retriever | build s | queries/s, batches | queries/s, one by one | recall@3 |\n|---|---|---|---|---|")
        families = {}
        for name in arguments.retrievers:
            begin = time.perf_counter()
            retriever = build(name, corpus, index, arguments)
            built = time.perf_counter() - begin
            queries = [row["question"] for row in answerable]
            batched = [rate(retriever, queries, arguments.batch) for _ in range(arguments.passes)]
            single = [rate(retriever, queries, 1) for _ in range(arguments.passes)]
            families[name] = recalls(retriever, answerable)
            cells = [f"{built:.2f}", show(batched), show(single), f"{mean(sum(families[name].values(), [])):.3f}"]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    names = sorted({family for found in families.values() for family in found})
    if len(names) > 1:
        print(f"\n| recall@3 | questions | {' | '.join(families)} |\n|---|---|{'---|' * len(families)}")
        for family in names:
            found = [families[name][family] for name in families]
            print(f"| {family} | {len(found[0])} | {' | '.join(f'{mean(hits):.3f}' for hits in found)} |")


def build(name: str, corpus: Corpus, index: str, arguments: argparse.Namespace) -> Retriever:
    if name == "bm25":
        retriever: Retriever = Bm25(corpus, index)
    else:
        encoder = Encoder(arguments.encoder, device=arguments.device)
        search = "hnsw" if name == "hnsw" else "flat"
        retriever = Dense(corpus, encoder, arguments.query_prefix, arguments.passage_prefix, search, index)
    return Rerank(retriever, arguments.rerank, device=arguments.device) if arguments.rerank else retriever


def words(text: str) -> str:
    return f" {comparable(text, 'squad')} "


def answerable_rows(rows: list[dict], corpus: Corpus) -> tuple[list[dict], list[dict]]:
    """Questions with an answer other than yes and no, and those of them whose answer stands somewhere in the corpus."""
    text = "\n".join(words(f"{document.title} {document.text}") for document in corpus)
    asked = [row for row in rows if not {answer.lower() for answer in row["golden_answers"]} & {"yes", "no"}]
    return asked, [row for row in asked if any(words(answer) in text for answer in row["golden_answers"])]


def batches(queries: list[str], size: int) -> Iterator[list[str]]:
    return (queries[start : start + size] for start in range(0, len(queries), size))


def rate(retriever: Retriever, queries: list[str], size: int) -> float:
    begin = time.perf_counter()
    for some in batches(queries, size):
        retriever.retrieve(some, TOPK)
    return len(queries) / (time.perf_counter() - begin)


def recalls(retriever: Retriever, rows: list[dict]) -> dict[str, list[bool]]:
    """By family of the question, whether one of its three passages holds an answer."""
    found: dict[str, list[bool]] = defaultdict(list)
    results = retriever.retrieve([row["question"] for row in rows], TOPK)
    for row, result in zip(rows, results, strict=True):
        texts = [words(f"{document.title} {document.text}") for document in result.documents]
        found[row.get("family", "all")].append(any(words(answer) in text for answer in row["golden_answers"] for text in texts))
    return found


def mean(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def show(rates: list[float]) -> str:
    return f"{statistics.median(rates):.0f} [{min(rates):.0f}, {max(rates):.0f}]"


if __name__ == "__main__":
    main()
