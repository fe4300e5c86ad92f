"""Two real processes over gloo, started by the real command line, do what one does."""

import os
import signal

import pytest
import torch

from ssrl.runlog.folder import State
from ssrl.runlog.rollouts import read_rollouts, rollout_files

pytestmark = pytest.mark.slow
TWO = ("trainer=ddp2",)
# three questions for two processes, and rows that hold one group at most: the second process has less to do and runs fillers
BATCH = ("train.questions=3", "trainer.row_tokens=64", "train.lr=0.0001", "eval.every=2", "data.val.bundled.limit=5")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("algo.kl=none", "trainer.balance=false"), id="plain, each trains what it sampled"),
        pytest.param(("algo.kl=loss", "algo.kl_coef=0.1", "algo.updates=2", "algo.aggregate=sequence_mean"), id="KL and two updates a batch"),
        pytest.param(("algo.kl=none", "algo.correction=token", "train.pipeline=true"), id="sampled ahead"),
    ],
)
def test_two_processes_have_the_gradients_weights_and_records_of_one(runs, gradients, words):
    kept = runs.home / "gradients"
    kept.mkdir()
    code, said = runs.command("train.steps=3", *BATCH, *words, *TWO, f"runs={runs.home / 'two'}", env={"GRADIENTS": str(kept)})
    assert code == 0, said
    one = runs.run("train.steps=3", *BATCH, *words)
    (two,) = runs.home.glob("two/*/seed0")
    two = type(one)(two)
    assert len(gradients) == 3 * (2 if "algo.updates=2" in words else 1)
    for step, expected in enumerate(gradients):
        for rank in range(2):
            found = torch.load(kept / f"{rank}-{step}.pt")
            gap = max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))
            assert gap < 1e-6, (step, rank)
    left, right = runs.weights(one), runs.weights(two)
    assert max((left[name] - right[name]).abs().max().item() for name in left) < 1e-5
    assert two.path.parent.name == one.path.parent.name  # the number of processes is no part of the identity
    rows = [[{k: v for k, v in row.items() if not k.startswith("time")} for row in run.metrics()] for run in (one, two)]
    assert len(rows[0]) == len(rows[1])
    for a, b in zip(*rows, strict=True):
        a.pop("train/input_tokens", 0), b.pop("train/input_tokens", 0)  # fillers are read, too
        assert a == pytest.approx(b, abs=1e-5)
    for run in (one, two):
        counts = {(split, step): len(list(read_rollouts(path))) for split, step, path in rollout_files(run.path / "rollouts")}
        assert counts == {
            **{("train", step): 12 for step in (1, 2, 3)},
            **{("val.bundled", step): 5 for step in (0, 2, 3)},
            **{("test.bundled", step): 3 for step in (0, 3)},
        }
    assert said.count("before and after training") == 1 and said.count("1/3") == 1  # only the first process speaks
    assert one.summary()["after"] == pytest.approx(two.summary()["after"], abs=1e-6)


def test_dynamic_sampling_on_two_processes_trains_the_groups_that_one_would(graded):
    words = ("algo=dapo", "train.steps=2", "train.questions=5", "rollout.n=2", "train.lr=0.0001")
    code, said = graded.command(*words, *TWO, f"runs={graded.home / 'two'}", env={"REWARD": "right_or_wrong"})
    assert code == 0, said
    one = graded.run(*words)
    (two,) = graded.home.glob("two/*/seed0")
    two = type(one)(two)
    rows = [[row for row in run.metrics() if "rollout/batches" in row] for run in (one, two)]
    assert any(row["rollout/batches"] > 1 for row in rows[0])
    for a, b in zip(*rows, strict=True):
        same = {key for key in a if not key.startswith("time") and key != "train/input_tokens"}
        assert {key: a[key] for key in same} == pytest.approx({key: b[key] for key in same}, abs=1e-5)
    left, right = graded.weights(one), graded.weights(two)
    assert max((left[name] - right[name]).abs().max().item() for name in left) < 1e-5


def test_ctrl_c_to_one_process_stops_both_at_the_same_step_and_the_run_goes_on(runs):
    process = runs.start("train.steps=4000", "train.save_every=1000", *BATCH, *TWO)
    try:
        runs.wait_for(lambda: list(runs.home.glob("runs/*/seed0/rollouts/train-2.*")), process)
        os.kill(process.pid, signal.SIGINT)  # the second process is not told
        said, _ = process.communicate()
    finally:
        runs.end(process)
    assert process.returncode == 130, said
    folder = runs.folder()
    assert folder.status().state is State.INTERRUPTED and "Traceback" not in said
    done = folder.status().step
    assert runs.run(f"train.steps={done + 1}", "train.save_every=1000", *BATCH).status().step == done + 1


def test_a_batch_without_a_signal_does_not_hang_two_processes(runs):
    code, said = runs.command("train.steps=2", "train.questions=2", "algo.kl=none", "algo.updates=2", *TWO, rewarded=False)
    assert code == 0, said
    assert [row["train/trained_tokens"] for row in runs.folder().metrics() if "train/lr" in row] == [0, 0]
