import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssrl.text.format import self_search_format, ssrl_bool_format, ssrl_format

T = "<think> The capital must be found. </think>\n"
S = "<search> capital of Peru </search>\n"
I = "<information>\nPeru is a country.\nIts capital is Lima.\n</information>\n"  # noqa: E741
A = "<answer> Lima </answer>"


def test_a_think_and_an_answer():
    assert ssrl_format(T + A) == 0.5


PUBLISHED = [
    ("T A", T + A, 0.5),
    ("T S I T A", T + S + I + T + A, 1.0),
    ("T S I A, no think after the information", T + S + I + A, 0.25),
    ("T S I S I T A", T + S + I + S + I + T + A, 2 / 3),
    *[(f"T (S I T)x{n} A", T + (S + I + T) * n + A, 1.0) for n in range(2, 8)],
    ("T (S I T)x8 A, nine thinks", T + (S + I + T) * 8 + A, 0),
    ("T T A", T + T + A, 0.5),
    ("T T S I T A", T + T + S + I + T + A, 2 / 3),
    ("T T T T A", T * 4 + A, 0.25),
    ("T S T I T A, information not right after search", T + S + T + I + T + A, 0),
    ("T I A, information without search", T + I + A, 0),
    ("T S I T, no answer", T + S + I + T, 0),
    ("T A A", T + A + A, 0.5),
    ("T A T A", T + A + T + A, 0.5),
    ("text after the answer", T + S + I + T + A + " Done.", 0),
    ("text before the first think", "Sure! " + T + S + I + T + A, 0),
    ("text between blocks", T + "foo\n" + S + "bar\n" + I + T + A, 1.0),
    ("stray </think> between I and T", T + S + I + "</think>" + T + A, 1.0),
    ("think nested in the first think", "<think> a <think> b </think> c </think>" + A, 0),
    ("search inside information", T + S + "<information> x " + S + " y </information>" + T + A, 0),
    ("unclosed information", T + S + "<information> Lima " + T + A, 0),
    ("query on two lines", T + "<search> capital\nof Peru </search>" + I + T + A, 0),
    ("query with newline padding", T + "<search>\ncapital of Peru\n</search>" + I + T + A, 0),
    ("white-space information", T + S + "<information> \n </information>" + T + A, 0),
    ("placeholder query", T + "<search>your query</search>" + I + T + A, 0),
    ("placeholder answer", T + S + I + T + "<answer>Your Answer here</answer>", 0),
    ("placeholder thoughts", "<think> Your thoughts </think>" + S + I + T + A, 0),
    ("placeholder information", T + S + "<information>Your Information</information>" + T + A, 0),
    ("maths with < and >", "<think> 3<5 and 6>2 </think>" + S + I + T + A, 0),
    ("maths with < alone", "<think> 3<5 </think>" + S + I + T + A, 0),
    ("html", "<think> <b>bold</b> </think>" + S + I + T + A, 0),
    ("an attribute", T + "<search lang=en> q </search>" + I + T + A, 0),
    ("a capital tag", "<Think> a </Think>" + S + I + T + A, 0),
    ("white space around", "\n\n  " + T + A + " \n", 0.5),
]


@pytest.mark.parametrize(("text", "score"), [row[1:] for row in PUBLISHED], ids=[row[0] for row in PUBLISHED])
def test_the_published_table_row_by_row(text, score):
    assert ssrl_format(text) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("", 0),
        (A, 0),
        ("<think> 6>2 </think>" + A, 0.5),  # a lone > is not between angle brackets
        ("<think> <> </think>" + A, 0.5),  # nothing stands between these
        ("<think> <|im_end|> </think>" + A, 0),
        ("<think> </think>" + A, 0),
        (T + "<answer></answer>", 0),
        (T + "<think>x</think><information> a </information><search> b </search>" + A, 0),
    ],
)
def test_cases_that_follow_from_the_rules(text, score):
    assert ssrl_format(text) == score


def slow_score(text: str) -> float:
    """The ten rules of FACTS 1.4, each on its own by regular expressions, in their order."""
    text = re.sub(r"\A\s+|\s+\Z", "", text)
    kinds = ("think", "search", "information", "answer")
    tags = re.findall(r"<([^>]+)>", text)
    for tag in tags:
        if tag not in kinds and not (tag[0] == "/" and tag[1:] in kinds):
            return 0.0
    if text[:7] != "<think>" or text[-9:] != "</answer>":
        return 0.0
    if len(tags) < 4:
        return 0.0
    placeholders = {"think": "your thoughts", "search": "your query", "information": "your information", "answer": "your answer"}
    for kind in kinds:
        for match in re.finditer(rf"<{kind}>(.*?)</{kind}>", text, flags=re.DOTALL):
            if re.fullmatch(r"\s*", match[1]) or placeholders[kind] in match[1].lower():
                return 0.0
            if kind == "search" and "\n" in match[1]:
                return 0.0
    if (tags[0], tags[1], tags[-2], tags[-1]) != ("think", "/think", "answer", "/answer"):
        return 0.0
    middle = tags[2:-2]
    for index in range(len(middle)):
        if middle[index] == "search":
            if index + 3 >= len(middle):
                return 0.0
            if middle[index + 1] != "/search" or middle[index + 2] != "information" or middle[index + 3] != "/information":
                return 0.0
    thinks = sum(tag == "think" for tag in tags)
    searches = sum(tag == "search" for tag in tags)
    if searches != sum(tag == "information" for tag in tags):
        return 0.0
    if thinks > 8:
        return 0.0
    ratio = 1.0
    if thinks != searches + 1:
        ratio = min(thinks, searches + 1) / max(thinks, searches + 1)
    return min(1.0, 0.5 * thinks) * ratio


odd_pieces = ["<think>", "</think>", "<search>", "</search>", "<information>", "</information>", "<answer>", "</answer>"]
odd_pieces += ["<", ">", "<b>", "\n", " ", "x", "Your Query", "your thoughts", "<>", "\u200b", "<|im_end|>"]
block_runs = st.lists(st.sampled_from([T, S, I, A, S + I, S + I + T, "foo ", "</think>"]), max_size=12).map("".join)
near_misses = st.tuples(block_runs, st.integers(0, 400), st.sampled_from(["", *odd_pieces])).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :])
soup = st.lists(st.sampled_from(odd_pieces), max_size=16).map("".join)


@given(st.one_of(block_runs.map(lambda middle: T + middle + A), near_misses.map(lambda text: T + text + A), soup))
@example(T + S + I + T + A)
def test_the_score_equals_a_slow_rule_by_rule_implementation(text):
    assert ssrl_format(text) == pytest.approx(slow_score(text), abs=1e-12)
    assert ssrl_bool_format(text) == (1.0 if slow_score(text) > 0 else 0.0)


@given(block_runs.map(lambda middle: T + middle + A))
def test_the_self_search_score_is_the_published_one_or_zero_without_a_search(text):
    searched = re.search(r"<search>.*?</search>", text, flags=re.DOTALL) is not None
    assert self_search_format(text) == (ssrl_format(text) if searched else 0.0)


def test_thinking_alone_does_not_pay_under_the_self_search_score():
    assert self_search_format(T + A) == 0.0
    assert self_search_format(T + S + I + T + A) == 1.0
    assert self_search_format(T + S + I + A) == 0.25
