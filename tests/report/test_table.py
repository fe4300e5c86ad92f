"""A table's figures against ones worked out by hand, and how they are written."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ssrl.config import ColumnConfig, TableConfig
from ssrl.errors import UserError
from ssrl.report.table import Figure, gather
from ssrl.report.table_page import mean_curves, table_page
from ssrl.report.table_text import latex, markdown
from ssrl.runlog.folder import RunFolder
from ssrl.table import UNTRAINED, Cell

SUMMARIES = {("a", 0): 0.25, ("a", 1): 0.75, ("b", 0): 0.5, (UNTRAINED, 0): 0.125, (UNTRAINED, 1): 0.125}
ENTROPY = {("a", 0): [3.0, 2.0, 1.5], ("a", 1): [5.0, 4.0, 0.5], ("b", 0): [1.0, 1.0, 1.0]}


def make_table(**columns: ColumnConfig) -> TableConfig:
    return TableConfig(name="mine", title="Ours & others", rows=["algo"], columns=columns)


EM = ColumnConfig(title="EM", metrics=["test/*/em"])


@pytest.fixture
def cells(tmp_path) -> list[Cell]:
    """Row `b` lacks its second seed; the test sets are two, of which `other` is always at 0."""
    made = []
    for row in (UNTRAINED, "a", "b"):
        for seed in (0, 1):
            folder = RunFolder(tmp_path / row / f"seed{seed}")
            if (row, seed) in SUMMARIES:
                with folder.claim(), folder.tracked("python -m ssrl", step=3):
                    for step, value in enumerate(ENTROPY.get((row, seed), []), 1):
                        clipped = {"loss/low": 0.25, "loss/high": 0.5} if row == "a" else {}
                        folder.append_metrics({"step": step, "train/entropy": value, "train/reward": value / 10} | clipped)
                    after = {"test/one/em": SUMMARIES[row, seed], "test/other/em": 0.0}
                    folder.write_summary({"before": {"test/one/em": 0.0625} if row == "b" else {}, "after": after, "test_sets": ["test/one", "test/other"]})
            made.append(Cell(row=row, seed=seed, steps=0 if row == UNTRAINED else 3, folder=folder.path, command=f"python -m ssrl algo={row} seed={seed}", before="m"))
    return made


def test_figures_are_means_over_seeds_with_their_sample_deviation(cells):
    columns = {
        "em": EM,
        "before": ColumnConfig(metrics=["test/one/em"], of="before"),
        "first": ColumnConfig(metrics=["train/entropy"], of="first"),
        "last": ColumnConfig(metrics=["train/entropy"], of="last"),
        "mean": ColumnConfig(metrics=["train/entropy"], of="mean"),
        "median": ColumnConfig(metrics=["train/entropy"], of="median"),
        "clipped": ColumnConfig(metrics=["loss/low", "loss/high", "loss/selected"], of="mean"),
    }
    untrained, a, b = gather(make_table(**columns), cells).rows
    # over the two sets 0.125 and 0.375; their deviation is the difference over the square root of 2
    assert a.figures["em"] == Figure(mean=0.25, spread=pytest.approx(0.25 / 2**0.5), seeds=2)
    assert a.figures["before"] == Figure(mean=0.125, spread=0.0, seeds=2)  # measured by the untrained cells of the same seeds
    assert (a.figures["first"].mean, a.figures["last"].mean, a.figures["median"].mean) == (4.0, 1.0, 3.0)
    assert a.figures["mean"].mean == pytest.approx((6.5 / 3 + 9.5 / 3) / 2)
    assert a.figures["clipped"] == Figure(mean=0.75, spread=0.0, seeds=2)
    assert (b.figures["em"], b.figures["before"].mean) == (Figure(mean=0.25, spread=None, seeds=1), 0.0625)
    assert "clipped" not in b.figures
    assert set(untrained.figures) == {"em"} and untrained.figures["em"].mean == 0.0625


def test_figures_before_training_are_those_of_the_untrained_row_only_where_the_model_before_training_is_the_same(cells):
    cells = [replace(cell, before="other") if cell.row == "a" else cell for cell in cells]
    report = gather(make_table(em=EM, before=ColumnConfig(metrics=["test/one/em"], of="before")), cells)
    (line,) = [line for line in markdown(report).splitlines() if line.startswith("| a ")]
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["a", "0.250 ± 0.177", "–", "2"]


def test_a_missing_cell_is_shown_with_its_command_and_counts_for_nothing(cells):
    report = gather(make_table(em=EM), cells)
    assert [(cell.row, cell.seed, state) for cell, state in report.missing] == [("b", 1, "not started")]
    text = markdown(report)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert rows[:5] == [
        ["algo", "EM", "seeds"],
        ["---------------------------", "------------:", "-----:"],
        ["untrained (before training)", "0.062 ± 0.000", "2"],
        ["a", "0.250 ± 0.177", "2"],
        ["b", "0.250", "1 of 2"],
    ]
    assert rows[-1] == ["b", "1", "not started", "`python -m ssrl algo=b seed=1`"]


def test_a_run_that_ended_before_the_tables_number_of_steps_is_missing_and_a_longer_one_is_said(cells, tmp_path):
    with (folder := RunFolder(tmp_path / "b" / "seed1")).claim(), folder.tracked("x", step=2):
        pass
    with (folder := RunFolder(tmp_path / "a" / "seed1")).claim(), folder.tracked("x", step=9):
        pass
    report = gather(make_table(em=EM), cells)
    assert [state for _, state in report.missing] == ["step 2 of 3"]
    assert "a, seed 1, was trained for 9 steps instead of 3." in markdown(report)


def test_a_failed_and_a_killed_run_are_missing(cells, tmp_path):
    folder = RunFolder(tmp_path / "b" / "seed1")
    with pytest.raises(ZeroDivisionError), folder.claim(), folder.tracked("x"):
        raise ZeroDivisionError
    status = tmp_path / "a" / "seed0" / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"state": "running"}))
    assert {(cell.row, state) for cell, state in gather(make_table(em=EM), cells).missing} == {("a", "stopped without notice"), ("b", "failed")}


def test_a_column_that_no_run_has_is_an_error_only_when_all_have_ended(cells):
    table = make_table(em=EM, typo=ColumnConfig(metrics=["test/*/me"]))
    assert "typo" not in gather(table, cells).rows[0].figures
    with pytest.raises(UserError, match=r"no run of mine has test/\*/me \(after\) for the column typo: .*~table.columns.typo"):
        gather(table, cells[:-1])


def test_published_values_stand_below_and_must_belong_to_a_column(cells):
    table = make_table(em=EM, other=ColumnConfig(metrics=["test/other/em"], digits=1))
    table.published = {"a": {"em": 0.5}}
    (line,) = [line for line in markdown(gather(table, cells)).splitlines() if line.startswith("| a (published)")]
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["a (published)", "0.500", "–", ""]
    table.published = {"a": {"f1": 0.5}}
    with pytest.raises(UserError, match="f1, which is no column of mine; known: em, other"):
        gather(table, cells)


def test_latex_escapes_what_it_must(cells):
    table = make_table(em=ColumnConfig(title="EM_%", metrics=["test/*/em"]))
    lines = latex(gather(table, cells)).splitlines()
    assert lines[1].startswith("% missing: b, seed 1")
    assert lines[2:5] == [r"\begin{tabular}{lrr}", r"\toprule", r"algo & EM\_\% & seeds \\"]
    assert r"a & 0.250 $\pm$ 0.177 & 2 \\" in lines and lines[-1] == r"\end{tabular}"


def test_curves_are_means_over_the_seeds_that_have_a_step(cells):
    rows = gather(make_table(em=EM), cells).rows
    assert mean_curves(rows, "train/entropy") == {"a": ((1, 4.0), (2, 3.0), (3, 1.0)), "b": ((1, 1.0), (2, 1.0), (3, 1.0))}


def test_the_page_shows_figures_curves_and_runs_and_asks_for_nothing_from_outside(cells):
    evil = "<b>evil</b>"
    cells = [*cells, Cell(row=evil, seed=0, steps=3, folder=Path("nowhere"), command=evil, before="m")]
    page = table_page(gather(make_table(em=EM), cells))
    assert "0.250 ± 0.177" in page and "Ours &amp; others" in page and "1 of 2" in page
    assert page.count("<figure") == 2 * 2  # reward and entropy, of two rows
    assert evil not in page and "&lt;b&gt;evil" in page
    assert not re.findall(r"<[^>]*\b(?:src|href|action)=", page) and "<script" not in page
    assert "python -m ssrl algo=b seed=1" in page and "not started" in page
