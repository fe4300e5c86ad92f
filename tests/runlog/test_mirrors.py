import csv
import time
import warnings
from pathlib import Path

import pytest

from ssrl.errors import UserError
from ssrl.runlog import mirrors
from ssrl.runlog.mirrors import Mirrors, open_mirrors, wandb_id

CONFIG = {"train": {"lr": 1e-6}, "note": "planted-wandb-key"}


def open_some(names, folder):
    return open_mirrors(names, folder, "fullsim-tiny", CONFIG, "ssrl", "offline")


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_an_unknown_mirror_is_named(tmp_path):
    with pytest.raises(UserError, match="'mlflow'; known mirrors are wandb, tensorboard, csv"):
        open_some(["mlflow"], tmp_path)


def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(mirrors, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install -e "\.\[wandb\]"'):
        open_some(["wandb"], tmp_path)


def test_a_folder_called_like_the_package_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "not_a_package").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not mirrors._installed("not_a_package") and mirrors._installed("json")


def test_the_wandb_id_is_that_of_the_run_folder():
    assert wandb_id(Path("runs/fullsim-grpo-tiny-0a1b2c3d/seed4")) == "fullsim-grpo-tiny-0a1b2c3d-seed4"
    assert len(wandb_id(Path("runs") / ("x" * 300) / "seed4")) == 128


def test_a_failing_mirror_is_reported_once_and_then_left_alone():
    class Broken:
        calls = 0

        def log_hyperparams(self, config):
            pass

        def log_metrics(self, numbers, step):
            self.calls += 1
            raise ConnectionError("no route")

    broken, opened = Broken(), Mirrors()
    opened.open("wandb", lambda: broken, {})
    with pytest.warns(RuntimeWarning, match="the wandb mirror failed .*ConnectionError: no route") as caught:
        opened.log({"a": 1.0}, 1)
        opened.log({"a": 1.0}, 2)
        opened.close()
    assert (len(caught), broken.calls, opened.alive) == (1, 1, ())


def test_a_mirror_that_cannot_be_opened_is_reported_and_the_others_work():
    opened = Mirrors()
    with pytest.warns(RuntimeWarning, match="the wandb mirror failed"):
        opened.open("wandb", lambda: 1 / 0, {})
    assert opened.alive == ()
    opened.log({"a": 1.0}, 1)


@pytest.mark.slow
def test_csv_and_tensorboard_hold_the_finite_numbers(tmp_path):
    opened = open_some(["csv", "tensorboard"], tmp_path)
    opened.log({"step": 1, "train/em": 0.25, "text": "x", "none": None, "nan": float("nan")}, 1)
    opened.log({"step": 2, "train/em": 0.5}, 2)
    assert opened.alive == ("csv", "tensorboard")
    opened.close()
    (table,) = tmp_path.rglob("metrics.csv")
    assert [row["train/em"] for row in csv.DictReader(table.open())] == ["0.25", "0.5"]

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(item.step, item.value) for item in events.Scalars("train/em")] == [(1, 0.25), (2, 0.5)]


@pytest.mark.slow
def test_wandb_works_offline_without_an_account_and_stores_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "planted-wandb-key")
    monkeypatch.setenv("SERPER_API_KEY", "planted-serper-key")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "tiny-0a1b2c3d" / "seed1"
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        opened = open_some(["wandb"], folder)
        opened.log({"train/em": 0.25}, 1)
        opened.close()
    (run,) = folder.glob("wandb/offline-run-*-tiny-0a1b2c3d-seed1")
    deadline = time.monotonic() + 20  # W&B's own process writes the file
    while b"train/em" not in everything_in(run) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert b"train/em" in everything_in(run)
    assert b"planted" not in everything_in(tmp_path)
