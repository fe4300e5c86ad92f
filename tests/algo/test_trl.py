"""Agreement with TRL on the same tensors, where TRL is installed (`pip install trl`).

TRL's losses are one method of its trainer; it is called here on a stand-in that holds what it reads. Known differences, none of which these
tensors touch: TRL limits neither log-ratios nor k3 (ours: ±20 and 10, without a gradient beyond); it adds 1e-4 to the
standard deviation of a group (ours: 1e-6); its `grpo`, `bnpo` and `dr_grpo` average over the micro-batches of a step where ours divide by the
whole step's count, so they only agree on one micro-batch a step.
"""

from collections import defaultdict
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch

from ssrl.algo.aggregate import AGGREGATES
from ssrl.algo.loss import policy_loss
from ssrl.algo.tokens import Objective, Tokens
from ssrl.config import AlgoConfig

grpo_trainer = pytest.importorskip("trl.trainer.grpo_trainer", reason="needs trl")

LENGTHS = [3, 1, 6, 2]
LONGEST = max(LENGTHS)
MASK = torch.tensor([[t < length for t in range(LONGEST)] for length in LENGTHS])
MASK[2, 2] = False  # a token of an engine inside of a response
TRAINED = MASK.sum(1)
OWNER = torch.repeat_interleave(torch.arange(len(LENGTHS)), TRAINED)
BASE = Objective(**{field.name: getattr(AlgoConfig(), field.name) for field in fields(Objective)})
BASE = replace(BASE, dual_clip=None, kl_coef=0.0)


def tensors():
    generator = torch.Generator().manual_seed(4)
    old = -torch.rand(4, LONGEST, generator=generator) * 3
    now = old + torch.randn(4, LONGEST, generator=generator)
    reference = now + torch.randn(4, LONGEST, generator=generator)
    sampler = old + 0.3 * torch.randn(4, LONGEST, generator=generator)
    return now, old, reference, sampler, torch.tensor([1.5, -0.5, -1.0, 0.75]), torch.rand(4, LONGEST, generator=generator)


def theirs(loss_type, *, level="token", low=0.2, high=0.2, delta=None, beta=0.0, entropy_coef=0.0, corrected=False):
    now, old, reference, sampler, advantages, entropy = tensors()
    logp = now.requires_grad_()
    args = SimpleNamespace(delta=delta, use_bias_correction_kl=False, steps_per_generation=1)
    accelerator = SimpleNamespace(num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, entropy, None), aux_loss_enabled=False, top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, importance_sampling_level=level, beta=beta, args=args, loss_type=loss_type, epsilon_low=low, epsilon_high=high,
        use_vllm=corrected, vllm_importance_sampling_correction=corrected, model=SimpleNamespace(training=True), current_gradient_accumulation_steps=1,
        max_completion_length=LONGEST, accelerator=accelerator, _entropy_bonus_enabled=bool(entropy_coef), use_adaptive_entropy=False,
        entropy_coef=entropy_coef, _metrics={"train": defaultdict(list)})  # fmt: skip
    inputs = {
        "prompt_ids": torch.zeros(4, 1, dtype=torch.long), "prompt_mask": torch.ones(4, 1, dtype=torch.long),
        "completion_ids": torch.zeros(4, LONGEST, dtype=torch.long), "completion_mask": MASK.long(), "advantages": advantages,
        "old_per_token_logps": old, "ref_per_token_logps": reference, "num_items_in_batch": MASK.sum(),
        "importance_sampling_ratio": (old - sampler).exp().clamp(max=2.0)}  # fmt: skip
    loss = grpo_trainer.GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    return loss.item(), logp.grad[MASK]


def ours(aggregate, *, surrogate="clip", low=0.2, high=0.2, delta=None, beta=0.0, entropy_coef=0.0, corrected=False):
    now, old, reference, sampler, advantages, entropy = (x[MASK] if x.dim() == 2 else x for x in tensors())
    weights = AGGREGATES[aggregate](TRAINED, total_tokens=len(OWNER), total_rollouts=len(LENGTHS), constant_length=LONGEST)
    o = replace(
        BASE, surrogate=surrogate, clip_low=low, clip_high=high, dual_clip=delta, kl_coef=beta, entropy_coef=entropy_coef,
        correction="token" if corrected else "none")  # fmt: skip
    logp, entropy = now.requires_grad_(), entropy.requires_grad_()
    loss, _ = policy_loss(o, Tokens(
        logp=logp, old_logp=old, advantages=advantages[OWNER], weights=weights[OWNER], rollout=OWNER, share=1.0, reference=reference if beta else None,
        sampler_logp=sampler, entropy=entropy))  # fmt: skip
    loss.backward()
    return loss.item(), logp.grad


@pytest.mark.parametrize(
    ("loss_type", "aggregate", "shared", "theirs_only", "ours_only"),
    [
        ("grpo", "sequence_mean", {}, {}, {}),
        ("grpo", "sequence_mean", {"beta": 0.05}, {}, {}),
        ("bnpo", "token_mean", {"beta": 0.05, "delta": 1.5}, {}, {}),
        ("dapo", "token_mean", {"high": 0.28}, {}, {}),
        ("dapo", "token_mean", {"high": 0.28, "corrected": True, "beta": 0.05}, {}, {}),
        ("dapo", "token_mean", {"entropy_coef": 0.01}, {}, {}),
        ("dr_grpo", "constant", {"beta": 0.05}, {}, {}),
        ("grpo", "sequence_mean", {"low": 0.2, "high": 0.3}, {"level": "sequence"}, {"surrogate": "sequence"}),
        ("luspo", "sequence_sum", {}, {"level": "sequence"}, {"surrogate": "sequence"}),
        ("luspo", "sequence_sum", {"beta": 0.05}, {}, {}),
    ],
)
def test_loss_and_gradient_agree(loss_type, aggregate, shared, theirs_only, ours_only):
    loss, gradient = theirs(loss_type, **shared, **theirs_only)
    found, slope = ours(aggregate, **shared, **ours_only)
    assert found == pytest.approx(loss, abs=1e-6)
    assert torch.allclose(slope, gradient, atol=1e-6)
