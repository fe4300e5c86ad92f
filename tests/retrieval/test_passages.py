"""The bundled corpus: current, enough for every bundled question, and neither a leak nor a short cut through two hops."""

import json
import re
from collections import defaultdict

import pytest

from ssrl.data.bundled import make, make_passages, statements
from ssrl.data.sources import BUNDLED
from ssrl.retrieval.bm25 import Bm25

PASSAGES = [json.loads(line) for line in (BUNDLED / "passages.jsonl").read_text(encoding="utf-8").splitlines()]
TEXTS = [f"{row['title']}\n{row['contents']}" for row in PASSAGES]
QUESTIONS = [
    json.loads(line)
    for split in ("train", "validation", "test")
    for line in (BUNDLED / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
]
TWO_HOP = [row for row in QUESTIONS if row["family"] == "two_hop"]


def holds(text, name):
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, 0 if len(name) <= make.SHORT else re.IGNORECASE)


def bears_gold(documents, answers):
    return any(holds(f"{document.title}\n{document.text}", answer) for document in documents for answer in answers)


def test_the_file_is_what_make_passages_writes():
    assert (BUNDLED / "passages.jsonl").read_text(encoding="utf-8") == make_passages.build(), (
        "run python -m ssrl.data.bundled.make_passages"
    )


def test_passages_are_short_and_their_ids_and_titles_with_text_unique():
    assert 800 <= len(PASSAGES) <= 1500
    assert len({row["id"] for row in PASSAGES}) == len(set(TEXTS)) == len(PASSAGES)
    for row in PASSAGES:
        assert set(row) == {"id", "title", "contents"} and row["title"][0] == row["title"][0].upper()
        assert re.fullmatch(r"[A-Z0-9ÁÓ].*\.", row["contents"]) and ".." not in row["contents"] and "?" not in row["contents"], row
        assert 1 <= len(re.findall(r"\.(?= [A-Z]|$)", row["contents"])) <= 12 and len(row["contents"]) < 400


def test_one_hop_questions_find_their_answer_in_three_passages(bundled, index):
    retriever, found = Bm25(bundled, index), defaultdict(list)
    for row, result in zip(QUESTIONS, retriever.retrieve([row["question"] for row in QUESTIONS], 3), strict=True):
        found[row["family"]].append(bool(bears_gold(result.documents, row["golden_answers"])))
    del found["two_hop"]
    assert all(sum(hits) / len(hits) >= 0.9 for hits in found.values()), {family: sum(hits) / len(hits) for family, hits in found.items()}


def test_no_passage_holds_both_ends_of_a_two_hop_question():
    for row in TWO_HOP:
        named = [name for name in row["entities"] if holds(row["question"], name)]
        assert named, row
        for text in TEXTS:
            both = any(holds(text, name) for name in named) and any(holds(text, answer) for answer in row["golden_answers"])
            assert not both, (row["question"], text)


def test_two_hop_questions_are_answered_by_two_searches(bundled, index):
    """The first, of the question, finds a passage with the entity between; the second asks of that entity."""
    retriever, solved = Bm25(bundled, index), 0
    countries = {country[0] for country, *_ in make.table("countries")}
    asks = {
        "continent": "On which continent is {}?",
        "currency": "currency of {}",
        "language": "main language of {}",
        "capital": "capital of {}",
    }
    for row in TWO_HOP:
        wanted = next(word for word in asks if re.match(rf"(On which|What is the)( main)? {word}", row["question"]))
        (first,) = retriever.retrieve([row["question"]], 3)
        between = {country for country in countries for document in first.documents if holds(document.text, country)}
        seconds = retriever.retrieve(
            [asks[wanted].format(country) for country in sorted(between & set(row["entities"] + [bridge(row)]))], 3
        )
        solved += any(bears_gold(result.documents, row["golden_answers"]) for result in seconds)
    assert solved == len(TWO_HOP)


def bridge(row):
    """The country that a two-hop question leads through."""
    return next(country[0] for country, capital, *_ in make.table("countries") if {*country, *capital} & set(row["entities"]))


def test_no_passage_repeats_a_question():
    plain = [" ".join(re.findall(r"\w+", text.lower())) for text in TEXTS]
    for row in QUESTIONS:
        question = " ".join(re.findall(r"\w+", row["question"].lower()))
        assert not any(question in text for text in plain)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            statements.about_year("In which year did the Titanic sink?", ["1912"]),
            {"The Titanic sank in 1912.", "In 1912, the Titanic sank."},
        ),
        (
            statements.about_year("In which year did Mount Vesuvius bury Pompeii?", ["79"]),
            {"In the year 79, Mount Vesuvius buried Pompeii."},
        ),
        (statements.about_count("How many edges does a cube have?", ["12", "twelve"]), {"A cube has twelve edges."}),
        (statements.about_person("Who painted Guernica?", "Pablo Picasso")[1], {"Pablo Picasso painted Guernica."}),
        (statements.also("Neil Armstrong was the first.", "Neil Armstrong"), {"Neil Armstrong was also the first."}),
        (statements.passive("Who painted Guernica?", "Pablo Picasso"), {("topic", "Guernica", "Guernica was painted by Pablo Picasso.")}),
        (statements.passive("Who founded Apple together with Steve Wozniak?", "Steve Jobs"), {None}),
        (statements.listed(["a", "b", "c"], "or"), {"a, b or c"}),
    ],
)
def test_facts_become_sentences(made, expected):
    assert made in expected


def test_a_question_that_fits_no_pattern_is_an_error():
    for state in (statements.about_year, statements.about_count):
        with pytest.raises(ValueError, match="no pattern fits"):
            state("Why?", ["because"])
