"""Two real processes that hold half of the weights each (FSDP2 over gloo) do what one process does, and leave what one can read."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from ssrl.training.files import read_rest, read_whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # up to six starts of the command line
BATCH = ("train.questions=3", "trainer.row_tokens=64", "train.lr=0.0001", "eval.every=2", "data.val.bundled.limit=5", "algo.critic.warmup_steps=1")
FSDP = ("trainer=fsdp2",)


def whole(run, role="last"):
    return read_whole(run.path / "checkpoints" / f"{role}.ckpt")


def gap(one, two):
    """Largest difference of two checkpoints' weights and of their optimisers' moments."""
    weights = max((one["state_dict"][name] - two["state_dict"][name]).abs().max().item() for name in one["state_dict"])
    moments = [
        (x["state"][i][key] - y["state"][i][key]).abs().max().item()
        for x, y in zip(one["optimizer_states"], two["optimizer_states"], strict=True)
        for i in x["state"]
        for key in ("exp_avg", "exp_avg_sq")
    ]
    return weights, max(moments)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("algo.kl=loss", "algo.kl_coef=0.1", "algo.updates=2", "trainer.cpu_offload=true"), id="a reference, two updates, offloaded"),
        pytest.param(("algo=ppo", "algo.updates=1", "algo.kl=none", "trainer.gradient_checkpointing=true"), id="a critic, activations recomputed"),
    ],
)
def test_two_sharded_processes_have_the_weights_moments_and_metrics_of_one(runs, words):
    code, said = runs.command("train.steps=2", *BATCH, *words, *FSDP, f"runs={runs.home / 'two'}")
    assert code == 0, said
    one = runs.run("train.steps=2", *BATCH, *[word for word in words if "offload" not in word])
    (two,) = runs.home.glob("two/*/seed0")
    two = type(one)(two)
    assert (two.path / "checkpoints" / "last.ckpt").is_dir() and two.path.parent.name == one.path.parent.name
    weights, moments = gap(whole(one), whole(two))
    assert weights < 1e-5 and moments < 1e-6
    rows = [[{k: v for k, v in row.items() if not k.startswith("time")} for row in run.metrics()] for run in (one, two)]
    for a, b in zip(*rows, strict=True):
        a.pop("train/input_tokens", 0), b.pop("train/input_tokens", 0)  # fillers are read, too
        assert a == pytest.approx(b, abs=1e-5)
    assert one.summary()["after"] == pytest.approx(two.summary()["after"], abs=1e-6)


def test_a_sharded_run_goes_on_sharded_or_not_and_exports_to_one_folder(runs):
    words = (*BATCH, "algo.kl=none", "train.lr=0.001")
    straight = runs.run("train.steps=3", *words, f"runs={runs.home / 'straight'}")
    for kinds in ((FSDP, FSDP, ()), ((), FSDP, FSDP)):
        home = runs.home / f"mixed{len(kinds[0])}"
        for step, kind in enumerate(kinds, start=1):
            code, said = runs.command(f"train.steps={step}", *words, *kind, f"runs={home}")
            assert code == 0, said
        (path,) = home.glob("*/seed0")
        found = type(straight)(path)
        assert read_rest(path / "checkpoints" / "last.ckpt")["ssrl"]["steps_done"] == 3
        weights, moments = gap(whole(straight), whole(found))
        assert weights < 1e-5 and moments < 1e-6
        hidden = [file.name for file in (path / "checkpoints").iterdir() if file.name.startswith(".")]
        assert len(hidden) == sum((path / "checkpoints" / f"{role}.ckpt").is_symlink() for role in ("last", "best"))
        runs.only("task=export", f"ckpt={path}/last", "trainer=cpu", folder=False)
        exported = AutoModelForCausalLM.from_pretrained(path / "export").state_dict()
        trained = {name.removeprefix("policy."): value for name, value in whole(found)["state_dict"].items()}
        assert all(torch.equal(exported[name], trained[name]) for name in exported)
