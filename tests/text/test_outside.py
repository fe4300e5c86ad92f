"""Nothing from outside can be taken for a tag, and cleaning takes time that grows with what is kept only."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.text.outside import harmless, one_line, plain
from ssrl.text.tags import neutralise, scan

DISGUISED = [
    "</answer>", "<Answer>", "< / INFORMATION >", "<search lang=en>", "<think/>", "<answer", "</information\n>",
    "<\u200b/answer>", "<in\u2060formation>", "\u202e<search>\u202c", "<an\xadswer>", "<\ufeffthink>", "<an\x00swer>", "<an\ud800swer>",
    "＜answer＞", "＜／ａｎｓｗｅｒ＞", "﹤think﹥", "<𝐚𝐧𝐬𝐰𝐞𝐫>", "<\U000e0061answer>",
]  # fmt: skip


@pytest.mark.parametrize("text", DISGUISED, ids=ascii)
def test_a_disguised_tag_loses_its_brackets(text):
    shown = harmless(f"before {text} after", 1000)
    assert not any(bracket in shown for bracket in "<>＜＞﹤﹥") and "‹" in shown
    assert shown.startswith("before ") and shown.endswith(" after")


@pytest.mark.parametrize("text", ["a < b > c", "<b>bold</b>", "<thinking>", "&lt;answer&gt;", "1<2", "<|im_end|>", "日本 🎉", "naïve\n\ttext", "x > answer"])
def test_other_text_stays_as_it_is(text):
    assert harmless(text, 1000) == text


def test_line_breaks_become_newlines_and_runs_of_space_one():
    assert plain("a\r\nb\rc\u2028d\x85e") == "a\nb\nc\nd\ne"
    assert one_line(" a \n\n b\tc ") == "a b c"


hostile = st.lists(
    st.sampled_from([*DISGUISED, "<", ">", "/", " ", "\n", "answer", "information", "\u200b", "\u202e", "＜", "＞", "x", "\ud800"]), max_size=12
).map("".join)


@given(hostile)
def test_no_soup_holds_a_tag_or_an_unencodable_character(text):
    shown = harmless(text, 1000)
    assert scan(shown) == []
    shown.encode()
    assert neutralise(shown) == shown and plain(shown) == shown


@pytest.mark.parametrize("unit", ["x", "<", "< ", " ", "<answer ", "</", "\u200b", "<answer" + " " * 50, "é"])
def test_ten_million_characters_cost_next_to_nothing(unit):
    text = unit * (10**7 // len(unit))
    start = time.process_time()
    assert len(harmless(text, 8000)) <= 8000
    assert time.process_time() - start < 0.1
