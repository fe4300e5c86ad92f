"""The order in which questions are asked: endless, seeded, and resumable from one number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ssrl.types import Question, seed_for


@dataclass(frozen=True, slots=True)
class Draw:
    """One question of the stream. A question comes once an epoch, so (question, epoch) names a draw; so does the position alone."""

    question: Question
    epoch: int
    position: int  # in the whole stream, from 0


class QuestionStream:
    """Every epoch is a permutation of all questions that depends on (seed, epoch) only; `cursor`, the draws so far, is the only state."""

    def __init__(self, questions: Sequence[Question], seed: int, cursor: int = 0) -> None:
        if not questions:
            raise ValueError("a stream needs at least one question")
        if cursor < 0:
            raise ValueError(f"a cursor counts draws and cannot be {cursor}")
        self.questions = questions
        self.seed = seed
        self.cursor = cursor
        self._epoch = -1
        self._order: list[int] = []

    def take(self, count: int) -> list[Draw]:
        """The next `count` draws, across the border of an epoch where need be."""
        draws = []
        for position in range(self.cursor, self.cursor + count):
            epoch, index = divmod(position, len(self.questions))
            draws.append(Draw(self.questions[self._permutation(epoch)[index]], epoch, position))
        self.cursor += count
        return draws

    def _permutation(self, epoch: int) -> list[int]:
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self.questions)))
            random.Random(seed_for(self.seed, "order", epoch)).shuffle(self._order)
        return self._order
