"""Full-real and Sim2Real over a shelf of documents."""

import pytest

from ssrl.engines.documents import Wrapper
from ssrl.engines.none import NoEngine
from ssrl.engines.real import FullReal, Sim2Real
from ssrl.errors import UserError
from ssrl.types import SearchStatus
from tests.engines.parts import Shelf, Watcher, call

TEXTS = {"a": ["A1", "A2", "A3", "A4"], "b": ["B1"]}


def texts(result):
    return [document.text for document in result.documents]


def test_every_call_gets_its_own_documents_in_order(watcher):
    shelf = Shelf(TEXTS)
    engine = FullReal(shelf, watcher, Wrapper(), topk=3)
    assert [texts(r) for r in engine.search([call("b"), call("a"), call("zzz")])] == [["B1"], ["A1", "A2", "A3"], []]
    assert shelf.asked == [(["b", "a", "zzz"], 3)]
    assert watcher.batches == [[SearchStatus.OK, SearchStatus.OK, SearchStatus.EMPTY]]


def test_equal_queries_of_a_batch_are_asked_once_and_sub_sampled_apart(watcher):
    shelf = Shelf(TEXTS)
    engine = FullReal(shelf, watcher, Wrapper(), topk=4, documents="random")
    results = engine.search([call("a", seed=seed) for seed in range(30)])
    assert shelf.asked == [(["a"], 4)] and len(watcher.batches[0]) == 1
    assert {len(r.documents) for r in results} == {1, 2, 3, 4}
    assert [r.cached for r in results] == [False] + [True] * 29 and [r.latency_s for r in results[:2]] == [0.5, 0.0]
    alone = [FullReal(Shelf(TEXTS), watcher, Wrapper(), topk=4, documents="random").search([call("a", seed=seed)])[0] for seed in range(30)]
    assert [texts(r) for r in results] == [texts(r) for r in alone]  # no draw depends on the batch


def test_no_calls_ask_nobody(watcher):
    shelf = Shelf(TEXTS)
    assert FullReal(shelf, watcher, Wrapper()).search([]) == [] and shelf.asked == watcher.batches == []


def test_failures_are_results_until_the_watch_complains():
    shelf = Shelf(TEXTS, missing=SearchStatus.TIMEOUT)
    (result,) = FullReal(shelf, Watcher(), Wrapper()).search([call("x")])
    assert result.status is SearchStatus.TIMEOUT and result.error == "not there"
    with pytest.raises(UserError, match="start the shelf"):
        FullReal(shelf, Watcher(patience=0), Wrapper()).search([call("x")])


def test_one_ping_says_who_does_not_answer_and_how_to_start_it(watcher):
    assert FullReal(Shelf({}), watcher, Wrapper()).ping() >= 0
    with pytest.raises(UserError, match=r"engine=sim2real: shelf of tests does not answer \(not there\); build a shelf"):
        Sim2Real(Shelf({}, missing=SearchStatus.ERROR), watcher, Wrapper()).ping()


def test_sim2real_is_full_real_for_k_searches(watcher):
    three, every = (Sim2Real(Shelf(TEXTS), watcher, Wrapper(), k=k) for k in (3, None))
    assert (three.max_turns, three.may_decline, three.count_invalid) == (3, True, False) and every.max_turns > 10**9
    assert Sim2Real(Shelf(TEXTS), watcher, Wrapper(), count="turns").count_invalid
    assert (three.identity["k"], every.identity["k"]) == ("3", "all")
    full = FullReal(Shelf(TEXTS), watcher, Wrapper(), max_turns=2)
    assert (full.max_turns, full.may_decline, full.answers, full.entropy) == (2, False, True, None)


def test_an_identity_names_what_answers_depend_on(watcher):
    def identity(**options):
        return FullReal(Shelf(TEXTS), watcher, Wrapper(**options.pop("wrapper", {})), **options).identity

    base = identity()
    assert base["engine"] == "fullreal" and base["retriever"] == "shelf of tests"
    others = [identity(topk=5), identity(documents="random"), identity(max_turns=1), identity(wrapper={"style": "raw"}), identity(wrapper={"clean": True})]
    assert all(other != base for other in others) and all(isinstance(value, str) for value in base.values())


@pytest.mark.parametrize("options", [{"max_turns": 0}, {"retry_message": "use <search> tags"}])
def test_impossible_settings_are_refused(watcher, options):
    with pytest.raises(UserError, match="engine"):
        FullReal(Shelf(TEXTS), watcher, Wrapper(), **options)


def test_no_engine_declines_as_full_sim_does_but_expects_no_information():
    engine = NoEngine()
    assert engine.search([call()]) == [None] and not engine.answers and not engine.may_decline
    assert engine.identity == {"engine": "none"}
