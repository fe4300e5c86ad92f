"""Real processes that are stopped, killed, or find their folder taken or their disk full."""

import os
import pty
import resource
import signal
import subprocess

import pytest
import torch

from ssrl.runlog.folder import RunFolder, State

pytestmark = pytest.mark.slow
LONG = ("train.steps=4000", "train.save_every=1000")


def steps(runs):
    """Training steps that the run has recorded so far."""
    found = list(runs.home.glob("runs/*/seed0"))
    return len([row for row in RunFolder(found[0]).metrics() if "train/reward" in row]) if found else 0


@pytest.fixture
def started(runs):
    """A run of many steps in a process of its own, after its second step."""
    process = runs.start(*LONG)
    try:
        runs.wait_for(lambda: steps(runs) >= 2, process)
        yield process
    finally:
        runs.end(process)


def test_ctrl_c_finishes_the_step_saves_and_the_same_command_goes_on(runs, started):
    os.killpg(started.pid, signal.SIGINT)
    said, _ = started.communicate()
    assert started.returncode == 130, said
    assert "press Ctrl-C again" in said and "repeat the same command to continue" in said and "Traceback" not in said
    folder = runs.folder()
    done = folder.status().step
    assert folder.status().state is State.INTERRUPTED and 2 <= done < 4000
    assert not folder.claimed()
    assert torch.load(folder.path / "checkpoints" / "last.ckpt", weights_only=False)["ssrl"]["steps_done"] == done
    runs.run(f"train.steps={done + 2}", LONG[1])
    continued = runs.weights(folder)
    folder.path.rename(runs.home / "first")
    unbroken = runs.weights(runs.run(f"train.steps={done + 2}", LONG[1]))
    assert all(torch.equal(continued[name], unbroken[name]) for name in unbroken)


def test_a_second_ctrl_c_stops_at_once_without_harm(runs, started):
    os.kill(started.pid, signal.SIGSTOP)  # both signals wait for it, so that the second comes within the step
    os.kill(started.pid, signal.SIGINT)
    os.kill(started.pid, signal.SIGCONT)
    for _ in range(200):
        os.kill(started.pid, signal.SIGINT)
        if started.poll() is not None:
            break
    said, _ = started.communicate()
    assert started.returncode == 130, said
    assert runs.folder().status().state is State.INTERRUPTED
    assert runs.run("train.steps=1").status().state is State.DONE


def test_sigterm_is_a_request_to_stop_as_well(runs, started):
    os.kill(started.pid, signal.SIGTERM)
    said, _ = started.communicate()
    assert started.returncode == 143, said
    assert runs.folder().status().state is State.INTERRUPTED and "saved" in said


def test_a_killed_run_leaves_its_folder_to_the_next_and_a_live_one_does_not(runs, started):
    code, said = runs.command("train.steps=3", "train.save_every=1000")
    assert code == 2 and "Traceback" not in said
    assert f"in use by process {started.pid}" in said
    started.kill()
    started.wait()
    folder = runs.run("train.steps=3", "train.save_every=1000")
    assert folder.status().step == 3
    assert [row["step"] for row in folder.metrics() if "train/reward" in row] == [1, 2, 3]


def limited():
    """At most 300 kB a file: the tiny model's checkpoint does not fit, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def test_a_full_disk_is_one_sentence_and_the_checkpoint_before_stays(runs):
    folder = runs.run("train.steps=2")
    before = (folder.path / "checkpoints" / "last.ckpt").read_bytes()
    code, said = runs.command("train.steps=3", preexec_fn=limited)
    assert code == 2, said
    assert "Traceback" not in said and "make room and repeat the command" in said
    assert (folder.path / "checkpoints" / "last.ckpt").read_bytes() == before
    assert sorted(os.listdir(folder.path / "checkpoints")) == ["last.ckpt"]
    assert runs.run("train.steps=3").status().step == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_disk_that_is_really_full_loses_nothing(runs):
    small = runs.home / "runs"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        folder = runs.run("train.steps=2")
        before = (folder.path / "checkpoints" / "last.ckpt").read_bytes()
        (small / "filler").write_bytes(b"\0" * (os.statvfs(small).f_bavail * os.statvfs(small).f_frsize - 64_000))
        code, said = runs.command("train.steps=3")
        assert code == 2 and "Traceback" not in said, said
        assert (folder.path / "checkpoints" / "last.ckpt").read_bytes() == before
        (small / "filler").unlink()
        assert runs.run("train.steps=3").status().step == 3
    finally:
        subprocess.run(["umount", str(small)], check=True)  # refused where a run still holds a checkpoint open


def test_a_terminal_sees_one_live_line_and_every_step(runs):
    screen, terminal = pty.openpty()
    process = runs.start("train.steps=2", "eval.every=1", env={"TERM": "xterm"}, stdout=terminal, stderr=terminal)
    os.close(terminal)
    said = b""
    try:
        while True:
            try:
                said += os.read(screen, 65536)
            except OSError:  # the other end is closed
                break
        assert process.wait() == 0, said.decode(errors="replace")
    finally:
        runs.end(process)
        os.close(screen)
    text = said.decode(errors="replace")
    assert "step 1 of 2" in text and "testing on 3 questions" in text and "validating on 3 questions" in text
    assert "2/2" in text and "Traceback" not in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # the cursor is back
