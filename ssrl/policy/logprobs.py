"""Log-probabilities and entropies of chosen tokens, without ever holding logits of all tokens at once."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ssrl.policy.attention import Packed, attention_inputs


def token_logprobs(
    hidden: Tensor, head: nn.Module, target: Tensor, *, temperature: float, chunk: int, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """log softmax(head(hidden) / temperature) at the target tokens, and the full-vocabulary entropies.

    Args:
        hidden: [M, H] hidden states that predict the targets.
        head: the output embedding, H -> V.
        target: [M] token ids.
        temperature: of the sampling; greedy (0) means log-probabilities at 1.
        chunk: most tokens whose logits exist at one time; where M is larger, they are recomputed in the backward pass.
        entropy_gradient: whether entropies carry a gradient, which an entropy bonus needs and which costs memory.

    Returns:
        [M] float32 log-probabilities with gradient, [M] float32 entropies in nats.
    """
    scale = temperature or 1.0

    def one(hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(hidden).float()
        logp = torch.log_softmax(logits if scale == 1 else logits / scale, dim=-1)
        with nullcontext() if entropy_gradient else torch.no_grad():
            entropy = -(logp.exp() * logp).sum(-1)
        return logp.gather(1, target[:, None])[:, 0], entropy

    if len(target) <= chunk:
        return one(hidden, target)
    parts = [
        checkpoint(one, h, t, use_reentrant=False) if torch.is_grad_enabled() else one(h, t)
        for h, t in zip(hidden.split(chunk), target.split(chunk), strict=True)
    ]
    logps, entropies = zip(*parts, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def row_hidden(decoder: nn.Module, row: Packed) -> Tensor:
    """[M, H] hidden states of a packed row at the positions that predict its trained tokens. `decoder`: the model without its output embedding."""
    output = decoder(input_ids=row.ids[None], position_ids=row.positions[None], use_cache=False, **attention_inputs(decoder.config, row))
    return output.last_hidden_state[0, row.source]
