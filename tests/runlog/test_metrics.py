import math

import pytest

from ssrl.errors import UserError
from ssrl.runlog.metrics import append_metrics, by_step, read_metrics, truncate_metrics


def test_rows_come_back_in_order_with_nan_as_none(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append_metrics(path, {"step": 1, "train/em": 0.5})
    append_metrics(path, {"step": 2, "train/em": math.nan})
    assert read_metrics(path) == [{"step": 1, "train/em": 0.5}, {"step": 2, "train/em": None}]
    assert "NaN" not in path.read_text()


def test_a_row_without_a_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="step"):
        append_metrics(tmp_path / "metrics.jsonl", {"train/em": 0.5})


def test_a_torn_last_line_is_dropped_on_reading_and_cut_on_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1}\n{"step":2}\n{"step":3,"tra')
    assert [row["step"] for row in read_metrics(path)] == [1, 2]
    assert truncate_metrics(path, 2) == 0
    append_metrics(path, {"step": 3})
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]


def test_resuming_drops_rows_beyond_the_checkpoint_so_that_no_step_appears_twice(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2, 3, 4, 5):
        append_metrics(path, {"step": step})
    assert truncate_metrics(path, 3) == 2
    for step in (4, 5):
        append_metrics(path, {"step": step})
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3, 4, 5]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1}\n{"st\n{"step":3}\n')
    with pytest.raises(UserError, match="line 2 of"):
        read_metrics(path)


def test_no_file_has_no_rows(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []
    assert truncate_metrics(tmp_path / "metrics.jsonl", 3) == 0


def test_rows_of_one_step_are_merged():
    rows = [{"step": 2, "train/em": 0.1}, {"step": 1, "train/em": 0.0}, {"step": 2, "val/em": 0.4}]
    assert by_step(rows) == [{"step": 1, "train/em": 0.0}, {"step": 2, "train/em": 0.1, "val/em": 0.4}]
