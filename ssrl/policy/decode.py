"""A KV cache for sampling many continuations at once: the common beginning of all prompts is kept and attended to once.

Attention of one new token runs over two stretches of keys, the shared prefix and the sequence's own tokens, under one softmax.
Keys of the shared prefix are read once for the whole batch instead of once a sequence, and are never copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from ssrl.errors import UserError

ATTENTION = "ssrl_shared_prefix"
_PLAIN_LOGITS = {"logits_scaling": 1, "logit_scale": 1, "final_logit_softcapping": None}  # of a config that leaves them as they are
_GROW = 128  # positions that are reserved at a time, so that a large budget costs memory only where it is used


@dataclass(slots=True)
class SharedPrefixCache:
    """Keys and values by layer. It stands in for a transformers cache in a model's forward.

    Shapes: prefix [Hkv, C, D]; own [B, Hkv, S, D] of which the first `length` positions are filled. Own sequences are aligned at
    their ends: the first `pad` [B] positions of each hold nothing, so all of them write the same position.
    """

    length: int = 0
    pad: Tensor | None = None
    prefix: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    own: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def update(self, key: Tensor, value: Tensor, layer: int, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Append [B, Hkv, Q, D]; returns the filled part of the own keys and values."""
        if self.pad is None:  # the shared prefix is being read
            self.prefix.append((key[0], value[0]))
            return key, value
        end = self.length + key.shape[2]
        if layer == len(self.own):
            self.own.append((_room(key, end), _room(value, end)))
        elif end > self.own[layer][0].shape[2]:
            self.own[layer] = tuple(torch.cat([old, _room(old, 1)], dim=2) for old in self.own[layer])
        keys, values = self.own[layer]
        keys[:, :, self.length : end], values[:, :, self.length : end] = key, value
        return keys[:, :, :end], values[:, :, :end]

    def get_seq_length(self, layer: int = 0) -> int:
        return self.length

    def select(self, rows: Tensor) -> None:
        """Keep these sequences only; also repeats a sequence for its samples."""
        self.own = [(keys[rows], values[rows]) for keys, values in self.own]
        self.pad = self.pad[rows]


def _room(like: Tensor, positions: int) -> Tensor:
    """Zeros [B, Hkv, S, D] for at least so many positions."""
    return like.new_zeros(*like.shape[:2], -(-positions // _GROW) * _GROW, like.shape[3])


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float,
    dropout: float = 0.0, shared: SharedPrefixCache | None = None, own_bias: Tensor | None = None, **kwargs: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """transformers' attention function over a SharedPrefixCache. query [B, H, Q, D] -> [B, Q, H, D]. `own_bias` [B, Q, S]: `_own_bias`."""
    if shared is None:
        raise RuntimeError(f"attention {ATTENTION!r} runs only under ssrl.policy.decode.step")
    if shared.pad is None:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2), None
    batch, heads, new, dim = query.shape
    kv_heads = key.shape[1]
    share = heads // kv_heads  # query heads that read one key head
    grouped = query.reshape(batch, kv_heads, share * new, dim) * scaling
    own = grouped @ key.transpose(2, 3)  # [B, Hkv, share * Q, S]
    own.view(batch, kv_heads, share, new, -1).add_(own_bias[:, None, None])
    if shared.prefix:
        prefix_key, prefix_value = shared.prefix[module.layer_idx]
        flat = grouped.transpose(0, 1).reshape(kv_heads, -1, dim)  # one matrix product for the whole batch
        common = (flat @ prefix_key.transpose(1, 2)).view(kv_heads, batch, share * new, -1).transpose(0, 1)
        weights = torch.cat([common, own], dim=-1).softmax(-1, dtype=torch.float32).to(query.dtype)
        common, own = weights.split([common.shape[-1], own.shape[-1]], dim=-1)
        out = own @ value
        out += (common.transpose(0, 1).reshape(kv_heads, batch * share * new, -1) @ prefix_value).view(kv_heads, batch, -1, dim).transpose(0, 1)
    else:
        out = own.softmax(-1, dtype=torch.float32).to(query.dtype) @ value
    return out.view(batch, heads, new, dim).transpose(1, 2), None


AttentionInterface.register(ATTENTION, attend)


def _own_bias(shared: SharedPrefixCache, new: int, dtype: torch.dtype) -> Tensor:
    """[B, Q, S], added to the scores of own positions: 0 where each new token may look, -inf elsewhere."""
    end = shared.length + new
    position = torch.arange(end, device=shared.pad.device)
    seen = (position >= shared.pad[:, None])[:, None]
    if new > 1:
        # a padded position sees itself alone: its output is never used, but it must not be NaN
        own = position[shared.length :, None]
        seen = (seen & (position <= own)) | (position == own)
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, float("-inf"))


def step(model: PreTrainedModel, shared: SharedPrefixCache, ids: Tensor, positions: Tensor) -> Tensor:
    """One forward over new tokens [B, Q] at their positions [B, Q]; returns hidden states [B, Q, H] and advances the cache."""
    own_bias = None if shared.pad is None else _own_bias(shared, ids.shape[1], model.dtype)  # once, not in every layer
    hidden = model.get_decoder()(
        input_ids=ids, position_ids=positions, past_key_values=shared, use_cache=True, shared=shared, own_bias=own_bias).last_hidden_state  # fmt: skip
    if shared.pad is not None:
        shared.length += ids.shape[1]
    return hidden


def check_supported(model: PreTrainedModel) -> None:
    """Packed rows, and sampling in process, need full causal attention in every layer, transformers' attention interface, and logits that are
    what the output layer gives.

    Raises:
        UserError: this model has others.
    """
    config = model.config
    windowed = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention" if windowed else "full_attention"])
    if kinds == {"full_attention"} and not getattr(model, "_supports_attention_backend", False):
        kinds = {"an attention that cannot be exchanged"}
    if kinds != {"full_attention"}:
        raise UserError(
            f"a policy must have full attention in every layer; {config.model_type} has {', '.join(sorted(kinds))}; "
            "use a Llama, Qwen2 or Qwen3 model"
        )
    changed = [f"{key}={value}" for key, plain in _PLAIN_LOGITS.items() if (value := getattr(config, key, plain)) not in (plain, None)]
    if changed:
        raise UserError(
            f"a policy's logits must be what its output layer gives; {config.model_type} changes them ({', '.join(changed)}); "
            "use a Llama, Qwen2 or Qwen3 model"
        )
