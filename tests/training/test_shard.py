"""Weights that are cut over two real processes (FSDP2 over gloo) learn what whole weights learn."""

import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ssrl.policy.shard import Scope, WholeWeights, is_sharded, shard, whole
from ssrl.training import ranks
from ssrl.training.experience import Layout
from ssrl.training.learner import Learner
from tests.training.updates import OBJECTIVES, batch, configured, parts, take

CASES = {
    "grpo": [],
    "grpo, activations recomputed, logits in chunks": ["trainer.gradient_checkpointing=true", "trainer.logprob_chunk=5"],
    "grpo, KL in the loss, two updates": ["trainer.cpu_offload=true"],
    "gspo": ["trainer.row_tokens=30"],
    "ppo": [],
    "ppo on the policy's trunk": ["trainer.share_prompt=false"],
}


def learned(words, mesh=None, half=False):
    """(Gradients of each update, final weights), of this process's groups. `half`: under bf16 autocast."""
    config = configured(words)
    model, reference, critic = parts("qwen2" if "gspo" in words[0] else "llama", config, config.model.attention)
    if config.trainer.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
    root = Scope(torch.nn.ModuleList([module for module in (model, critic) if module is not None]))
    learner = Learner(config, model, reference, critic, scope=root)
    if mesh is not None:
        how = {"half": half, "offload": config.trainer.cpu_offload}
        shard(root, [model.get_decoder(), *([critic.trunk] if critic is not None and critic.trunk is not None else [])], mesh, **how)
        if reference is not None:
            learner.reference_scope = Scope(reference)
            shard(learner.reference_scope, [reference.get_decoder()], mesh, **how)
        assert is_sharded(model)
    found = []

    def optimise(losses, rows):
        for _ in range(int(ranks.largest(float(rows), torch.device("cpu")))):
            (next(losses)[0] * ranks.world_size()).backward()
        found.append([whole(g) for g in take(model, critic)])
        return {}

    rollouts, rewards = batch()
    mine = [i for i in range(len(rollouts)) if i // 3 % ranks.world_size() == ranks.rank()]
    layout = Layout.of([rollouts[i] for i in mine], mine, torch.device("cpu"))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        learner.learn(layout, rewards[mine], 1, optimise)
    return found, dict(WholeWeights(model))


def one(rank, folder, words, half):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(learned(words, init_device_mesh("cpu", (2,)), half), folder / f"{rank}.pt")
    dist.barrier()
    os._exit(0)  # a forked process must not run its parent's exit handlers


@pytest.mark.parametrize("case", CASES)
def test_two_sharded_processes_have_the_gradients_and_weights_of_one(tmp_path, case):
    words = OBJECTIVES[case.removesuffix(", activations recomputed, logits in chunks")] + CASES[case]
    gradients, weights = learned([word for word in words if "offload" not in word])
    for found, ends in two_processes(tmp_path, words):
        assert len(found) == len(gradients)
        for update, expected in zip(found, gradients, strict=True):
            assert max((a - b).abs().max().item() for a, b in zip(update, expected, strict=True)) < 1e-5
        assert ends.keys() == weights.keys()
        assert max((ends[name] - weights[name]).abs().max().item() for name in weights) < 1e-5


@pytest.mark.parametrize("case", ["grpo", "ppo"])
def test_under_bf16_autocast_two_sharded_processes_are_as_near_to_float32_as_one_is(tmp_path, case):
    words = OBJECTIVES[case]
    exact, _ = learned(words)
    alone, _ = learned(words, half=True)

    def off(gradients):
        """Of the first update: later ones begin with other weights."""
        pairs = list(zip(gradients[0], exact[0], strict=True))
        return (sum((a - b).square().sum().item() for a, b in pairs) / sum(b.square().sum().item() for _, b in pairs)) ** 0.5

    for found, ends in two_processes(tmp_path, words, half=True):
        assert 0 < off(found) < 2 * off(alone) < 0.2
        assert all(weight.dtype == torch.float32 for weight in ends.values())


def two_processes(folder, words, half=False):
    """What each of them learned."""
    context = multiprocessing.get_context("fork")  # everything is imported already
    processes = [context.Process(target=one, args=(rank, folder, words, half)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]
