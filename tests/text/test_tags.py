import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.text.tags import TAGS, contents, has_answer, information_spans, label_spans, parse, pending_search, scan
from ssrl.types import Block

TAG_STRINGS = [tag for pair in TAGS.values() for tag in pair]
soup = st.lists(st.sampled_from([*TAG_STRINGS, "word", " ", "\n", "<", ">", "é", "<think", "answer>"]), max_size=25).map("".join)

MALFORMED = [
    # text, a part of each problem in order
    ("<think>", ["<think> is never closed"]),
    ("<think>plan <search>q</search>", ["<think> is never closed"]),
    ("<think>a<think>b</think>", ["<think> opens inside <think>"]),
    ("<think></think>", ["<think> is empty"]),
    ("<think> \n </think>", ["<think> is empty"]),
    ("</think>", ["</think> closes nothing"]),
    ("<think>a</think></think>", ["</think> closes nothing"]),
    ("<think>a<think>b</think>c</think>", ["<think> opens inside <think>", "</think> closes nothing"]),
    ("<search>q", ["<search> is never closed"]),
    ("<search></search>", ["<search> is empty"]),
    ("</search>", ["</search> closes nothing"]),
    ("<search>q</search></search>", ["</search> closes nothing"]),
    ("<search>a<search>b</search>", ["<search> is not closed before <search>", "<search> opens inside <search>"]),
    ("<search>q</information>", ["</information> stands inside <search>"]),
    ("<search>q</think></search>", ["</think> stands inside <search>"]),
    ("<search>q<think>t</think></search>", ["<search> is not closed", "<think> opens inside <search>", "</search> closes nothing"]),
    ("<search>q<answer>a</answer>", ["<search> is not closed before <answer>", "<answer> opens inside <search>"]),
    ("<search>q<information>i</information>", ["<search> is not closed before <information>", "<information> opens inside <search>"]),
    ("<information>i", ["<information> is never closed"]),
    ("<information>\n</information>", ["<information> is empty"]),
    ("</information>", ["</information> closes nothing"]),
    ("<information>i<information>j</information>", ["is not closed before <information>", "<information> opens inside <information>"]),
    (
        "<information>a<search>q</search>b</information>",
        ["is not closed before <search>", "<search> opens inside", "</information> closes nothing"],
    ),
    ("<information>a<answer>x</answer>", ["<information> is not closed before <answer>", "<answer> opens inside <information>"]),
    ("<information>a</answer></information>", ["</answer> stands inside <information>"]),
    ("<information>a</search></information>", ["</search> stands inside <information>"]),
    ("<answer>", ["<answer> is never closed"]),
    ("<answer></answer>", ["<answer> is empty"]),
    ("</answer>", ["</answer> closes nothing"]),
    ("<answer>a</answer>b</answer>", ["</answer> closes nothing"]),
    ("<answer>London <answer>Paris</answer>", ["<answer> is not closed before <answer>", "<answer> opens inside <answer>"]),
    ("<answer>a</search></answer>", ["</search> stands inside <answer>"]),
    ("<answer>a</search></think></answer>", ["</search> stands inside <answer>"]),
    ("<answer>a<think>b", ["<answer> is not closed before <think>", "<think> opens inside <answer>"]),
    ("</search>q<search>", ["</search> closes nothing", "<search> is never closed"]),
    ("</answer></think></information>", ["</answer> closes", "</think> closes", "</information> closes"]),
    ("<think>a</think><search>q</search><information>i", ["<information> is never closed"]),
]


@pytest.mark.parametrize(("text", "expected"), MALFORMED, ids=[text for text, _ in MALFORMED])
def test_each_malformed_text_has_its_stated_problems(text, expected):
    problems = parse(text).problems
    assert len(problems) == len(expected)
    assert all(part in problem for part, problem in zip(expected, problems, strict=True))


def test_the_table_of_malformed_texts_is_long_enough_to_mean_something():
    assert len({text for text, _ in MALFORMED}) >= 30


def test_a_well_formed_response_is_its_blocks_in_order():
    text = "<think>a</think> so <search> q </search>\n<information>d\ne</information><think>b</think><answer>x</answer>"
    parsed = parse(text)
    assert parsed.problems == ()
    assert [(span.block, span.inner) for span in parsed.spans] == [
        (Block.THINK, "a"),
        (Block.SEARCH, " q "),
        (Block.INFORMATION, "d\ne"),
        (Block.THINK, "b"),
        (Block.ANSWER, "x"),
    ]
    assert [text[span.start : span.end] for span in parsed.spans][1] == "<search> q </search>"


@pytest.mark.parametrize("text", ["<Think>", "<search lang=en>", "< answer>", "<answer >", "</ think>", "<think/>", "<|im_end|>", "<b>", "<thinking>"])
def test_only_exact_tags_are_tags(text):
    assert scan(text) == []


def test_tags_inside_think_are_plain_text():
    parsed = parse("<think>I will use <search> and </search> tags, then <answer>x</answer></think><answer>y</answer>")
    assert [(span.block, span.problem) for span in parsed.spans] == [(Block.THINK, ""), (Block.ANSWER, "")]


