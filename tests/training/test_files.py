"""A checkpoint is whole or not there."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch

from ssrl.training.files import AtomicCheckpointIO

KILLED = """
import os, signal, sys, torch
from ssrl.training.files import AtomicCheckpointIO

class Bomb:
    def __reduce__(self):  # pickled in the middle of the file, after the first tensor
        os.kill(os.getpid(), signal.SIGKILL)

AtomicCheckpointIO().save_checkpoint({"weights": torch.ones(1_000_000), "bomb": Bomb()}, sys.argv[1])
"""
SAVES_FOR_EVER = """
import itertools, sys, torch
from ssrl.training.files import AtomicCheckpointIO

for number in itertools.count(1):
    AtomicCheckpointIO().save_checkpoint({"weights": torch.full((4_000_000,), float(number)), "number": number}, sys.argv[1])
    print(number, flush=True)
"""


def test_what_is_saved_comes_back_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "checkpoints" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"weights": torch.arange(3)}, path)
    AtomicCheckpointIO().save_checkpoint({"weights": torch.arange(4)}, path)
    assert torch.equal(torch.load(path)["weights"], torch.arange(4))
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_save_leaves_the_checkpoint_before(tmp_path):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(5)}, path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert torch.equal(torch.load(path)["weights"], torch.zeros(5))


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    path = tmp_path / "last.ckpt"
    with subprocess.Popen([sys.executable, "-c", SAVES_FOR_EVER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        part = path.with_name(".last.ckpt.part")
        for _ in range(20_000):  # catch it while the temporary file grows
            if part.exists() and 0 < part.stat().st_size < 16_000_000:
                break
            time.sleep(0.0005)
        process.kill()
    assert part.exists(), "the process was not caught in a save"
    saved = torch.load(path)
    assert (saved["weights"] == saved["number"]).all()
    AtomicCheckpointIO().save_checkpoint({"number": 0}, path)  # the next save clears the rest away
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_full_disk_is_an_operating_system_error_and_leaves_the_checkpoint_before(tmp_path):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(5)}, path)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError):
            AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(1_000_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert torch.equal(torch.load(path)["weights"], torch.zeros(5))
    assert os.listdir(tmp_path) == ["last.ckpt"]
