"""The noise of the simulator, against the published table (FACTS 2.3)."""

import pytest

from ssrl.engines.curriculum import Noise, rise
from ssrl.errors import UserError

TABLE = {  # i/m: p for (start, end)
    0.0: {(0, 0.75): 0.0, (0, 0.5): 0.0, (0, 0.25): 0.0, (0.25, 0.5): 0.25},
    0.25: {(0, 0.75): 0.1036, (0, 0.5): 0.0690, (0, 0.25): 0.0345, (0.25, 0.5): 0.2845},
    0.5: {(0, 0.75): 0.25, (0, 0.5): 0.1667, (0, 0.25): 0.0833, (0.25, 0.5): 0.3333},
    0.75: {(0, 0.75): 0.4571, (0, 0.5): 0.3047, (0, 0.25): 0.1524, (0.25, 0.5): 0.4024},
    1.0: {(0, 0.75): 0.75, (0, 0.5): 0.5, (0, 0.25): 0.25, (0.25, 0.5): 0.5},
}


@pytest.mark.parametrize("share", TABLE)
@pytest.mark.parametrize("ends", [(0, 0.75), (0, 0.5), (0, 0.25), (0.25, 0.5)])
def test_the_published_table(share, ends):
    start, end = ends
    assert Noise(total=200, start=start, end=end)(round(200 * share)) == pytest.approx(TABLE[share][ends], abs=6e-5)


def test_after_the_last_step_p_stays_and_it_never_falls_on_the_way():
    noise = Noise(total=10, start=0.25, end=0.5)
    values = [noise(step) for step in range(15)]
    assert values == sorted(values) and values[10:] == [0.5] * 5


@pytest.mark.parametrize(("schedule", "expected"), [("random", 0.5), ("constant", 0.2)])
def test_the_ablations_do_not_move(schedule, expected):
    noise = Noise(schedule=schedule, total=10, start=0.2, end=0.9)
    assert {noise(step) for step in range(12)} == {expected}


def test_base_one_is_the_straight_line_that_others_tend_to():
    assert rise(0.3, 1.0) == 0.3 == pytest.approx(rise(0.3, 1.0001), abs=1e-4)


@pytest.mark.parametrize("options", [{"schedule": "x"}, {"start": -0.1}, {"end": 1.1}, {"base": 0.0}])
def test_what_is_no_probability_is_refused(options):
    with pytest.raises(UserError, match="simulator"):
        Noise(**options)


def test_it_says_what_it_is():
    assert str(Noise(total=203, end=0.75)) == "curriculum 0 to 0.75 in 203 steps, base 4" and str(Noise(schedule="random")) == "random"
