"""A step's questions are those of the stream, whoever asks for them."""

from ssrl.data.order import QuestionStream
from ssrl.training import ranks
from ssrl.training.data import QuestionBatches
from ssrl.types import Question

QUESTIONS = [Question(id=str(i), text=f"Which is {i}?", answers=("x",)) for i in range(7)]


def test_batches_go_on_from_a_cursor_across_the_border_of_an_epoch():
    whole = QuestionStream(QUESTIONS, 3).take(15)
    assert [draw for batch in QuestionBatches(QUESTIONS, 3, 6, 3, 3) for draw in batch] == whole[6:15]


def test_processes_share_every_batch_without_gap_or_overlap(monkeypatch):
    whole = list(QuestionBatches(QUESTIONS, 3, 0, 4, 5))
    parts = []
    for rank in range(2):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(ranks, "world_size", lambda: 2)
        parts.append(list(QuestionBatches(QUESTIONS, 3, 0, 4, 5)))
    for step, batch in enumerate(whole):
        first, second = parts[0][step], parts[1][step]
        assert (len(first), len(second)) == (3, 2)
        assert sorted(first + second, key=lambda draw: draw.position) == batch
