"""What the policy itself gives the tokens of a completion: one forward pass over the sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ssrl.policy.logprobs import row_hidden, token_logprobs

_CHUNK = 1024  # tokens whose logits exist at one time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    """A packed row that holds one sequence and nothing else."""

    ids: Tensor
    positions: Tensor
    group: Tensor
    segment: Tensor
    source: Tensor
    target: Tensor


@torch.no_grad()
def rescored(model: PreTrainedModel, prompt: Sequence[int], ids: Sequence[int], *, temperature: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """[N] log-probabilities and [N] full-vocabulary entropies (nats) of the ids behind the prompt, at the temperature (greedy: at 1)."""
    device = model.get_input_embeddings().weight.device
    sequence = torch.tensor([*prompt, *ids], device=device)
    positions, alone = torch.arange(len(sequence), device=device), torch.zeros_like(sequence)
    row = _Sequence(
        ids=sequence, positions=positions, group=alone, segment=alone, source=positions[len(prompt) - 1 : -1], target=sequence[len(prompt) :])  # fmt: skip
    with torch.autocast(device.type, enabled=False):
        hidden = row_hidden(model.get_decoder(), row)
        logprobs, entropies = token_logprobs(hidden, model.get_output_embeddings(), row.target, temperature=temperature, chunk=_CHUNK)
    return tuple(logprobs.tolist()), tuple(entropies.tolist())
