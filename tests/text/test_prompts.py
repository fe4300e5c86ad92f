from pathlib import Path

import pytest
import yaml

import ssrl
from ssrl.config import PromptConfig
from ssrl.errors import UserError
from ssrl.text.format import PLACEHOLDERS, ssrl_format
from ssrl.text.prompts import fill, format_question, opens_think
from ssrl.text.tags import parse
from ssrl.types import Block

PROMPTS = {path.stem: yaml.safe_load(path.read_text()) for path in (Path(ssrl.__file__).parent / "conf/prompt").glob("*.yaml")}


@pytest.mark.parametrize(
    ("question", "formatted"),
    [("  who is it ", "who is it?"), ("who?", "who?"), ("谁？", "谁？"), ("name a city.", "name a city.?"), ("who?\n", "who?")],
)
def test_a_question_ends_in_one_question_mark(question, formatted):
    assert format_question(question) == formatted


def test_only_the_slot_is_filled():
    assert fill('{"a": {x}} {question} {{question}}', "is {question} it") == '{"a": {x}} is {question} it? {is {question} it?}'


def test_a_template_without_the_slot_is_refused_with_a_sentence():
    with pytest.raises(UserError, match=r"prompt\.template has no \{question\}"):
        fill("Answer {quesiton}", "who")


@pytest.mark.parametrize(
    ("rendered", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("Begin with <think>.<|im_start|>assistant\n", False),
        ("reason between <think> and </think>\n", False),
        ("", False),
    ],
)
def test_a_prompt_opens_a_think_block_only_at_its_end(rendered, opened):
    assert opens_think(rendered) is opened


def test_the_two_prompts_of_this_room_exist():
    assert {"ssrl", "r1"} <= PROMPTS.keys()


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_a_prompt_file_is_named_by_its_content_and_has_known_keys(name):
    prompt = PromptConfig(**PROMPTS[name])
    assert prompt.name == name
    assert fill(prompt.template, "Who") != prompt.template


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_every_block_that_a_prompt_shows_passes_through_the_grammar(name):
    prompt = PromptConfig(**PROMPTS[name])
    parsed = parse((prompt.system or "") + prompt.template + prompt.prefill)
    pending = [f"{prompt.prefill.strip()} is never closed"] if prompt.prefill.strip() else []
    assert list(parsed.problems) == pending


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_the_search_tags_are_offered_exactly_where_the_prompt_says_so(name):
    prompt = PromptConfig(**PROMPTS[name])
    shown = {span.block for span in parse(prompt.template).spans}
    assert {Block.THINK, Block.ANSWER} <= shown
    assert (Block.SEARCH in shown) is (Block.INFORMATION in shown) is prompt.search


def test_the_shape_that_the_ssrl_prompt_shows_pays_only_when_it_is_filled():
    lines = PROMPTS["ssrl"]["template"].splitlines()
    shape = "\n".join(line for line in lines if line.startswith("<"))
    assert [span.inner.strip() for span in parse(shape).spans] == [
        PLACEHOLDERS[block] for block in (Block.THINK, Block.SEARCH, Block.INFORMATION, Block.THINK, Block.ANSWER)
    ]
    assert ssrl_format(shape) == 0.0
    assert ssrl_format(shape.replace("your ", "some ")) == 1.0
