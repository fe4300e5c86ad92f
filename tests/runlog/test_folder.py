import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from ssrl.errors import UserError
from ssrl.runlog.folder import RunFolder, State

OWNER = """
import sys, time
from ssrl.runlog.folder import RunFolder
with RunFolder(sys.argv[1]).claim():
    print("claimed", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path):
    """Another process that owns `tmp_path`."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.wait()


def test_two_processes_cannot_own_a_folder_and_the_error_names_the_owner(tmp_path, owner):
    with pytest.raises(UserError) as error, RunFolder(tmp_path).claim():
        pass
    sentence = str(error.value)
    assert f"process {owner.pid} on host {socket.gethostname()}" in sentence and "seed=" in sentence
    assert RunFolder(tmp_path).claimed()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, owner):
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert json.loads((tmp_path / "owner.json").read_text())["pid"] == owner.pid
    with RunFolder(tmp_path).claim():
        assert json.loads((tmp_path / "owner.json").read_text())["pid"] == os.getpid()
    assert not (tmp_path / "owner.json").exists() and not RunFolder(tmp_path).claimed()


def test_a_folder_can_be_claimed_again_after_an_error(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "a")
    with pytest.raises(RuntimeError), folder.claim():
        raise RuntimeError
    with folder.claim():
        assert folder.claimed()


def test_a_run_is_running_and_then_done(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.status() is None
    with folder.tracked("python -m ssrl seed=1", step=2):
        status = folder.status()
        assert (status.state, status.step, status.command) == (State.RUNNING, 2, "python -m ssrl seed=1")
        assert (status.pid, status.host) == (os.getpid(), socket.gethostname())
        folder.set_status(State.RUNNING, step=5)
    done = folder.status()
    assert (done.state, done.step, done.started, done.error) == (State.DONE, 5, status.started, None)


def test_a_failed_run_keeps_its_traceback_without_the_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "planted-serper-key")
    folder = RunFolder(tmp_path)
    with pytest.raises(ZeroDivisionError), folder.tracked("python -m ssrl"):
        raise ZeroDivisionError("key planted-serper-key")
    status = folder.status()
    assert status.state is State.FAILED and "ZeroDivisionError: key <SERPER_API_KEY>" in status.error
    assert "planted" not in (tmp_path / "status.json").read_text()


def test_ctrl_c_is_an_interruption_and_a_state_set_inside_stays(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt), folder.tracked("python -m ssrl"):
        raise KeyboardInterrupt
    assert folder.status().state is State.INTERRUPTED
    with folder.tracked("python -m ssrl"):
        folder.set_status(State.INTERRUPTED, step=4)
    assert (folder.status().state, folder.status().step) == (State.INTERRUPTED, 4)


def test_rewinding_drops_later_metrics_and_rollouts(tmp_path):
    folder = RunFolder(tmp_path)
    for step in range(4):
        folder.append_metrics({"step": step})
        folder.rollouts.append("train", step, [{"step": step}])
    folder.rewind(1)
    assert [row["step"] for row in folder.metrics()] == [0, 1]
    assert sorted(os.listdir(tmp_path / "rollouts")) == ["train-0.jsonl.zst", "train-1.jsonl.zst"]
    folder.rewind(-1)
    assert folder.metrics() == [] and os.listdir(tmp_path / "rollouts") == []
