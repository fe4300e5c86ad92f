"""Real runs of the tiny model: in this process for speed, or as the command line that a person types."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ssrl import tasks
from ssrl.check import check
from ssrl.compose import Composer
from ssrl.runlog.folder import RunFolder
from ssrl.types import Rollout, Score
from tests.lines import prepare
from tests.tasks.rewards import even_share, right_or_wrong

ROOT = Path(__file__).parents[2]
SMALL = (
    "model=tiny experiment=quickstart trainer=cpu trainer.precision=32-true trainer.threads=1 rollout.dtype=float32 "
    "rollout.n=4 rollout.temperature=1 rollout.max_response_tokens=12 rollout.max_prompt_tokens=400 prompt.template='{question}' "
    "eval.every=0 eval.samples=0 train.questions=2 train.lr=0.001 train.warmup_steps=2 "
    "data.train.bundled.limit=7 data.val.bundled.limit=3 data.test.bundled.limit=3"
).split()
SITE = """
import itertools, os, torch
import ssrl.tasks.build
from tests.tasks import rewards
from torch.optim.optimizer import register_optimizer_step_pre_hook

ssrl.tasks.build.Reward = lambda *args, **kwargs: getattr(rewards, os.environ.get("REWARD", "even_share"))
if folder := os.environ.get("GRADIENTS"):
    numbers = itertools.count()

    def keep(optimizer, args, kwargs):
        gradients = [p.grad.clone() for group in optimizer.param_groups for p in group["params"]]
        torch.save(gradients, f"{folder}/{os.environ.get('LOCAL_RANK', '0')}-{next(numbers)}.pt")

    register_optimizer_step_pre_hook(keep)
"""

@dataclass
class Runs:
    """Runs under one folder; `words` are added to the small configuration, and later ones win."""

    home: Path
    rule: Callable[[Rollout], Score] = even_share
    scored: list[Rollout] = field(default_factory=list)  # every rollout that was rewarded

    def words(self, *words: str) -> list[str]:
        last = {word.lstrip("+").partition("=")[0]: word for word in (*SMALL, f"runs={self.home / 'runs'}", *words)}
        return list(last.values())

    def reward(self, rollout: Rollout) -> Score:
        self.scored.append(rollout)
        return self.rule(rollout)

    def run(self, *words: str) -> RunFolder:
        """Train in this process as a person would by typing `words`, and return the run's folder."""
        return self.only(*self.words(*words))

    def only(self, *words: str, folder: bool = True) -> RunFolder | None:
        """Do what `words` say, without the small configuration."""
        given = {word.partition("=")[0]: word for word in (f"runs={self.home / 'runs'}", *words)}
        rewritten = prepare(list(given.values()))
        (tree,) = Composer().jobs(rewritten, multirun=False)
        check(tree)
        tasks.run(OmegaConf.to_object(tree), rewritten)
        return self.folder() if folder else None

    def folder(self) -> RunFolder:
        """The run that was last changed."""
        return RunFolder(max(self.home.glob("*/*/seed*"), key=lambda path: (path / "status.json").stat().st_mtime_ns))

    def start(self, *words: str, rewarded: bool = True, python: str = sys.executable, **options) -> subprocess.Popen:
        """The command line in a process group of its own."""
        site = self.home / "site"
        site.mkdir(exist_ok=True)
        if rewarded:
            (site / "sitecustomize.py").write_text(SITE)
        path = os.pathsep.join([str(site), str(ROOT)])
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"} | options.pop("env", {})
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
        return subprocess.Popen([python, "-m", "ssrl", *self.words(*words)], cwd=self.home, env=env, start_new_session=True, **options)

    def command(self, *words: str, **options) -> tuple[int, str]:
        """Exit code and output of the command line."""
        process = self.start(*words, **options)
        try:
            said, _ = process.communicate()
        finally:
            self.end(process)
        return process.returncode, said

    @staticmethod
    def end(process: subprocess.Popen) -> None:
        """Leave nothing of a process group behind."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    @staticmethod
    def wait_for(condition: Callable[[], bool], process: subprocess.Popen) -> None:
        """Until the condition holds (a test has a time limit of its own); the process must stay alive meanwhile."""
        while not condition():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)

    @staticmethod
    def weights(folder: RunFolder, role: str = "last") -> dict[str, torch.Tensor]:
        """The policy in a checkpoint."""
        return torch.load(folder.path / "checkpoints" / f"{role}.ckpt", weights_only=False)["state_dict"]


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Runs:
    """Runs in a folder of the test, rewarded by `even_share`."""
    runs = Runs(tmp_path)
    monkeypatch.setattr("ssrl.tasks.build.Reward", lambda *args, **kwargs: runs.reward)
    return runs


@pytest.fixture
def graded(runs) -> Runs:
    """Runs whose rollouts are right or wrong, each about half of the time."""
    runs.rule = right_or_wrong
    return runs


@pytest.fixture
def gradients():
    """The gradients of every optimiser step while a test runs: one list of tensors a step."""
    steps: list[list[torch.Tensor]] = []
    hook = register_optimizer_step_pre_hook(
        lambda optimizer, args, kwargs: steps.append([p.grad.clone() for group in optimizer.param_groups for p in group["params"]])
    )
    yield steps
    hook.remove()
