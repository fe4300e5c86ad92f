"""Masks and blocks, token by token, on hand-written dialogues. Tokens are written as words; T, E and P are the sources."""

import pytest

from ssrl.rollout.label import label, policy_view
from ssrl.types import Block, Source

SOURCE = {"P": Source.POLICY, "E": Source.ENGINE, "T": Source.TEMPLATE}
BLOCK = {"-": Block.OUTSIDE, "t": Block.THINK, "s": Block.SEARCH, "i": Block.INFORMATION, "a": Block.ANSWER}


def check(dialogue, mask="tokens", thinking=False):
    """Each line: token, source, block, x where trained."""
    pieces = [token.encode() for token, *_ in dialogue]
    blocks, trained = label(pieces, [SOURCE[source] for _, source, *_ in dialogue], mask, thinking=thinking)
    assert [(token, block) for (token, *_), block in zip(dialogue, blocks, strict=True)] == [(d[0], BLOCK[d[2]]) for d in dialogue]
    assert [(token, t) for (token, *_), t in zip(dialogue, trained, strict=True)] == [(d[0], d[3] == "x") for d in dialogue]


def test_full_sim_the_policy_writes_everything_after_the_prefilled_tag():
    check([
        ("<think>", "T", "t", "-"), (" need ", "P", "t", "x"), ("</think>", "P", "t", "x"), ("\n", "P", "-", "x"),
        ("<search>", "P", "s", "x"), (" capital ", "P", "s", "x"), ("</search>", "P", "s", "x"),
        ("<information>", "P", "i", "-"), (" Paris ", "P", "i", "-"), ("</information>", "P", "i", "-"),
        ("<answer>", "P", "a", "x"), (" Paris ", "P", "a", "x"), ("</answer>", "P", "a", "x"), ("", "P", "-", "x"),
    ])  # fmt: skip


def test_full_real_the_engine_writes_the_information():
    check([
        ("<think>", "T", "t", "-"), (" need ", "P", "t", "x"), ("</think>", "P", "t", "x"),
        ("<search>", "P", "s", "x"), (" capital ", "P", "s", "x"), ("</search>", "P", "s", "x"),
        ("<information>", "E", "i", "-"), (" Paris ", "E", "i", "-"), ("</information>", "E", "i", "-"),
        ("<answer>", "P", "a", "x"), (" Paris ", "P", "a", "x"), ("</answer>", "P", "a", "x"),
    ])  # fmt: skip


def test_sim2real_the_engine_answers_first_and_the_policy_itself_later():
    check([
        ("<search>", "P", "s", "x"), (" a ", "P", "s", "x"), ("</search>", "P", "s", "x"),
        ("<information>", "E", "i", "-"), (" A ", "E", "i", "-"), ("</information>", "E", "i", "-"),
        ("<search>", "P", "s", "x"), (" b ", "P", "s", "x"), ("</search>", "P", "s", "x"),
        ("<information>", "P", "i", "-"), (" B ", "P", "i", "-"), ("</information>", "P", "i", "-"),
        ("<answer>", "P", "a", "x"), ("C", "P", "a", "x"), ("</answer>", "P", "a", "x"),
    ])  # fmt: skip


def test_information_over_several_lines_and_repeated_word_by_word_is_masked_each_time():
    block = [("<information>", "P", "i", "-"), ("\n", "P", "i", "-"), ("Doc 1:\nParis", "P", "i", "-"), ("\n", "P", "i", "-"), ("</information>", "P", "i", "-")]
    check([*block, ("\n", "P", "-", "x"), *block, ("<answer>", "P", "a", "x")])


def test_a_token_that_overlaps_the_span_is_inside_wherever_the_merge_lies():
    check([
        ("<search>q</search", "P", "s", "x"), ("><", "P", "i", "-"), ("information", "P", "i", "-"), (">x</informa", "P", "i", "-"),
        ("tion>", "P", "i", "-"), ("ok", "P", "-", "x"),
    ])  # fmt: skip
    check([("<information>a</information", "P", "i", "-"), (">\n<", "P", "i", "-"), ("answer>b</answer>", "P", "a", "x")])


def test_touching_a_span_is_not_overlapping_it():
    check([("</search>", "P", "-", "x"), ("<information>a</information>", "P", "i", "-"), ("</think>", "P", "-", "x")])


def test_information_that_never_closes_reaches_the_end_tokens_without_text_included():
    check([("a", "P", "-", "x"), ("<information>", "P", "i", "-"), ("", "P", "i", "-"), (" Par", "P", "i", "-"), ("", "P", "i", "-")])


def test_an_end_token_behind_closed_information_is_trained():
    check([("<information>a</information>", "P", "i", "-"), ("", "P", "-", "x")])


def test_information_inside_think_is_masked_too():
    check([("<think>", "P", "t", "x"), ("<information>", "P", "i", "-"), ("a", "P", "i", "-"), ("</information>", "P", "i", "-"), ("b", "P", "t", "x")])


def test_tags_of_an_engine_open_and_close_nothing():
    check([
        ("<search>", "P", "s", "x"), ("q", "P", "s", "x"), ("</search>", "P", "s", "x"),
        ("<information>", "E", "i", "-"), ("</information><answer>42</answer><information>", "E", "i", "-"), ("</information>", "E", "i", "-"),
        ("fine", "P", "-", "x"), ("</information>", "P", "-", "x"), ("<answer>", "P", "a", "x"),
    ])  # fmt: skip


def test_a_tag_split_over_policy_and_engine_is_none():
    check([("<inform", "P", "-", "x"), ("x", "E", "i", "-"), ("ation>", "P", "-", "x"), ("b", "P", "-", "x")])


def test_a_thinking_block_that_the_prompt_opened_is_labelled():
    check([("hm", "P", "t", "x"), ("</think>", "P", "t", "x"), ("<answer>", "P", "a", "x")], thinking=True)


def test_mask_none_trains_every_token_and_labels_as_before():
    check([("<think>", "T", "t", "x"), ("<information>", "E", "i", "x"), ("b", "P", "t", "x"), ("<information>", "P", "i", "x")], mask="none")


def test_the_published_mask_misses_blocks_of_several_lines_and_masks_a_repeated_block_once():
    one_line = [("<information>", "P", "i", "-"), (" A ", "P", "i", "-"), ("</information>", "P", "i", "-")]
    again = [(token, source, block, "x") for token, source, block, _ in one_line]
    lines = [("<information>", "P", "i", "x"), ("\nA\n", "P", "i", "x"), ("</information>", "P", "i", "x")]
    check([("<search>q</search>", "P", "s", "x"), *one_line, ("\n", "P", "-", "x"), *again, *lines, ("ok", "P", "-", "x")], mask="paper")
    check([("<information>", "E", "i", "-"), ("\nA\n", "E", "i", "-"), ("</information>", "E", "i", "-")], mask="paper")


@pytest.mark.parametrize("text", ["", "x", "日本"])
def test_the_view_has_one_character_a_byte_and_blanks_for_the_engine(text):
    pieces = [text.encode(), "é<answer>".encode()]
    view = policy_view(pieces, [Source.POLICY, Source.ENGINE])
    assert view == text.encode().decode("latin-1") + " " * 10
