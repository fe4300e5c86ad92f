"""The cache: equal keys, ages, several processes, processes that are killed."""

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ssrl.calls.cache import Cache
from ssrl.errors import UserError

ROOT = Path(__file__).parents[2]


def test_a_value_comes_back_for_an_equal_key_whatever_the_order_of_its_fields(tmp_path):
    cache = Cache(tmp_path / "deep" / "cache.db")
    cache.put({"query": "q", "topk": 3}, [{"text": "Zoë \ud800 \x00", "score": 0.5}])
    assert cache.get({"topk": 3, "query": "q"}) == [{"text": "Zoë \ud800 \x00", "score": 0.5}]
    assert cache.get({"topk": 4, "query": "q"}) is None
    assert cache.get({"topk": "3", "query": "q"}) is None
    assert cache.get({"query": "q"}) is None


def test_an_empty_value_is_a_value_and_a_later_one_replaces_it(tmp_path):
    cache = Cache(tmp_path / "cache.db")
    cache.put({"q": 1}, [])
    assert cache.get({"q": 1}) == []
    cache.put({"q": 1}, ["new"])
    assert cache.get({"q": 1}) == ["new"]


def test_another_cache_on_the_same_file_sees_what_was_put_at_once(tmp_path):
    one, other = Cache(tmp_path / "cache.db"), Cache(tmp_path / "cache.db")
    one.put({"q": 1}, "a")
    assert other.get({"q": 1}) == "a"


def test_a_value_grows_old_after_the_days_that_were_named(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache.db", days=2)
    cache.put({"q": 1}, "a")
    forever = Cache(tmp_path / "cache.db")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1.99 * 86400)
    assert cache.get({"q": 1}) == "a"
    monkeypatch.setattr(time, "time", lambda: now + 2.01 * 86400)
    assert cache.get({"q": 1}) is None
    assert forever.get({"q": 1}) == "a"
    cache.put({"q": 1}, "b")
    assert cache.get({"q": 1}) == "b"


def test_threads_share_one_cache(tmp_path):
    cache = Cache(tmp_path / "cache.db")

    def work(thread):
        for index in range(50):
            cache.put({"thread": thread, "index": index}, index)
            assert cache.get({"thread": thread, "index": index}) == index

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(cache.get({"thread": thread, "index": index}) == index for thread in range(4) for index in range(50))


def write_many(path, process, start):
    start.wait()
    cache = Cache(path)
    for index in range(100):
        cache.put({"process": process, "index": index}, {"from": process})
        cache.put({"shared": index}, "same")


def test_several_processes_open_and_write_one_file(tmp_path):
    context = multiprocessing.get_context("fork")
    start = context.Event()
    writers = [context.Process(target=write_many, args=(tmp_path / "cache.db", process, start)) for process in range(2)]
    [writer.start() for writer in writers]
    start.set()  # both make the file at the same moment
    [writer.join(60) for writer in writers]
    assert [writer.exitcode for writer in writers] == [0, 0]
    cache = Cache(tmp_path / "cache.db")
    assert all(cache.get({"process": process, "index": index}) == {"from": process} for process in range(2) for index in range(100))
    assert all(cache.get({"shared": index}) == "same" for index in range(100))


def test_a_process_killed_while_writing_leaves_all_it_reported_and_a_whole_file(tmp_path):
    code = (
        "import itertools, sys\n"
        "from ssrl.calls.cache import Cache\n"
        "cache = Cache(sys.argv[1])\n"
        "for index in itertools.count():\n"
        "    cache.put({'index': index}, {'index': index, 'text': 'x' * 5000})\n"
        "    print(index, flush=True)\n"
    )
    path = tmp_path / "cache.db"
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    for _ in range(40):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    last = 39 + len(writer.stdout.read().split())
    writer.wait()
    cache = Cache(path)
    assert all(cache.get({"index": index}) == {"index": index, "text": "x" * 5000} for index in range(last + 1))
    assert cache.get({"index": last + 2}) is None
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    cache.put({"index": -1}, "goes on")
    assert cache.get({"index": -1}) == "goes on"


def test_values_are_plain_json_in_the_file(tmp_path):
    cache = Cache(tmp_path / "cache.db")
    cache.put({"b": 1, "a": "é"}, ["v"])
    cache.close()
    with sqlite3.connect(tmp_path / "cache.db") as database:
        [(key, value)] = database.execute("SELECT key, value FROM answers").fetchall()
    assert json.loads(key) == {"a": "é", "b": 1} and json.loads(value) == ["v"]


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes, " * 100)
    with pytest.raises(UserError, match=r"calls.cache=.*notes.txt cannot be used \(file is not a database\)"):
        Cache(path)
    assert path.read_text() == "my notes, " * 100


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"calls.cache=.* cannot be used .*calls.cache=null"):
        Cache(tmp_path / "file" / "cache.db")


@pytest.mark.parametrize("wrong", [float("nan"), object()])
def test_a_value_that_is_no_json_is_a_defect_and_not_stored(tmp_path, wrong):
    cache = Cache(tmp_path / "cache.db")
    with pytest.raises((TypeError, ValueError)):
        cache.put({"q": 1}, wrong)
    assert cache.get({"q": 1}) is None
