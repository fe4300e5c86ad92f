"""Prompts, prefilled tags, documents, and the thinking modes of chat templates."""

import pytest

from ssrl.errors import UserError
from ssrl.policy.builtin import tiny_tokenizer
from ssrl.rollout.render import Renderer, over_long
from ssrl.types import Question

QUESTION = Question(id="1", text=" who wrote it ", answers=("x",))
TURNS = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
QWEN3 = TURNS + (
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
OPENS = TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"


def renderer(template=None, **options):
    tokenizer = tiny_tokenizer()
    if template:
        tokenizer.chat_template = template
    return Renderer(tokenizer=tokenizer, template="Answer: {question}\n", **options)


def test_a_plain_prompt_is_the_template_with_the_question():
    r = renderer(chat=False)
    assert r.prompt_text(QUESTION) == "Answer: who wrote it?\n"
    assert r.tokenizer.decode(r.prompt_ids(QUESTION)) == "Answer: who wrote it?\n"


def test_a_chat_prompt_goes_through_the_models_template():
    assert renderer().prompt_text(QUESTION) == "[user]Answer: who wrote it?\n\n[assistant]"
    assert renderer(system="Be brief.").prompt_text(QUESTION) == "[system]Be brief.\n[user]Answer: who wrote it?\n\n[assistant]"


def test_a_tokenizer_without_a_chat_template_is_refused_in_a_sentence():
    r = renderer()
    r.tokenizer.chat_template = None
    with pytest.raises(UserError, match="prompt.chat=false"):
        r.prompt_ids(QUESTION)


def test_special_tokens_are_added_to_plain_prompts_and_never_to_chat_or_inserted_text():
    class Beginning:
        """A tokenizer that puts a begin token in front where it is asked to."""

        chat_template = "x"

        def __call__(self, text, add_special_tokens, **options):
            return type("Batch", (), {"input_ids": [1] * add_special_tokens + [7]})

        def apply_chat_template(self, messages, **options):
            return "<s>chat"

    plain, chat = (Renderer(tokenizer=Beginning(), template="{question}", chat=chat, prefill="<think>") for chat in (False, True))
    assert plain.prompt_ids(QUESTION) == (1, 7)
    assert chat.prompt_ids(QUESTION) == (7,)
    assert plain.text_ids("doc") == plain.prefill_ids() == (7,)


def test_text_from_outside_never_becomes_a_special_token():
    r = renderer()
    assert 0 not in r.text_ids("a<|end|>b")
    assert r.tokenizer.decode(r.text_ids("a<|end|>b")) == "a<|end|>b"
    assert 0 in r.tokenizer("a<|end|>b").input_ids  # what would happen otherwise, and still does for chat templates


def test_no_prefill_is_no_token():
    assert renderer().prefill_ids() == ()


def test_over_long_prompts_are_found_by_their_tokens():
    long = Question(id="2", text="é" * 30, answers=("x",))  # two tokens a character
    r = renderer(chat=False)
    limit = len("Answer: who wrote it?\n")
    assert over_long(r, [QUESTION, long], limit) == [False, True]
    assert over_long(r, [QUESTION, long], limit - 1) == [True, True]
    assert over_long(r, [long], len("Answer: ?\n") + 60) == [False]


def test_a_template_that_opens_a_thinking_block_needs_the_mode_declared():
    for thinking in (None, False):
        with pytest.raises(UserError, match="model.thinking=true"):
            renderer(OPENS, thinking=thinking).check_thinking(QUESTION)
    renderer(OPENS, thinking=True).check_thinking(QUESTION)
    assert renderer(OPENS, thinking=True).opens_thinking(QUESTION)


def test_a_template_that_writes_an_empty_thinking_block_leaves_the_response_to_us():
    off, on, unset = (renderer(QWEN3, thinking=thinking) for thinking in (False, True, None))
    assert off.prompt_text(QUESTION).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert on.prompt_text(QUESTION) == unset.prompt_text(QUESTION)
    assert on.prompt_text(QUESTION).endswith("<|im_start|>assistant\n")
    for r in (off, on, unset):
        r.check_thinking(QUESTION)
        assert not r.opens_thinking(QUESTION)


def test_a_mention_of_the_tag_in_the_prompt_opens_nothing():
    r = Renderer(tokenizer=tiny_tokenizer(), template="Begin with <think> please. {question}", chat=False)
    r.check_thinking(QUESTION)


def test_a_retry_is_the_users_next_turn_where_the_template_allows_it():
    message = "\nTry again.\n"
    assert renderer(chat=False).tokenizer.decode(renderer(chat=False).retry_ids(message, 0)) == message
    r = renderer()
    assert r.tokenizer.decode(r.retry_ids(message, 0)) == f"\n[user]{message}\n[assistant]"
    ends = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    r = renderer(ends)
    assert r.tokenizer.decode(r.retry_ids(message, 0)) == f"[user]{message}<|end|>[assistant]"  # the policy has drawn its end token itself
    assert r.tokenizer.decode(r.retry_ids(message, 7)) == f"<|end|>[user]{message}<|end|>[assistant]"


def test_a_retry_never_brings_a_tag():
    for template, thinking in ((OPENS, True), (QWEN3, False)):
        r = renderer(template, thinking=thinking)
        assert r.tokenizer.decode(r.retry_ids("Try again.", 0)) == "Try again."
