import errno
import json
import os

import pytest

from ssrl.errors import UserError
from ssrl.runlog.files import append_bytes, dumps, read_json, write_json
from ssrl.types import Status


def test_json_is_strict_and_plain():
    value = {"nan": float("nan"), "inf": float("-inf"), "tuple": (1, True, None), "status": Status.ENDED, 3: 0.5}
    assert json.loads(dumps(value)) == {"nan": None, "inf": None, "tuple": [1, True, None], "status": "ended", "3": 0.5}


def test_a_secret_of_the_environment_is_redacted_but_ordinary_values_are_not(monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", 'sk-"quoted"-123')
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "nonsense")
    text = dumps({"error": 'GET ?key=sk-"quoted"-123 nonsense'})
    assert json.loads(text) == {"error": "GET ?key=<SERPER_API_KEY> nonsense"}


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    write_json(tmp_path / "a.json", {"x": 2})
    assert read_json(tmp_path / "a.json") == {"x": 2}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_is_a_sentence_and_the_old_file_is_intact(tmp_path, monkeypatch):
    path = tmp_path / "status.json"
    write_json(path, {"step": 1})

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="no space left to write .*status.json.*run the same command to continue"):
        write_json(path, {"step": 2})
    assert read_json(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["status.json"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_appending_to_a_full_disk_is_a_sentence(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(UserError, match="no space left"):
        append_bytes(path, b"{}\n")


def test_a_missing_file_reads_as_none_and_a_broken_one_is_named(tmp_path):
    assert read_json(tmp_path / "no.json") is None
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match="bad.json is not valid JSON"):
        read_json(tmp_path / "bad.json")
