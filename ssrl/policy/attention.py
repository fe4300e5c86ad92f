"""How the tokens of a packed row attend: each response to its group's prompt and to itself.

Three ways give the same hidden states. `parts` computes each prompt and each response by itself, so a row costs what its parts cost,
however many there are; `mask` computes all pairs of a row and throws most of them away (`sdpa`, `eager`), so its cost grows with the
square of the row; `flex` lets one fused kernel skip the blocks that nothing sees (FlexAttention; on CUDA only, since it has no backward
on a CPU).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig

PARTS = "ssrl_parts"
IMPLEMENTATIONS = {"parts": PARTS, "sdpa": "sdpa", "eager": "eager", "flex": "flex_attention"}  # `model.attention`: transformers' name


class Packed(Protocol):
    """A packed row of L tokens, M of which are predicted."""

    ids: Tensor  # [L]
    positions: Tensor  # [L]
    group: Tensor  # [L] ascending
    segment: Tensor  # [L] 0: the group's prompt, else the number of the response in its group
    source: Tensor  # [M] position whose hidden state predicts the target
    target: Tensor  # [M]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A prompt or a response: a stretch of the row."""

    length: int
    prompt: int | None  # number of the part that is its prompt; None: it is one
    visible: Tensor | None  # [length, prompt's length + length] bool


def attention_inputs(config: PretrainedConfig, row: Packed) -> dict[str, Any]:
    """What a model with this configuration must be given to see a row as it is packed."""
    kind = config._attn_implementation
    if kind == PARTS:
        return {"attention_mask": None, "parts": parts_of(row)}
    if kind == "flex_attention":
        return {"attention_mask": _block_mask(row)}
    mask = visible(row.group, row.segment)[None, None]
    if kind == "eager":  # which adds its mask to the scores
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, torch.finfo(torch.float32).min)
    return {"attention_mask": mask}


def visible(group: Tensor, segment: Tensor) -> Tensor:
    """[L, L] bool: token i sees token j."""
    same = (group[:, None] == group) & ((segment == 0) | (segment[:, None] == segment))
    return same & torch.ones_like(same).tril()


def parts_of(row: Packed) -> list[Part]:
    """The parts of a row in their order."""
    found: list[Part] = []
    prompt = 0
    for (_, segment), tokens in itertools.groupby(zip(row.group.tolist(), row.segment.tolist(), strict=True)):
        length = len(list(tokens))
        if segment == 0:
            prompt = len(found)
            found.append(Part(length=length, prompt=None, visible=None))
        else:
            before = found[prompt].length
            seen = torch.ones(length, before + length, dtype=torch.bool, device=row.group.device).tril(before)
            found.append(Part(length=length, prompt=prompt, visible=seen))
    return found


def _block_mask(row: Packed) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    group, segment, size = row.group, row.segment, len(row.group)

    def sees(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (group[i] == group[j]) & ((segment[j] == 0) | (segment[i] == segment[j]))

    return create_block_mask(sees, None, None, size, size, device=group.device)


def attend_in_parts(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float,
    parts: list[Part] | None = None, **kwargs: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """transformers' attention function over the parts of a row. query [1, H, L, D], key and value [1, Hkv, L, D] -> [1, L, H, D]."""
    if parts is None:
        raise RuntimeError(f"attention {PARTS!r} needs the parts of a packed row: run the model through ssrl.policy.logprobs.row_hidden")
    share = query.shape[1] // key.shape[1]  # query heads that read one key head
    if share > 1:
        key, value = key.repeat_interleave(share, dim=1), value.repeat_interleave(share, dim=1)
    queries, keys, values = (x.split([part.length for part in parts], dim=2) for x in (query, key, value))  # one backward, not one a slice
    out = []
    for part, q, k, v in zip(parts, queries, keys, values, strict=True):
        if part.prompt is not None:
            k, v = torch.cat([keys[part.prompt], k], dim=2), torch.cat([values[part.prompt], v], dim=2)
        out.append(scaled_dot_product_attention(q, k, v, attn_mask=part.visible, is_causal=part.visible is None, scale=scaling))
    return torch.cat(out, dim=2).transpose(1, 2), None


AttentionInterface.register(PARTS, attend_in_parts)
