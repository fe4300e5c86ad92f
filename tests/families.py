"""Tiny random models of each family, and a batch of rollouts padded as a plain computation would."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from ssrl.policy.attention import IMPLEMENTATIONS

V = 61
SIZES = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2,
}  # fmt: skip
FAMILIES = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=False),
    "qwen3": Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True),
}


def make(family, attention="sdpa", seed=1):
    """`attention`: as in `model.attention`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(FAMILIES[family], attn_implementation=IMPLEMENTATIONS[attention]).eval()


def right_padded(rollouts):
    """ids and attention mask, [rollouts, longest sequence]."""
    sequences = [[*r.prompt_ids, *r.ids] for r in rollouts]
    longest = max(map(len, sequences))
    ids = torch.tensor([s + [0] * (longest - len(s)) for s in sequences])
    return {"input_ids": ids, "attention_mask": torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s in sequences])}
