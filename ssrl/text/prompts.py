"""From a question to the text of a prompt."""

from __future__ import annotations

from ssrl.errors import UserError

SLOT = "{question}"


def format_question(question: str) -> str:
    """The question, stripped and ending in a question mark (FACTS 3.1); a full-width or Arabic one counts."""
    question = question.strip()
    return question if question.endswith(("?", "？", "؟")) else question + "?"


def fill(template: str, question: str) -> str:
    """The template with the formatted question in place of `{question}`; other braces are text."""
    if SLOT not in template:
        raise UserError(f"prompt.template has no {SLOT}; put {SLOT} where the question belongs. The template begins {template[:60]!r}.")
    return template.replace(SLOT, format_question(question))


def opens_think(rendered_prompt: str) -> bool:
    """Whether a rendered prompt ends in an opened `<think>`, as some chat templates do; a mere mention of the tag before does not count."""
    return rendered_prompt.rstrip().endswith("<think>")
