"""The only place of this room where text becomes tokens: prompts, prefilled tags and what an engine says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from ssrl.errors import UserError
from ssrl.text.prompts import fill, format_question, opens_think
from ssrl.text.tags import scan
from ssrl.types import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """How a question is put to the policy (the keys of `prompt=`), bound to a tokenizer."""

    tokenizer: PreTrainedTokenizerBase
    template: str
    system: str | None = None
    chat: bool = True
    prefill: str = ""
    thinking: bool | None = None

    def prompt_text(self, question: Question) -> str:
        text = fill(self.template, format_question(question.text))
        if not self.chat:
            return text
        if self.tokenizer.chat_template is None:
            raise UserError("prompt.chat=true needs a chat template, and this model's tokenizer has none; type: prompt.chat=false")
        messages = [{"role": "system", "content": self.system}] if self.system else []
        messages.append({"role": "user", "content": text})
        options = {} if self.thinking is None else {"enable_thinking": self.thinking}
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)

    def prompt_ids(self, question: Question) -> tuple[int, ...]:
        """Tokens of the prompt without the prefilled text. A chat template writes its own special tokens, so none are added to it."""
        return tuple(self.tokenizer(self.prompt_text(question), add_special_tokens=not self.chat).input_ids)

    def prefill_ids(self) -> tuple[int, ...]:
        return self.text_ids(self.prefill) if self.prefill else ()

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Tokens of a text in the middle of a sequence. Special tokens that it spells out are read as plain characters."""
        return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids)

    def retry_ids(self, message: str, end: int) -> tuple[int, ...]:
        """Tokens that follow a response which ended with the token `end`, so that the policy tries again.

        With a chat template they are the user's next turn and the opening of the policy's; where those would hold a tag of ours (templates
        of thinking models), and without a template, they are the message alone, and the policy reads on behind its end token.
        """
        turn = self._next_turn(message) if self.chat else ""
        if not turn or scan(turn):
            return self.text_ids(message)
        ids = tuple(self.tokenizer(turn, add_special_tokens=False).input_ids)
        return ids[1:] if ids[0] == end else ids

    def _next_turn(self, message: str) -> str:
        """What the chat template puts behind a response when the user answers it with `message`."""
        mark = "[[response]]"
        messages = [{"role": "user", "content": "-"}, {"role": "assistant", "content": mark}, {"role": "user", "content": message}]
        options = {} if self.thinking is None else {"enable_thinking": self.thinking}
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options).rpartition(mark)[2]

    def opens_thinking(self, question: Question) -> bool:
        """Whether the prompt ends inside a thinking block of the model's own."""
        return bool(self.thinking) and opens_think(self.prompt_text(question))

    def check_thinking(self, sample: Question) -> None:
        """Refuse a template that opens a thinking block of its own where thinking is not declared."""
        if opens_think(self.prompt_text(sample)) and not self.thinking:
            raise UserError(
                "the model's chat template opens a <think> block of its own, which is not ours; "
                "type model.thinking=true to keep the model's own thinking apart, or prompt.chat=false"
            )


def over_long(renderer: Renderer, questions: Sequence[Question], limit: int) -> list[bool]:
    """Which questions make prompts of more than `limit` tokens."""
    return [len(renderer.prompt_ids(question)) > limit for question in questions]
