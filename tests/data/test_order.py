"""The stream of questions: every question once an epoch, and a resume that changes nothing."""

import pytest

from ssrl.data.order import QuestionStream
from ssrl.types import Question

QUESTIONS = [Question(id=str(k), text=f"What is {k}?", answers=(str(k),)) for k in range(8)]


def ids(draws):
    return [draw.question.id for draw in draws]


def test_every_epoch_is_a_permutation_and_epochs_differ():
    epochs = [ids(QuestionStream(QUESTIONS, seed=1, cursor=8 * k).take(8)) for k in range(4)]
    assert all(sorted(epoch) == sorted(ids) for epoch, ids in zip(epochs, [[one.id for one in QUESTIONS]] * 4, strict=True))
    assert len({tuple(epoch) for epoch in epochs}) == 4


@pytest.mark.parametrize("start", [0, 2, 5, 6, 8, 13])
def test_six_draws_are_three_and_three_after_a_resume(start):
    """Mid-epoch (0, 2), at the border (5 + 3 = 8), across it (6), after it (8) and at a later border (13 + 3 = 16)."""
    whole = QuestionStream(QUESTIONS, seed=7, cursor=start).take(6)
    first = QuestionStream(QUESTIONS, seed=7, cursor=start)
    head = first.take(3)
    resumed = QuestionStream(QUESTIONS, seed=7, cursor=first.cursor)
    assert head + resumed.take(3) == whole
    assert [draw.position for draw in whole] == list(range(start, start + 6))
    assert [draw.epoch for draw in whole] == [position // 8 for position in range(start, start + 6)]


def test_a_batch_may_be_larger_than_an_epoch():
    draws = QuestionStream(QUESTIONS[:2], seed=0).take(5)
    assert [draw.epoch for draw in draws] == [0, 0, 1, 1, 2]


def test_the_order_depends_on_the_seed():
    assert ids(QuestionStream(QUESTIONS, seed=1).take(8)) != ids(QuestionStream(QUESTIONS, seed=2).take(8))


def test_the_order_of_a_seed_never_changes():
    """A frozen value: a run that was begun with an older Python or package must go on in the same order."""
    assert ids(QuestionStream(QUESTIONS, seed=0).take(8)) == ORDER_OF_SEED_0


def test_an_empty_stream_and_a_negative_cursor_are_refused():
    with pytest.raises(ValueError, match="at least one question"):
        QuestionStream([], seed=0)
    with pytest.raises(ValueError, match="-1"):
        QuestionStream(QUESTIONS, seed=0, cursor=-1)


ORDER_OF_SEED_0 = ["1", "4", "3", "2", "6", "0", "5", "7"]
