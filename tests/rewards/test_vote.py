"""The label that a group gives itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.rewards.vote import Vote, majority


@pytest.mark.parametrize(
    ("answers", "vote"),
    [
        (["Paris", "paris.", "London"], Vote("paris", 2 / 3)),  # normalised before they are counted
        (["The Beatles", "Beatles", None, None], Vote("beatles", 0.5)),  # a missing answer is a vote lost, not a candidate
        ([None, None, "Rome"], Vote("rome", 1 / 3)),
        (["b", "c", "c", "b"], Vote("b", 0.5)),  # a tie goes to the answer given first
        (["The", "", "...", "x"], Vote("x", 0.25)),  # what normalises to nothing does not win
        ([None, None], Vote(None, 0.0)),
    ],
)
def test_the_majority_of_normalised_answers_wins(answers, vote):
    assert majority(answers, "squad") == vote


@given(st.lists(st.sampled_from(["a1", "b1", "c1", None]), min_size=1, max_size=30))
def test_no_answer_has_more_votes_than_the_winner(answers):
    vote = majority(answers, "squad")
    counts = {answer: answers.count(answer) for answer in set(answers) - {None}}
    if not counts:
        assert vote.label is None
    else:
        assert counts[vote.label] == max(counts.values()) and vote.share == counts[vote.label] / len(answers)
