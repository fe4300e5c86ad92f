import pytest

from ssrl.text.answers import extract_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think><answer> Lima </answer>", "Lima"),
        ("<answer>Paris</answer> wait <answer>\nLima\n</answer>", "Lima"),
        ("<answer>New\nYork</answer>", "New\nYork"),
        ("<answer></answer>", ""),
        ("<answer>Lima", None),
        ("Lima</answer>", None),
        ("Lima", None),
        ("", None),
        ("<answer>Lima</answer><answer>Par", "Lima"),
        ("<Answer>Lima</Answer>", None),
        ("<answer>London <answer>Paris</answer>", "London <answer>Paris"),  # as published: from the first opening tag
    ],
)
def test_the_answer_is_the_last_closed_block_stripped(text, answer):
    assert extract_answer(text) == answer
