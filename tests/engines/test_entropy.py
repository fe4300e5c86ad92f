"""The gate of entropy-guided search, with numbers worked by hand."""

import math

import pytest

from ssrl.engines.documents import Wrapper
from ssrl.engines.entropy import SIGNALS, EntropyGuided, rises
from ssrl.errors import UserError
from tests.engines.parts import Shelf, call, sure

HALF, QUARTER = math.log(0.5), math.log(0.25)


@pytest.mark.parametrize(
    ("signal", "logprobs", "entropies", "expected"),
    [
        ("entropy", (HALF, HALF), (0.5, 1.0), 0.75),
        ("topk_entropy", (HALF,), (0.25,), 0.25),
        ("surprisal", (HALF, QUARTER), None, 1.5 * math.log(2)),  # (1 + 2)/2 bits
        ("plog2p", (HALF, QUARTER), None, 0.5),  # 0.5·1 and 0.25·2 bits
        ("plog2p", (0.0,), None, 0.0),
        ("plog2p", (-800.0,), None, 0.0),  # the least likely token has no signal: the defect of the published one
        ("surprisal", (-800.0,), None, 800.0),
    ],
)
def test_each_signal_in_numbers(signal, logprobs, entropies, expected):
    assert SIGNALS[signal](sure(*logprobs, entropies=entropies)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("signals", "window", "threshold", "expected"),
    [
        ([0.1], 1, 0.0, True),  # the first is always answered
        ([0.1], 1, 9.0, True),
        ([0.3, 0.4], 1, 0.0, True),
        ([0.4, 0.3], 1, 0.0, False),
        ([0.3, 0.3], 1, 0.0, False),  # no rise
        ([0.3, 0.4], 1, 0.2, False),
        ([0.3, 0.4], 1, -0.5, True),
        ([0.1, 0.9, 0.6], 1, 0.0, False),  # 0.6 < 0.9
        ([0.1, 0.9, 0.6], 2, 0.0, True),  # 0.6 > 0.5
        ([0.1, 0.9, 0.6], 5, 0.0, True),  # a window longer than the history is the history
        ([9.0, 0.1, 0.2, 0.3], 2, 0.0, True),  # 9.0 has left the window: 0.3 > 0.15
        ([9.0, 0.1, 0.2, 0.3], 3, 0.0, False),
    ],
)
def test_a_later_query_is_answered_where_its_signal_rises(signals, window, threshold, expected):
    assert rises(signals, window, threshold) is expected


def test_only_uncertain_calls_reach_the_retriever_and_results_stay_with_their_calls(watcher):
    shelf = Shelf({"first": ["F"], "rising": ["R"]})
    engine = EntropyGuided(shelf, watcher, Wrapper(), signal="surprisal")
    calls = [
        call("falling", queries=[sure(-2.0), sure(-1.0)]),
        call("first", queries=[sure(-0.1)]),
        call("equal", queries=[sure(-1.0), sure(-1.0)]),
        call("rising", queries=[sure(-9.0), sure(-1.0), sure(-2.0)]),
    ]
    results = engine.search(calls)
    assert [r and r.documents[0].text for r in results] == [None, "F", None, "R"]
    assert shelf.asked == [(["first", "rising"], 3)]
    assert engine.search(calls[::-1]) == results[::-1]  # nothing is kept between calls
    assert engine.search(calls[:1]) == [None] and len(shelf.asked) == 2 and len(watcher.batches) == 2


def test_an_empty_search_before_is_no_history(watcher):
    engine = EntropyGuided(Shelf({"q": ["Q"]}), watcher, Wrapper(), signal="plog2p")
    assert engine.search([call("q", queries=[sure(), sure(HALF)])])[0].documents


@pytest.mark.parametrize(("signal", "kind"), [("entropy", 0), ("topk_entropy", 7), ("surprisal", None), ("plog2p", None)])
def test_calls_carry_the_entropy_that_the_signal_needs(watcher, signal, kind):
    engine = EntropyGuided(Shelf({}), watcher, Wrapper(), signal=signal, signal_topk=7)
    assert engine.entropy == kind and engine.may_decline and engine.identity["signal"] == signal


@pytest.mark.parametrize("options", [{"signal": "vibes"}, {"window": 0}])
def test_unknown_signals_and_windows_are_refused(watcher, options):
    with pytest.raises(UserError, match="engine"):
        EntropyGuided(Shelf({}), watcher, Wrapper(), **options)
