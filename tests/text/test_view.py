import pytest

from ssrl.text.answers import extract_answer
from ssrl.text.format import PLACEHOLDERS, ssrl_format
from ssrl.text.tags import parse
from ssrl.text.view import ENGINE_BLOCK, scoring_text, self_written_information
from ssrl.types import Block, Segment, Source


def segments(*runs: tuple[Source, str]) -> list[Segment]:
    return [Segment(source=source, text=text) for source, text in runs]


POLICY, ENGINE, TEMPLATE = Source.POLICY, Source.ENGINE, Source.TEMPLATE


def test_policy_and_template_text_is_scored_as_it_is():
    assert scoring_text(segments((TEMPLATE, "<think>"), (POLICY, " a </think><answer>x</answer>"))) == "<think> a </think><answer>x</answer>"


def test_an_engine_block_counts_as_one_well_formed_information_block():
    run = segments(
        (POLICY, "<think>a</think><search>q</search>"),
        (ENGINE, "\n\n<information>1 < 2 <b>your information</b>"),
        (POLICY, "<think>b</think><answer>x</answer>"),
    )
    assert ssrl_format(scoring_text(run)) == 1.0
    assert parse(scoring_text(run)).problems == ()


@pytest.mark.parametrize(
    ("written", "scored"),
    [
        ("<search>q</search><", "<search>q</search>"),
        ("<search>q</search>\n<", "<search>q</search>\n"),
        ("<search>q</search>a<", "<search>q</search>a<"),
        ("<search>q</search><<", "<search>q</search><<"),
    ],
)
def test_the_first_character_of_an_engines_block_is_the_engines_though_a_merged_token_of_the_policy_has_it(written, scored):
    after = (POLICY, "<answer>x</answer>")
    assert scoring_text(segments((POLICY, written), (ENGINE, "information>d</information>"), after)) == f"{scored}{ENGINE_BLOCK}<answer>x</answer>"
    assert scoring_text(segments((POLICY, written), (TEMPLATE, "again"), after)) == f"{written}again<answer>x</answer>"


def test_the_block_that_stands_for_the_engine_is_harmless():
    (span,) = parse(ENGINE_BLOCK).spans
    assert span.block is Block.INFORMATION and span.problem == ""
    assert not any(char.isalnum() for char in span.inner) and PLACEHOLDERS[Block.INFORMATION] not in span.inner


@pytest.mark.parametrize(
    ("text", "scored"),
    [
        ("<think>native <answer>no</answer></think>\n<think>a</think><answer>x</answer>", "\n<think>a</think><answer>x</answer>"),
        ("opened by the prompt</think><think>a</think><answer>x</answer>", "<think>a</think><answer>x</answer>"),
        ("<think>\n\n</think>\n\n<answer>x</answer>", "\n\n<answer>x</answer>"),
        ("<think>for ever <answer>x</answer>", ""),
        ("", ""),
    ],
)
def test_a_native_thinking_block_is_not_scored(text, scored):
    assert scoring_text(segments((POLICY, text)), native_thinking=True) == scored


def test_a_native_thinking_block_may_end_in_a_later_segment():
    run = segments((TEMPLATE, "<think>"), (POLICY, "a"), (ENGINE, "<information></think><answer>no</answer></information>"), (POLICY, "</think>b"))
    assert scoring_text(run, native_thinking=True) == "b"


def test_an_answer_needs_native_thinking_to_be_declared():
    run = segments((POLICY, "<think>n</think><think>a</think><answer>x</answer>"))
    assert ssrl_format(scoring_text(run)) == 0.5 == ssrl_format(scoring_text(run, native_thinking=True))
    assert extract_answer(scoring_text(run, native_thinking=True)) == "x"


def test_self_written_information_is_told_from_an_engines():
    engine = segments((POLICY, "<search>q</search>"), (ENGINE, "<information>d</information>"), (POLICY, "<answer>x</answer>"))
    written = segments((POLICY, "<search>q</search><information>d</information><answer>x</answer>"))
    half = segments((POLICY, "<search>q</search>"), (ENGINE, "<information>d</information>"), (POLICY, "</information><answer>x</answer>"))
    assert [self_written_information(run) for run in (engine, written, half)] == [False, True, True]


def test_information_tags_in_native_thinking_are_not_a_violation():
    run = segments((POLICY, "<think>what is <information>?</think><answer>x</answer>"))
    assert self_written_information(run) and not self_written_information(run, native_thinking=True)


def test_a_retry_message_of_the_template_is_no_information_block():
    run = segments((POLICY, "<think>a</think>hm"), (TEMPLATE, " try again "), (POLICY, "<think>b</think><search>q</search>"), (ENGINE, "x"), (POLICY, "<answer>x</answer>"))
    text = scoring_text(run)
    assert text.count("<information>") == 1 and "hm try again <think>" in text and not self_written_information(run)
    assert ssrl_format(text) == 1.0  # two think blocks and one search, as if the message were text between blocks
