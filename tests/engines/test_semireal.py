"""The simulator: what it is told, how it is read, and that no call sees another's question."""

import pytest

from ssrl.engines.curriculum import Noise
from ssrl.engines.documents import Wrapper
from ssrl.engines.semireal import SemiReal
from ssrl.errors import UserError
from ssrl.types import SearchStatus
from tests.engines.parts import Echo, Watcher, call


def engine(chat=None, p=0.0, watcher=None, **options):
    return SemiReal(chat or Echo(), watcher or Watcher(), Wrapper(), Noise(schedule="constant", start=p), **options)


def test_a_reply_becomes_documents_with_the_published_rendering():
    semireal = engine(Echo("Doc 1: one.\n\nDoc 2: two.\nDoc 3: three"), topk=2)
    (result,) = semireal.search([call()])
    assert [d.text for d in result.documents] == ["one.", "two."] and result.latency_s == 0.25
    assert semireal.render(result) == "Doc 1: one.\nDoc 2: two."


def test_each_call_is_about_its_own_question_and_its_first_answer():
    chat = Echo()
    calls = [call(f"query {i}", question=f"Question {i}?", answers=(f"gold {i}", f"alias {i}"), name=str(i), seed=i) for i in range(4)]
    engine(chat, prompt="tuned").search(calls[2:])
    engine(chat).search(calls[:2])
    for asked, i in zip(chat.asked, (2, 3, 0, 1), strict=True):
        assert all(text in asked.text for text in (f"query {i}", f"Question {i}?", f"gold {i}")) and "alias" not in asked.text
        assert not any(f"gold {j}" in asked.text for j in range(4) if j != i)
    assert len({asked.seed for asked in chat.asked}) == 4


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_noise_is_drawn_for_each_call_by_its_own_seed(p):
    semireal = engine(p=p, prompt="tuned")
    noisy = ["noisy documents" in semireal.request(call(seed=seed)).text for seed in range(2000)]
    assert sum(noisy) / 2000 == pytest.approx(p, abs=0.04 if 0 < p < 1 else 0)
    assert noisy == ["noisy documents" in semireal.request(call(seed=seed)).text for seed in range(2000)]


def test_noise_follows_the_step_of_the_call():
    semireal = SemiReal(Echo(), Watcher(), Wrapper(), Noise(total=10, start=0.0, end=1.0), prompt="tuned")
    shares = [sum("noisy documents" in semireal.request(call(seed=s, step=step)).text for s in range(500)) / 500 for step in (0, 5, 10)]
    assert shares == pytest.approx([0.0, 1 / 3, 1.0], abs=0.07) and shares[0] == 0 and shares[2] == 1


def test_the_noisy_prompt_of_an_untuned_model_gives_nothing_away():
    text = engine(p=1.0).request(call(question="Who wrote it?", answers=("Austen",))).text
    assert "Austen" not in text and "Who wrote it?" not in text and "1887" not in text
    assert "Austen" in engine(p=0.0).request(call(question="Who wrote it?", answers=("Austen",))).text


def test_failed_and_empty_replies_keep_their_status():
    watcher = Watcher()
    (failed,) = engine(Echo(status=SearchStatus.TIMEOUT), watcher=watcher).search([call()])
    assert (failed.status, failed.error, failed.documents) == (SearchStatus.TIMEOUT, "refused", ())
    (empty,) = engine(Echo(answer=" \n"), watcher=watcher).search([call()])
    assert empty.status is SearchStatus.EMPTY and watcher.batches == [[SearchStatus.TIMEOUT], [SearchStatus.OK]]
    assert engine(watcher=watcher).search([]) == [] and len(watcher.batches) == 2
    with pytest.raises(UserError, match="start the shelf"):
        engine(Echo(status=SearchStatus.ERROR), watcher=Watcher(patience=0)).search([call()])


def test_one_ping_says_how_to_start_the_simulator():
    assert engine().ping() >= 0
    with pytest.raises(UserError, match=r"echo does not answer \(refused\); start an echo"):
        engine(Echo(status=SearchStatus.ERROR)).ping()


def test_it_always_answers_and_names_what_its_answers_depend_on():
    semireal = engine(p=0.25)
    assert semireal.answers and not semireal.may_decline and semireal.count_invalid
    assert semireal.identity["simulator"] == "echo" and semireal.identity["noise"] == "constant 0.25"
    with pytest.raises(UserError, match="prompted, tuned|tuned, prompted"):
        engine(prompt="x")
