import re
from xml.etree import ElementTree

import pytest

from ssrl.errors import UserError
from ssrl.report.curves import charts, compare
from ssrl.runlog.folder import RunFolder


def test_a_run_has_the_named_charts_and_one_for_every_other_number():
    rows = [
        {"step": 0, "val/bundled/em": 0.1},
        {"step": 1, "time": 3.0, "train/em": 0.2, "loss/kl": 0.0, "time/update_s": 4.0, "text": "x"},
        {"step": 2, "time": 6.0, "train/em": None, "loss/kl": 0.1, "time/update_s": 5.0},
        {"step": 2, "val/bundled/em": 0.3},
    ]
    main, rest = charts(rows)
    assert [chart.key for chart in main] == ["em", "loss/kl"]
    assert [(line.label, line.points, line.dots) for line in main[0].series] == [
        ("train", ((1, 0.2),), False),
        ("val bundled", ((0, 0.1), (2, 0.3)), True),
    ]
    assert [chart.key for chart in rest] == ["time/update_s"]


def test_runs_are_compared_in_one_svg_file_that_needs_nothing_else(tmp_path, make_run):
    first, second = make_run(tmp_path / "a", steps=24), make_run(tmp_path / "b", steps=8, seed=1)
    out = compare({"quickstart <reward>": first.path, "published & reward": second.path}, tmp_path / "curves.svg", metrics=("reward", "em"))
    text = out.read_text()
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"quickstart <reward>", "published & reward", "Reward", "Exact match"} <= set(words)
    assert "Searches per rollout" not in words
    dots = root.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 4 + 2  # validation at steps 0, 8, 16, 24 and 0, 8
    assert not re.search(r"(href|src|url)\s*[=(]", text)


def test_the_comparison_can_be_a_page(tmp_path, make_run):
    out = compare({"a": make_run(tmp_path / "a", steps=2).path}, tmp_path / "curves.html")
    assert out.read_text().startswith("<!doctype html>")


def test_a_folder_without_metrics_and_a_wrong_ending_are_named(tmp_path):
    with pytest.raises(UserError, match="has no metrics.jsonl with rows"):
        compare({"a": tmp_path}, tmp_path / "curves.svg")
    RunFolder(tmp_path).append_metrics({"step": 1, "train/em": 0.1})
    with pytest.raises(UserError, match="curves.svg"):
        compare({"a": tmp_path}, tmp_path / "curves.png")