def test_a_think_block_opened_by_the_prompt_is_a_block_without_its_opening_tag():
    parsed = parse("plan <search>q</search></think><answer>x</answer>", thinking=True)
    assert [(span.block, span.start, span.inner) for span in parsed.spans] == [
        (Block.THINK, 0, "plan <search>q</search>"),
        (Block.ANSWER, 31, "x"),
    ]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("<think>a</think><search> capital of Peru </search>", "capital of Peru"),
        ("<search>q</search>\n\n", "q"),
        ("<search>q</search><", "q"),  # the token `><` ends with the next tag's first character
        ("<search>a</search><information>i</information><search>b</search>", "b"),
        ("<search>a</search><information>i</information>", None),
        ("<search>q</search> and so", None),
        ("<search>q</search", None),
        ("<search> </search>", None),
        ("<search>a<search>b</search>", None),
        ("<think>a <search>q</search>", None),
        ("<think>I will use <search> and </search>", None),
        ("</search>", None),
        ("<answer>a<search>q</search>", None),
        ("<answer>a</answer>", None),
        ("", None),
    ],
)
def test_a_search_is_pending_only_right_after_a_well_formed_block(text, query):
    assert pending_search(text) == query


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think><answer>x</answer>", True),
        ("<answer>x</answer> trailing", True),
        ("<answer></answer>", True),
        ("<search>q <answer>x</answer>", True),  # a forgotten </search> does not hide the answer
        ("<think>a <answer>x</answer>", False),
        ("<answer>x", False),
        ("x</answer>", False),
    ],
)
def test_an_answer_counts_when_closed_outside_of_think(text, expected):
    assert has_answer(text) is expected


def test_native_thinking_hides_searches_and_answers_until_it_closes():
    assert pending_search("let me <search>q</search>", thinking=True) is None
    assert not has_answer("<answer>x</answer>", thinking=True)
    assert pending_search("done</think><search>q</search>", thinking=True) == "q"


def spans_by_characters(text: str) -> list[tuple[int, int]]:
    """The mask's definition, one character at a time."""
    inside, marks, position = False, [], 0
    while position < len(text):
        if not inside and text.startswith("<information>", position):
            inside = True
        if inside and text.startswith("</information>", position):
            marks += [True] * len("</information>")
            position += len("</information>")
            inside = False
            continue
        marks.append(inside)
        position += 1
    marks = [False, *marks, False]
    edges = [i for i in range(len(text) + 1) if marks[i] != marks[i + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("a<information>b</information>c", ["<information>b</information>"]),
        ("<information>\nb\n\nc\n</information>", ["<information>\nb\n\nc\n</information>"]),
        ("<information>b</information> <information>b</information>", ["<information>b</information>"] * 2),
        ("<think>a <information>b</information> c", ["<information>b</information>"]),
        ("<information>b <answer>c</answer>", ["<information>b <answer>c</answer>"]),
        ("b</information>", []),
    ],
)
def test_information_is_masked_tags_included(text, masked):
    assert [text[start:end] for start, end in information_spans(text)] == masked


@given(soup)
def test_information_spans_agree_with_a_walk_over_the_characters(text):
    merged: list[tuple[int, int]] = []
    for start, end in information_spans(text):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    assert merged == spans_by_characters(text)


@given(soup)
def test_labels_are_disjoint_ordered_and_give_information_precedence(text):
    labels = label_spans(text)
    assert all(start < end for start, end, _ in labels)
    assert all(left[1] <= right[0] for left, right in zip(labels, labels[1:], strict=False))
    information = {i for start, end in information_spans(text) for i in range(start, end)}
    labelled = {i: block for start, end, block in labels for i in range(start, end)}
    assert {i for i, block in labelled.items() if block is Block.INFORMATION} == information
    for span in parse(text).spans:
        assert all(labelled[i] is span.block for i in range(span.start, span.end) if i not in information)
    assert set(labelled) == information | {i for span in parse(text).spans for i in range(span.start, span.end)}


def test_labels_colour_information_inside_an_unclosed_think():
    text = "<think>a<information>b</information>c"
    assert [(text[start:end], block) for start, end, block in label_spans(text)] == [
        ("<think>a", Block.THINK),
        ("<information>b</information>", Block.INFORMATION),
        ("c", Block.THINK),
    ]


@given(soup, soup)
def test_a_closed_block_stays_what_it_is_when_the_text_goes_on(text, more):
    # A text cut inside a tag may complete it, so only blocks closed before the cut count.
    before = [span for span in parse(text).spans if span.closed]
    assert [span for span in parse(text + more).spans if span.closed][: len(before)] == before


@given(soup)
def test_spans_rebuild_the_text_that_they_name(text):
    for span in parse(text).spans:
        opening, closing = TAGS[span.block]
        assert text[span.start : span.end] == opening + span.inner + (closing if span.closed else "")


def test_contents_of_a_block_are_its_non_greedy_pairs():
    assert contents("<answer>a <answer>b</answer> c</answer><answer>d</answer>", Block.ANSWER) == ["a <answer>b", "d"]
