"""A small batch, and objectives: what the tests of updates compare on."""

import functools
import random

import torch
from omegaconf import OmegaConf

from ssrl.compose import Composer
from ssrl.policy.critic import Critic
from ssrl.types import Block, Question, Rollout, Source, Status
from tests.families import V, make

T, RATE = 0.8, 0.05
OBJECTIVES = {
    "grpo": ["algo=grpo", "algo.kl=none"],
    "grpo, KL in the loss, two updates": ["algo=grpo", "algo.kl=loss", "algo.kl_coef=0.1", "algo.updates=2"],
    "gspo": ["algo=gspo", "algo.updates=2"],
    "ppo": ["algo=ppo", "algo.updates=2", "algo.kl=reward", "algo.kl_coef=0.05", "algo.entropy_coef=0.01", "algo.lam=0.9"],
    "ppo on the policy's trunk": ["algo=ppo", "algo.updates=2", "algo.critic.shared=true", "algo.kl=none", "algo.entropy_coef=0"],
}


def member(draw, group, prompt, spans):
    """A rollout of stretches (policy, engine, policy, …) of these lengths; engine stretches are read and not trained."""
    sources = [Source.ENGINE if i % 2 else Source.POLICY for i, span in enumerate(spans) for _ in range(span)]
    n = len(sources)
    return Rollout(
        question=Question(id=group, text="q", answers=("a",)), group=group, sample=0, prompt_ids=tuple(prompt),
        ids=tuple(draw.randrange(V) for _ in range(n)), sources=tuple(sources), blocks=(Block.OUTSIDE,) * n, turns=(0,) * n,
        logprobs=tuple(-3.0 if s is Source.POLICY else float("nan") for s in sources), trained=tuple(s is Source.POLICY for s in sources),
        segments=(), status=Status.ENDED)  # fmt: skip


def batch():
    """Three groups of three: one turn; several turns whose engine spans differ; one where all earn the same."""
    draw = random.Random(0)
    shapes = [[(9,), (4,), (1,)], [(5, 7, 3), (2, 3, 4, 6, 2), (6, 2)], [(3,), (5, 2, 2), (4,)]]
    groups = [(f"g{i}", [draw.randrange(V) for _ in range(5 + 3 * i)], spans) for i, spans in enumerate(shapes)]
    rewards = torch.tensor([1.0, 0.0, 0.3, 0.2, 0.9, 0.0, 0.5, 0.5, 0.5], dtype=torch.float64)
    return [member(draw, name, prompt, s) for name, prompt, spans in groups for s in spans], rewards


@functools.cache
def composed(words):
    (tree,) = Composer().jobs([*words, "model=tiny", "rollout.n=3", f"rollout.temperature={T}", "train.questions=3"], False)
    return tree


def configured(words):
    """The objective's files are composed once; the switches are laid over them."""
    files = tuple(word for word in words if word.startswith("algo"))
    return OmegaConf.to_object(OmegaConf.merge(composed(files), OmegaConf.from_dotlist([word for word in words if word not in files])))


def parts(family, config, attention):
    """Policy, reference, critic: the same weights for every attention."""
    model, reference, critic = make(family, attention), None, None
    if config.algo.kl != "none":
        reference = make(family, attention)
        with torch.no_grad():
            reference.get_input_embeddings().weight.mul_(1.1)
    if config.algo.advantage == "gae":
        critic = Critic(model if config.algo.critic.shared else make(family, attention, seed=2), shared=config.algo.critic.shared)
        with torch.no_grad():
            critic.head.weight.copy_(torch.linspace(-0.3, 0.3, 32)[None])
    return model, reference, critic


def trained_parameters(model, critic):
    return [p for module in (model, critic) if module is not None for p in module.parameters()]


def take(model, critic):
    """The gradients, then a step of plain descent."""
    parameters = trained_parameters(model, critic)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    with torch.no_grad():
        for p, g in zip(parameters, grads, strict=True):
            p.sub_(RATE * g)
            p.grad = None
    return grads
