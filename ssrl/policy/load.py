"""Loading a policy by name: its model, its tokenizer, and the tokens that end its text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ssrl.errors import UserError
from ssrl.policy.attention import IMPLEMENTATIONS
from ssrl.policy.builtin import BUILTIN


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model with what belongs to it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    end_ids: frozenset[int]  # every token that ends a text: the generation config's and the tokenizer's
    folder: str  # what transformers loaded: a folder or a hub id


def resolve(path: str) -> str:
    """The folder or hub id behind `model.path`; built-in sources are made on first use."""
    if path in BUILTIN:
        return str(BUILTIN[path]())
    if path.startswith(("package:", "random:")):
        raise UserError(f"model.path={path} is no built-in model; known: {', '.join(BUILTIN)}; or give a folder or a hub id")
    if path.startswith((".", "/", "~")) and not Path(path).expanduser().is_dir():
        raise UserError(f"model.path={path}: there is no such folder; give a folder with config.json, a hub id, or {', '.join(BUILTIN)}")
    return str(Path(path).expanduser()) if Path(path).expanduser().is_dir() else path


def load_tokenizer(path: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer alone: what can be checked before the weights are read."""
    folder = resolve(path)
    try:
        return AutoTokenizer.from_pretrained(folder, revision=revision)
    except (OSError, ValueError) as error:
        raise UserError(f"model.path={path}: no tokenizer could be loaded from {folder} ({_first_line(error)})") from error


def load_model(path: str, *, revision: str | None = None, dtype: str = "float32", attention: str = "sdpa") -> LoadedModel:
    """Model and tokenizer of a built-in source, a local folder or a hub id, in evaluation mode (no dropout in RL).

    A model with attention `parts` or `flex` reads packed rows only.
    """
    folder = resolve(path)
    tokenizer = load_tokenizer(path, revision)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, revision=revision, dtype=getattr(torch, dtype), attn_implementation=IMPLEMENTATIONS[attention])  # fmt: skip
    except (OSError, ValueError) as error:
        raise UserError(f"model.path={path}: no model could be loaded from {folder} ({_first_line(error)})") from error
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:  # ids are checked against the embedding, not against vocab_size
        raise UserError(f"model.path={path}: the tokenizer has {len(tokenizer)} tokens but the model embeds only {embeddings}")
    return LoadedModel(model=model.eval(), tokenizer=tokenizer, end_ids=end_tokens(model, tokenizer), folder=folder)


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """All end tokens: a model may list several in its generation config, and the tokenizer may name another."""
    listed = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = {tokenizer.eos_token_id, *(listed if isinstance(listed, (list, tuple)) else [listed])}
    return frozenset(i for i in ids if i is not None)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
