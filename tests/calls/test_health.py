"""When a run stops because what answers it has failed too often."""

import pytest

from ssrl.calls.health import Health
from ssrl.errors import UserError
from ssrl.types import SearchStatus

OK, EMPTY, TIMEOUT, ERROR = SearchStatus.OK, SearchStatus.EMPTY, SearchStatus.TIMEOUT, SearchStatus.ERROR


def test_it_does_not_judge_before_a_fifth_of_the_window_is_known():
    health = Health(0.5, 50, "start it")
    health.note([ERROR] * 9)
    with pytest.raises(UserError):
        health.note([TIMEOUT])


def test_the_error_gives_the_figures_and_the_command():
    health = Health(0.05, 100, "python -m ssrl task=serve retriever=bm25")
    with pytest.raises(UserError) as error:
        health.note([OK] * 18 + [TIMEOUT, ERROR])
    assert str(error.value) == (
        "2 of the last 20 calls to the outside failed, which is more than calls.max_error_frac=0.05 allows. "
        "Start or repair what answers them, then run the same command to continue: python -m ssrl task=serve retriever=bm25"
    )


def test_the_allowed_share_itself_and_empty_answers_are_no_reason():
    health = Health(0.05, 100, "")
    health.note([ERROR] + [EMPTY] * 19)  # 1 of 20
    with pytest.raises(UserError):
        health.note([ERROR])  # 2 of 21


def test_what_left_the_window_is_forgotten():
    health = Health(0.5, 10, "")
    health.note([OK] * 5 + [ERROR] * 5)
    health.note([OK] * 5 + [OK] * 5)
    health.note([ERROR] * 5)  # 5 of 10
    with pytest.raises(UserError, match="6 of the last 10"):
        health.note([ERROR])


def test_a_share_of_one_never_stops():
    Health(1.0, 5, "").note([ERROR] * 100)


@pytest.mark.parametrize("wrong", [(1.5, 10), (-0.1, 10), (0.5, 0)])
def test_impossible_thresholds_are_refused(wrong):
    with pytest.raises(UserError, match="type calls"):
        Health(*wrong, "")
