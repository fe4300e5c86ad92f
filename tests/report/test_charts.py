import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.report.charts import Series, draw, frame, running_mean, thinned, ticks


@pytest.mark.parametrize(
    "low, high, expected",
    [(0, 1, [0, 0.25, 0.5, 0.75, 1]), (0, 37, [0, 10, 20, 30, 40]), (-0.03, 0.02, [-0.04, -0.02, 0, 0.02]), (0, 4, [0, 1, 2, 3, 4])],
)
def test_ticks_are_round_numbers_around_the_data(low, high, expected):
    assert ticks(low, high) == expected


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_hold_the_data_and_are_few(low, width):
    marks = ticks(low, low + width)
    assert marks[0] <= low + 1e-6 * width and marks[-1] >= low + width - 1e-6 * width
    assert 2 <= len(marks) <= 7


def test_values_that_are_never_negative_are_drawn_from_zero_and_steps_from_zero():
    where = frame([Series(label="a", points=((10, 50.0), (20, 60.0)))], 330, 180)
    assert where.y[0] == 0 and where.x == (0, 20)
    assert frame([Series(label="a", points=((1, -1.0), (2, 1.0)))], 330, 180).y[0] < 0


@pytest.mark.parametrize("points", [((3, 0.5),), ((1, 0.0), (2, 0.0)), ((0, -2.0),)])
def test_a_single_or_constant_value_can_be_drawn(points):
    line = Series(label="a", points=points)
    drawing = draw([line], frame([line], 330, 180))
    assert not re.search(r"nan|inf", drawing)


def test_points_are_placed_in_the_plot_box():
    where = frame([Series(label="a", points=((0, 0.0), (10, 1.0)))], 330, 180)
    left, top, right, bottom = where.box
    assert (
        where.at((0, 0.0)) == (left, bottom)
        and where.at((10, 1.0)) == (right, top)
        and where.at((5, 0.5)) == ((left + right) / 2, (top + bottom) / 2)
    )


def test_the_running_mean_is_centred():
    assert running_mean([(1, 1.0), (2, 4.0), (3, 1.0), (4, 4.0)], 3) == [(1, 2.5), (2, 2.0), (3, 3.0), (4, 2.5)]


def test_long_lines_are_averaged_in_bins():
    points = [(step, math.sin(step)) for step in range(3100)]
    few = thinned(points, 500)
    assert len(few) <= 500
    assert few[0] == (3, sum(value for _, value in points[:7]) / 7)


def test_labels_are_escaped():
    line = Series(label="<script>", points=((1, 1.0),))
    assert "<script>" not in draw([line], frame([line], 330, 180))


@pytest.mark.parametrize("values", [[0.0], [5e-324], [1e-320, 0.0], [-1e-17, 2e-17], [-0.05, -0.05 * (1 + 1e-16)], [3.0, 3.0], [-2.0]])
def test_values_that_rounding_leaves_are_drawn_as_a_flat_line(values):
    where = frame([Series(label="x", colour=0, points=tuple(enumerate(values)))], 100, 100)
    assert where.y[0] <= min(values) and where.y[1] >= max(values) and where.y[1] - where.y[0] > 1e-13
