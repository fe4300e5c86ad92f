"""The reward of a rollout: outcome_weight · outcome + format_weight · format, each found by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ssrl.errors import UserError
from ssrl.text.answers import extract_answer
from ssrl.text.format import self_search_format, ssrl_bool_format, ssrl_format
from ssrl.text.metrics import cover_em, em, f1
from ssrl.text.normalize import NORMALIZERS
from ssrl.text.tags import contents
from ssrl.text.view import scoring_text, self_written_information
from ssrl.types import Block, Rollout, Score

OUTCOMES: dict[str, Callable[[str | None, Sequence[str], str], float]] = {"em": em, "cover_em": cover_em, "f1": f1}
FORMATS: dict[str, Callable[[str], float]] = {
    "none": lambda text: 0.0,
    "ssrl": ssrl_format,
    "ssrl_bool": ssrl_bool_format,
    "self_search": self_search_format,
}


@dataclass(frozen=True, slots=True)
class Reward:
    """Scores rollouts; pure, and blind to the prompt and to the text of engines.

    The published combinations (FACTS 1.5) are em + ssrl at 0.9 and 0.1, and em + ssrl_bool at the same weights: 1, 0.9, 0.1 or 0.
    """

    outcome: str
    format: str
    outcome_weight: float
    format_weight: float
    normalizer: str = "squad"
    signed: bool = False  # the outcome counts from -1 to 1
    native_thinking: bool = False  # the model writes a thinking block of its own first, which is not scored
    engine_answers: bool = False  # an engine answers every search, so information that the policy writes itself breaks the format

    def __post_init__(self) -> None:
        for key, known in (("outcome", OUTCOMES), ("format", FORMATS), ("normalizer", NORMALIZERS)):
            if (value := getattr(self, key)) not in known:
                raise UserError(f"reward.{key}={value} is unknown; choose one of {', '.join(known)}.")

    def __call__(self, rollout: Rollout) -> Score:
        """The total and its parts: em, cover_em, f1, format, searches (closed search blocks) and answer_words."""
        text = scoring_text(rollout.segments, self.native_thinking)
        answer = extract_answer(text)
        parts = {name: metric(answer, rollout.question.answers, self.normalizer) for name, metric in OUTCOMES.items()}
        broken = self.engine_answers and self_written_information(rollout.segments, self.native_thinking)
        parts["format"] = 0.0 if broken else FORMATS[self.format](text)
        parts["searches"] = float(len(contents(text, Block.SEARCH)))
        parts["answer_words"] = float(len(answer.split()) if answer else 0)
        outcome = 2 * parts[self.outcome] - 1 if self.signed else parts[self.outcome]
        total = self.outcome_weight * outcome + self.format_weight * parts["format"]
        return Score(total=total, parts=parts, answer=answer)
