"""The bundled question set: current, correct where checked by hand, and without a leak between its splits."""

import json
import re
from collections import Counter, defaultdict

import pytest

from ssrl.data.bundled import make
from ssrl.data.sources import BUNDLED

SPLITS = ("train", "validation", "test")
ROWS = {split: [json.loads(line) for line in (BUNDLED / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()] for split in SPLITS}
ALL = [row for rows in ROWS.values() for row in rows]
CANDIDATES = make.candidates()
LEVELS = {key[0]: level[0] for key, level in make.table("measured")}

# Answers in these families are classes that several entities share (README.md of the set), so they may recur in another split.
CLASSES = {"animal", "continent", "count", "currency", "language", "opposite", "two_hop", "year"}

FACTS = {  # checked one by one against an atlas, a periodic table or an encyclopaedia
    "What is the capital of Australia?": "Canberra",
    "What is the capital of Kazakhstan?": "Astana",
    "What is the capital of Myanmar?": "Naypyidaw",
    "What is the capital of Tanzania?": "Dodoma",
    "What is the capital of the United States?": "Washington, D.C.",
    "What is the capital of the state of Kentucky?": "Frankfort",
    "What is the capital of the state of New York?": "Albany",
    "What is the capital of the country whose currency is the yen?": "Tokyo",
    "What is the capital of the country where you find the ancient city of Timbuktu?": "Bamako",
    "On which continent is Qatar?": "Asia",
    "What is the chemical symbol of tungsten?": "W",
    "Who wrote the novel Dead Souls?": "Nikolai Gogol",
    "Who wrote the novel Middlemarch?": "George Eliot",
    "Who discovered the neutron?": "James Chadwick",
    "Which planet has the moon Triton?": "Neptune",
    "In which year was Magna Carta sealed?": "1215",
    "In which year was the Suez Canal opened?": "1869",
    "How many keys does a standard modern piano have?": "88",
    "In which country is Angkor Wat?": "Cambodia",
    "In which country is the city of Kraków?": "Poland",
    "In which country is the city of Auckland?": "New Zealand",
    "Is a salamander a mammal, a bird, a reptile, an amphibian, a fish or an insect?": "amphibian",
    "Is a bat a mammal, a bird, a reptile, an amphibian, a fish or an insect?": "mammal",
    "What is the boiling point of water at sea level in degrees Fahrenheit?": "212",
    "What is the main gas in the air of the Earth?": "nitrogen",
    "Which organ produces insulin?": "pancreas",
    "What is the main language of the country whose capital is Vienna?": "German",
    "What is a person from the Netherlands called?": "Dutch",
    "What is the opposite of maximum?": "minimum",
    "What do you call a female horse?": "mare",
    "Who was the teacher of Alexander the Great?": "Aristotle",
}


def test_the_files_are_what_make_writes():
    for name, text in make.build().items():
        assert (BUNDLED / name).read_text(encoding="utf-8") == text, f"run python -m ssrl.data.bundled.make to renew {name}"


def test_there_are_enough_questions_in_every_split():
    sizes = {split: len(rows) for split, rows in ROWS.items()}
    assert sum(sizes.values()) >= 640 and 55 <= sizes["validation"] <= 70 and 100 <= sizes["test"] <= 140


def test_every_family_has_its_share_of_every_split():
    families = Counter(row["family"] for row in ALL)
    for split in ("validation", "test"):
        have = Counter(row["family"] for row in ROWS[split])
        for family, total in families.items():
            assert abs(have[family] - total * len(ROWS[split]) / len(ALL)) <= 3, (split, family)


def test_ids_and_questions_are_unique():
    assert len({row["id"] for row in ALL}) == len({row["question"].casefold() for row in ALL}) == len(ALL)


def test_questions_end_in_one_question_mark_and_have_answers_that_survive_normalisation():
    for row in ALL:
        assert re.fullmatch(r"[A-Z].*[^?\s]\?", row["question"]) and "  " not in row["question"]
        assert row["golden_answers"] and row["entities"]
        for answer in row["golden_answers"]:
            assert answer == answer.strip() and re.search(r"\w", re.sub(r"\b(a|an|the)\b", " ", answer.lower())), row


@pytest.mark.parametrize(("question", "answer"), FACTS.items())
def test_a_hand_checked_fact_is_right_in_the_tables(question, answer):
    [row] = [row for row in CANDIDATES if row.question == question]
    assert answer in row.answers


def test_the_set_holds_candidates_as_they_are():
    assert {row["question"] for row in ALL} <= {row.question for row in CANDIDATES}


def test_every_candidate_was_measured_once():
    assert sorted(LEVELS) == sorted(row.id for row in CANDIDATES) and set(LEVELS.values()) == {"greedy", "sampled", "no"}


def test_the_measured_model_answers_more_than_half_of_every_split():
    for split, rows in ROWS.items():
        levels = Counter(LEVELS[row["id"]] for row in rows)
        assert 0.53 <= levels["greedy"] / len(rows) <= 0.65, split
        assert 0.65 <= 1 - levels["no"] / len(rows) <= 0.78, split


def test_no_question_stands_solved_in_a_few_shot_prompt():
    assert not {row["question"] for row in ALL} & make.EXAMPLES


def test_no_entity_is_in_two_splits():
    owners = defaultdict(set)
    for split, rows in ROWS.items():
        for row in rows:
            for name in row["entities"]:
                owners[name.casefold()].add(split)
    assert {name for name, splits in owners.items() if len(splits) > 1} == set()


def test_no_question_mentions_an_entity_of_another_split():
    for split in SPLITS:
        names = sorted({name for row in ROWS[split] for name in row["entities"]}, key=len, reverse=True)
        words = [re.escape(name) for name in names if len(name) > 3]
        short = [re.escape(name) for name in names if len(name) <= 3]
        mention = re.compile(rf"(?<!\w)(?:(?i:{'|'.join(words)})|{'|'.join(short) or '(?!)'})(?!\w)")
        for other in SPLITS:
            for row in ROWS[other] if other != split else []:
                assert not mention.search(row["question"]), (split, row["question"], mention.search(row["question"]))


def test_no_answer_recurs_in_another_split_unless_it_is_a_shared_class():
    owners = defaultdict(set)
    for split, rows in ROWS.items():
        for row in rows:
            for answer in row["golden_answers"] if row["family"] not in CLASSES else []:
                owners[answer.casefold()].add(split)
    assert {answer for answer, splits in owners.items() if len(splits) > 1} == set()


def test_the_readme_counts_are_current():
    text = (BUNDLED / "README.md").read_text(encoding="utf-8")
    for family in {row["family"] for row in ALL}:
        counts = [sum(row["family"] == family for row in ROWS[split]) for split in SPLITS]
        assert f"| {family} | {counts[0]} | {counts[1]} | {counts[2]} |" in text
    assert f"| all | {' | '.join(str(len(ROWS[split])) for split in SPLITS)} |" in text


def test_the_first_questions_are_like_the_rest():
    half = len(ROWS["train"]) // 2
    first, second = Counter(row["family"] for row in ROWS["train"][:half]), Counter(row["family"] for row in ROWS["train"][half:])
    assert all(abs(first[family] - second[family]) <= 16 for family in first | second)
    known = [sum(LEVELS[row["id"]] == "greedy" for row in rows) for rows in (ROWS["train"][:half], ROWS["train"][half:])]
    assert abs(known[0] - known[1]) <= 0.1 * half
