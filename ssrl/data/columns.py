"""From a row of any data set to the id, the question and the accepted answers."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any

from ssrl.errors import UserError


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold what; a dotted name (`answer.aliases`) reaches into a nested column."""

    id: str | None = "id"  # None: ids are made from the row number
    question: str = "question"
    answers: str = "golden_answers"


DEFAULT_COLUMNS = Columns()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands: everything that an error needs to name it and the override that mends it."""

    file: str
    row: str  # "line 3"
    key: str  # the set's place in the configuration, "data.train.mine"

    def error(self, found: str, expected: str) -> UserError:
        return UserError(f"{self.row} of {self.file} {found}: {expected}")


def pick(row: dict[str, Any], column: str, role: str, place: Place) -> Any:
    """The value of a column. UserError: the row has no such column; the error lists those that it has."""
    if column in row:
        return row[column]
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, dict) or part not in value:
            off = f" ({place.key}.columns.id=null makes ids from the row number)" if role == "id" else ""
            raise place.error(
                f"has no column {column!r}, only {', '.join(names(row)) or 'none'}",
                f"name the {role} column with {place.key}.columns.{role}=…{off}",
            )
        value = value[part]
    return value


def names(row: dict[str, Any]) -> list[str]:
    """Column names, nested ones dotted."""
    found = []
    for name, value in row.items():
        found += [f"{name}.{inner}" for inner in names(value)] if isinstance(value, dict) and value else [str(name)]
    return found


def clean(text: str) -> str:
    """The text without byte order marks, control characters (tab and line ends stay) and lone surrogates, and without outer blanks.

    Nothing else is touched, no Unicode normal form imposed: the published scores compare answers as they are, and the `unicode`
    normaliser does its own folding.
    """
    kept = (char for char in text if char in "\t\n\r" or (char != "\ufeff" and unicodedata.category(char) not in ("Cc", "Cs")))
    return "".join(kept).strip()


def question_text(value: Any, place: Place) -> str:
    if not isinstance(value, str) or not clean(value):
        raise place.error(f"has no question text but {value!r}", "every row needs a question")
    return clean(value)


def answer_list(value: Any, place: Place) -> tuple[str, ...]:
    """The accepted answers: a string, or a list or array of strings (whole numbers are spelled out); blank and repeated ones are left out.

    UserError: none is left, or one is something else.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    answers = []
    for answer in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(answer, int) and not isinstance(answer, bool):
            answer = str(answer)
        if answer is not None and not isinstance(answer, str):
            raise place.error(f"has an answer of type {type(answer).__name__}, {str(answer)[:60]}", "answers must be strings")
        answers.append(clean(answer or ""))
    unique = tuple(dict.fromkeys(answer for answer in answers if answer))
    if not unique:
        raise place.error(f"has no answer but {value!r}", f"every question needs one (the column is chosen with {place.key}.columns.answers=…)")
    return unique
