import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.text.metrics import cover_em, em, f1
from ssrl.text.normalize import NORMALIZERS

words = st.lists(st.sampled_from(["the", "A", "Paris", "paris", "London", "!", "’", " ", "1990", "東京"]), max_size=6).map(" ".join)
predictions = st.one_of(st.none(), st.text(max_size=12), words)
golds = st.lists(st.one_of(st.text(min_size=1, max_size=12), words), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("prediction", "accepted", "scores"),
    [
        # scores: em, cover_em, f1, worked by hand
        ("the Lima", ["Lima"], (1, 1, 1)),
        ("Lima, Peru", ["Lima"], (0, 1, 2 / 3)),
        ("Lima", ["Lima, Peru"], (0, 0, 2 / 3)),
        ("London, Paris, Rome", ["Paris"], (0, 1, 0.5)),
        ("new york new york", ["New York City"], (0, 0, 4 / 7)),
        ("Paris", ["Rome", "paris."], (1, 1, 1)),
        ("cathedral", ["Cat"], (0, 1, 0)),  # substring, as published
        ("Madrid", ["Rome"], (0, 0, 0)),
        (None, ["The"], (0, 0, 0)),
        ("", ["The"], (0, 0, 0)),
        (" \n", ["A"], (0, 0, 0)),
        ("...", ["The"], (0, 0, 0)),
        ("The", ["A"], (0, 0, 0)),
        ("London", ["A"], (0, 0, 0)),  # an empty gold would be a substring of everything
        ("London", [" "], (0, 0, 0)),
        ("A", ["a"], (1, 1, 1)),
    ],
)
def test_hand_worked_scores(prediction, accepted, scores):
    assert (em(prediction, accepted), cover_em(prediction, accepted), f1(prediction, accepted)) == pytest.approx(scores)


def test_f1_counts_han_by_character_under_the_unicode_normaliser():
    assert f1("東京都", ["東京"], "unicode") == pytest.approx(2 * 2 / (3 + 2))
    assert f1("東京都", ["東京"], "squad") == 0


@pytest.mark.parametrize("name", sorted(NORMALIZERS))
@given(predictions, golds)
def test_em_is_at_most_f1_and_cover_em(name, prediction, accepted):
    exact, cover, overlap = (metric(prediction, accepted, name) for metric in (em, cover_em, f1))
    assert exact in (0, 1) and cover in (0, 1) and 0 <= overlap <= 1
    assert exact <= overlap and exact <= cover


@pytest.mark.parametrize("metric", [em, cover_em, f1])
@given(predictions, golds, st.text(min_size=1, max_size=8))
def test_another_accepted_answer_never_lowers_a_score(metric, prediction, accepted, more):
    assert metric(prediction, [*accepted, more]) >= metric(prediction, accepted)


@pytest.mark.parametrize("metric", [em, cover_em, f1])
def test_without_a_prediction_every_score_is_zero(metric):
    assert metric(None, ["x"]) == metric("", ["x"]) == metric("\u3000", ["x"]) == 0
