"""Built indexes: one build however many ask, and nothing to open after one that was killed."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from ssrl.retrieval.store import built

FORK = multiprocessing.get_context("fork")


def slow_build(folder):
    with open(folder.parent / "builds", "a") as log:
        log.write(f"{os.getpid()}\n")
    time.sleep(0.5)
    (folder / "data").write_text("whole")


def halfway(folder):
    (folder / "data").write_text("hal")
    (folder.parent / "halfway").touch()
    time.sleep(60)


def test_two_processes_at_once_build_one(tmp_path):
    processes = [FORK.Process(target=built, args=(tmp_path, "kind", {"a": 1}, slow_build)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len((tmp_path / "builds").read_text().split()) == 1
    assert (built(tmp_path, "kind", {"a": 1}, pytest.fail) / "data").read_text() == "whole"


def test_a_killed_build_leaves_nothing_to_open_and_the_next_one_is_whole(tmp_path):
    process = FORK.Process(target=built, args=(tmp_path, "kind", {}, halfway))
    process.start()
    while not (tmp_path / "halfway").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not list(tmp_path.glob("kind-*[!k]"))
    folder = built(tmp_path, "kind", {}, slow_build)
    assert (folder / "data").read_text() == "whole" and not list(tmp_path.glob(".kind*part"))


def test_a_build_that_fails_leaves_nothing_to_open(tmp_path):
    with pytest.raises(ZeroDivisionError):
        built(tmp_path, "kind", {}, lambda folder: 1 / 0)
    assert built(tmp_path, "kind", {}, slow_build).is_dir()


def test_every_part_of_the_key_and_the_kind_name_another_folder(tmp_path):
    asked = [("a", {"x": 1}), ("b", {"x": 1}), ("a", {"x": 2}), ("a", {"y": 1}), ("a", {"x": 1, "y": 1}), ("a", {"x": "1"})]
    folders = {built(tmp_path, kind, key, lambda folder: None) for kind, key in asked}
    assert len(folders) == len(asked)
    assert built(tmp_path, "a", {"y": 1, "x": 1}, pytest.fail) in folders
    assert json.loads((built(tmp_path, "a", {"x": 2}, pytest.fail) / "key.json").read_text()) == {"x": 2}


def test_indexes_are_kept_in_the_users_cache_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("SSRL_CACHE", str(tmp_path))
    folder = built(None, "kind", {"a": 1}, lambda folder: (folder / "x").write_text("x"))
    assert folder.parent == tmp_path / "indexes" or tmp_path / "indexes" in folder.parents
