"""What the policy itself gives the tokens of a completion: one forward pass over the sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from ssrl.policy.logprobs import token_logprobs

_CHUNK = 1024  # tokens whose logits exist at one time


@torch.no_grad()
def rescored(model: PreTrainedModel, prompt: Sequence[int], ids: Sequence[int], *, temperature: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """[N] log-probabilities and [N] full-vocabulary entropies (nats) of the ids behind the prompt, at the temperature (greedy: at 1)."""
    device = model.get_input_embeddings().weight.device
    sequence = torch.tensor([[*prompt, *ids]], device=device)
    with torch.autocast(device.type, enabled=False):
        hidden = model.get_decoder()(input_ids=sequence, use_cache=False).last_hidden_state[0, len(prompt) - 1 : -1]
        logprobs, entropies = token_logprobs(
            hidden, model.get_output_embeddings(), sequence[0, len(prompt) :], temperature=temperature, chunk=_CHUNK)  # fmt: skip
    return tuple(logprobs.tolist()), tuple(entropies.tolist())
