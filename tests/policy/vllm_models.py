"""Random models with heads that vLLM's CPU build computes, as folders, and what a test needs to know of them."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from ssrl.policy.builtin import tiny_tokenizer

SIZES = {
    "vocab_size": 260, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "initializer_range": 0.3, "max_position_embeddings": 8192, "eos_token_id": 0, "bos_token_id": None, "pad_token_id": 0,
}  # fmt: skip
FAMILIES = {
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen2-untied": Qwen2Config(**SIZES, tie_word_embeddings=False),
    "qwen3-tied": Qwen3Config(**SIZES, head_dim=32, tie_word_embeddings=True),
}


def save(family: str, folder: Path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = AutoModelForCausalLM.from_config(FAMILIES[family])
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
