"""Which part of a response is its answer."""

from __future__ import annotations

from ssrl.text.tags import contents
from ssrl.types import Block


def extract_answer(text: str) -> str | None:
    """The content of the last closed answer block, stripped; None without one (FACTS 1.5).

    `text` is what the policy is scored on (`ssrl.text.view.scoring_text`), never a prompt or a document.
    """
    found = contents(text, Block.ANSWER)
    return found[-1].strip() if found else None
