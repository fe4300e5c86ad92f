"""From a name, a file or a hub data set to a list of questions, with counts of what was left out on the way."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ssrl.data.columns import DEFAULT_COLUMNS, Columns, Place, answer_list, pick, question_text
from ssrl.data.files import Row, read_rows
from ssrl.data.hub import read_hub
from ssrl.data.sources import HUB, find_file
from ssrl.errors import UserError
from ssrl.types import Question, seed_for


@dataclass(frozen=True, slots=True)
class Loaded:
    """Questions in the order of their file, and for the manifest: `rows` read, `kept`, `duplicates` merged, `cleaned` (text changed), `limited` away."""

    questions: list[Question]
    counts: dict[str, int]
    file: Path | None  # that was read; None: the hub was asked


def load_questions(
    source: str,
    *,
    path: str,
    subset: str | None = None,
    split: str | None = None,
    local: str | None = None,
    root: str | None = None,
    columns: Columns = DEFAULT_COLUMNS,
    limit: int | None = None,
    limit_seed: int = 0,
    key: str | None = None,
) -> Loaded:
    """One set of questions; the arguments are the keys of `data.train.NAME` and its like, `root` is `data.root`, `source` is NAME.

    Rows with the same question (letter case, blanks and a final question mark aside) become one with the answers of all. `limit`
    keeps the questions whose hash with `limit_seed` is smallest, so the draw depends on ids and not on the file's order. `key` is the
    set's place in the configuration, which errors name. UserError: one sentence for every way in which a file can be wrong.
    """
    key = key or f"data.test.{source}"
    if limit is not None and limit < 1:
        raise UserError(f"{key}.limit={limit} keeps no question: give a number from 1 up, or null for all")
    file = find_file(path, local, root, key)
    rows = read_hub(path.removeprefix(HUB), subset, split, key) if file is None else read_rows(file)
    name = path if file is None else str(file)
    questions, cleaned = parse(rows, source, columns, name, key)
    if not questions:
        raise UserError(f"data file {name} is empty: expected one question a row")
    unique = merge(questions)
    kept = draw(unique, limit, limit_seed)
    counts = {
        "rows": len(questions),
        "kept": len(kept),
        "duplicates": len(questions) - len(unique),
        "cleaned": cleaned,
        "limited": len(unique) - len(kept),
    }
    return Loaded(kept, counts, file)


def parse(rows: Iterable[Row], source: str, columns: Columns, file: str, key: str) -> tuple[list[Question], int]:
    """Questions one a row, and how many rows had text or answers that cleaning changed. UserError: a bad row, or an id that occurs twice."""
    questions: list[Question] = []
    seen: dict[str, str] = {}
    cleaned = 0
    for number, (label, row) in enumerate(rows, 1):
        place = Place(file, label, key)
        text, answers = pick(row, columns.question, "question", place), pick(row, columns.answers, "answers", place)
        question = Question(
            id=row_id(row, columns.id, number, place),
            text=question_text(text, place),
            answers=answer_list(answers, place),
            source=source,
            extra={name: value for name, value in row.items() if name not in (columns.id, columns.question, columns.answers)},
        )
        if question.id in seen:
            raise place.error(f"repeats the id {question.id!r} of {seen[question.id]}", f"ids must be unique ({key}.columns.id=null makes new ones)")
        seen[question.id] = label
        cleaned += question.text != text or question.answers != as_read(answers)
        questions.append(question)
    return questions, cleaned


def row_id(row: dict[str, Any], column: str | None, number: int, place: Place) -> str:
    if column is None:
        return str(number)
    value = pick(row, column, "id", place)
    if value is None or not str(value).strip():
        raise place.error("has an empty id", f"give it one, or make ids from the row number with {place.key}.columns.id=null")
    return str(value)


def as_read(answers: Any) -> tuple[str, ...]:
    """The answers before cleaning, for comparison."""
    if hasattr(answers, "tolist"):
        answers = answers.tolist()
    return tuple(str(answer) for answer in (answers if isinstance(answers, (list, tuple)) else [answers]))


def merge(questions: list[Question]) -> list[Question]:
    """The first of each question, with the answers of its repetitions added."""
    merged: dict[str, Question] = {}
    for question in questions:
        text = " ".join(unicodedata.normalize("NFC", question.text).casefold().rstrip("? ").split())
        first = merged.setdefault(text, question)
        if first is not question:
            merged[text] = replace(first, answers=tuple(dict.fromkeys(first.answers + question.answers)))
    return list(merged.values())


def draw(questions: list[Question], limit: int | None, seed: int) -> list[Question]:
    """`limit` questions at random, in their order."""
    if limit is None or limit >= len(questions):
        return questions
    chosen = {one.id for one in sorted(questions, key=lambda one: (seed_for(seed, "limit", one.id), one.id))[:limit]}
    return [one for one in questions if one.id in chosen]
