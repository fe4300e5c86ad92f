"""The label that a group gives itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.rewards.vote import Vote, majority
from ssrl.text.metrics import em


@pytest.mark.parametrize(
    ("answers", "vote"),
    [
        (["London", "Paris", "paris."], Vote("Paris", 2 / 3)),  # normalised before they are counted, and the label is what was written first
        (["The Beatles", "Beatles", None, None], Vote("The Beatles", 0.5)),  # a missing answer is a vote lost, not a candidate
        ([None, None, "Rome"], Vote("Rome", 1 / 3)),
        (["b", "c", "c", "b"], Vote("b", 0.5)),  # a tie goes to the answer given first
        (["x", "A", "a.", "The", "!", " "], Vote("A", 2 / 6)),  # letters and signs that normalise to nothing are answers too
        (["", " ", "x"], Vote("x", 1 / 3)),
        ([None, None, ""], Vote(None, 0.0)),
    ],
)
def test_the_majority_of_normalised_answers_wins(answers, vote):
    assert majority(answers, "squad") == vote


@given(
    st.lists(st.sampled_from(["The 東", "東", "A", "a ", "–", "the", "Ａ", "²", None, ""]) | st.text(max_size=4), min_size=1, max_size=8),
    st.sampled_from(["squad", "unicode"]),
)
def test_exact_match_takes_the_label_for_right_wherever_it_was_voted_for(answers, normalizer):
    vote = majority(answers, normalizer)
    right = sum(em(answer, (vote.label,), normalizer) for answer in answers) if vote.label is not None else 0.0
    assert right == pytest.approx(vote.share * len(answers))


@given(st.lists(st.sampled_from(["a1", "b1", "c1", None]), min_size=1, max_size=30))
def test_no_answer_has_more_votes_than_the_winner(answers):
    vote = majority(answers, "squad")
    counts = {answer: answers.count(answer) for answer in set(answers) - {None}}
    if not counts:
        assert vote.label is None
    else:
        assert counts[vote.label] == max(counts.values()) and vote.share == counts[vote.label] / len(answers)
