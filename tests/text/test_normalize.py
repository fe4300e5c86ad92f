import re
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.text.metrics import em
from ssrl.text.normalize import NORMALIZERS, comparable, squad, unicode

words = st.lists(st.sampled_from(["the", "A", "an", "Paris", "-", "U.S.", "1,000", "’", "  ", "\t", "naïve", "東京", "_", "ＡＢ"]), max_size=8)
texts = st.one_of(st.text(max_size=20), words.map(" ".join), words.map("".join))


def squad_as_published(text: str) -> str:
    """The four steps of the SQuAD evaluation, in their order."""
    text = text.lower()
    text = "".join(char for char in text if char not in set(string.punctuation))
    text = re.sub(r"\b(a|an|the)\b", " ", text)
    return " ".join(text.split())


@given(texts)
def test_squad_is_bit_compatible(text):
    assert squad(text) == squad_as_published(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The U.S.", "us"),
        ("1,000", "1000"),
        ("well-known", "wellknown"),
        ("an apple  a day", "apple day"),
        ("“Lima”", "“lima”"),  # Unicode punctuation stays
        ("theatre", "theatre"),
        ("The", ""),
        ("A", ""),
    ],
)
def test_squad_on_hand_worked_answers(text, expected):
    assert squad(text) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("it’s", "it's"),
        ("“Lima”", "Lima"),
        ("1939–1945", "1939-1945"),
        ("−5", "-5"),
        ("caf\u00e9", "cafe\u0301"),
        ("１９８４", "1984"),
        ("ＮＡＳＡ", "nasa"),
        ("ｶﾞ", "ガ"),
        ("東京。", "東京"),
        ("「東京」", "東京"),
        ("東京　タワー", "東京タワー"),
        ("Straße", "STRASSE"),
        ("Li\u200bma\ufeff", "lima"),
        ("l´amour", "l'amour"),
        ("¿Lima?", "the Lima"),
    ],
)
def test_unicode_sees_through_typography_that_squad_does_not(left, right):
    assert unicode(left) == unicode(right) != ""


@pytest.mark.parametrize(("left", "right"), [("東京", "京都"), ("x²", "x2"), ("ﬁ", "fj"), ("Zürich", "Zurich"), ("か", "が"), ("5€", "5$")])
def test_unicode_keeps_apart_what_differs(left, right):
    assert unicode(left) != unicode(right)


def test_unicode_splits_han_and_kana_but_not_hangul_or_latin():
    assert unicode("The iPhone手機です 서울") == "iphone 手 機 で す 서울"


@given(texts)
def test_unicode_gives_one_form_to_canonically_equal_texts(text):
    assert unicode(unicodedata.normalize("NFD", text)) == unicode(unicodedata.normalize("NFC", text)) == unicode(text)


@pytest.mark.parametrize("name", sorted(NORMALIZERS))
@given(texts)
def test_a_normalised_text_is_words_joined_by_single_spaces(name, text):
    assert " ".join(NORMALIZERS[name](text).split()) == NORMALIZERS[name](text)


@pytest.mark.parametrize("name", sorted(NORMALIZERS))
@given(texts)
def test_the_compared_form_is_empty_only_for_blank_text(name, text):
    assert (comparable(text, name) == "") == (text.strip() == "")


@pytest.mark.parametrize("name", sorted(NORMALIZERS))
def test_answers_of_nothing_but_articles_or_punctuation_equal_themselves_only(name):
    odd = ["The", "A", "an", "the the", "!!!", "?", "-"]
    for left in odd:
        for right in odd:
            assert em(left, [right], name) == float(left == right), (left, right)
    assert em("the", ["The"], name) == em("The!", ["the"], name) == 1.0


@given(texts, texts)
def test_published_scores_hold_wherever_both_sides_keep_a_word(prediction, gold):
    if squad_as_published(prediction) and squad_as_published(gold):
        assert em(prediction, [gold]) == float(squad_as_published(prediction) == squad_as_published(gold))


def letters(text: str) -> str:
    """What is left of `text` for a reader who ignores case, punctuation and whole-word articles."""
    text = re.sub(r"[-'’!.,]", "", text.lower())
    return "".join(char for word in text.split() if word not in ("a", "an", "the") for char in word)


pieces = st.lists(st.sampled_from(["the ", "A ", " an", "Paris", "paris ", "par", "is", "-", "'", "!", ".", " ", "7", "ant", "東", "é"]), max_size=5)


@pytest.mark.parametrize("name", sorted(NORMALIZERS))
@given(pieces.map("".join), pieces.map("".join))
def test_em_never_matches_texts_whose_letters_differ_beyond_articles(name, left, right):
    if em(left, [right], name):
        assert letters(left) == letters(right)
        assert letters(left) or left.split() == right.split() or re.sub(r"\W", "", left).lower() == re.sub(r"\W", "", right).lower() != ""


def test_letters_beside_a_han_character_are_no_article():
    assert unicode("東the") == "東 the" and unicode("the 東") == "東"
