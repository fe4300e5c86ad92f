"""A frozen language model in this process that plays a part, such as a search engine. It is never the live policy."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerBase

from ssrl.errors import UserError
from ssrl.policy.load import load_model
from ssrl.policy.sampler import TransformersSampler
from ssrl.types import ChatReply, ChatRequest, Request, Sampling, SearchStatus

_MARK = "[[message]]"


class LocalChat:
    """A model of its own, loaded from a folder, a hub id or a built-in source, behind its chat template with an empty system message.

    A reply depends on its own request and seed only. Special tokens that a message spells out are read as plain characters.
    """

    def __init__(
        self, path: str, *, temperature: float = 0.8, max_tokens: int = 600, batch: int = 64, device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        loaded = load_model(path)
        self.tokenizer: PreTrainedTokenizerBase = loaded.tokenizer
        if self.tokenizer.chat_template is None:
            raise UserError(f"simulator.model={path} has no chat template; choose an instruct model")
        model = loaded.model.to(device)
        self.sampler = TransformersSampler(model, loaded.tokenizer, loaded.end_ids, batch=batch, dtype=dtype)
        self.context = model.config.max_position_embeddings
        self.sampling, self.max_tokens = Sampling(temperature=temperature), max_tokens
        self.identity = f"{path}, temperature {temperature:g}, {max_tokens} tokens"
        self.hint = "choose another model with simulator.model=, or a server with simulator=openai"
        self._before, self._after = (self._ids(text, special=True) for text in self._template())

    def reply(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        prompts = [(*self._before, *self._ids(request.text, special=False), *self._after) for request in requests]
        fitting = [i for i, prompt in enumerate(prompts) if len(prompt) < self.context]
        start = time.perf_counter()
        completions = self.sampler.generate([
            Request(prompt_ids=prompts[i], max_new_tokens=min(self.max_tokens, self.context - len(prompts[i])), seed=requests[i].seed, sampling=self.sampling)
            for i in fitting
        ])  # fmt: skip
        seconds = time.perf_counter() - start
        written = dict(zip(fitting, completions, strict=True))
        return [self._reply(written[i].ids, seconds) if i in written else self._too_long(prompts[i]) for i in range(len(requests))]

    def _reply(self, ids: Sequence[int], seconds: float) -> ChatReply:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return ChatReply(status=SearchStatus.OK if text.strip() else SearchStatus.EMPTY, text=text, latency_s=seconds)

    def _too_long(self, prompt: Sequence[int]) -> ChatReply:
        return ChatReply(status=SearchStatus.ERROR, error=f"a message of {len(prompt)} tokens leaves no room in a context of {self.context}")

    def _template(self) -> tuple[str, str]:
        """The text of the chat template before and after the user's message."""
        messages = [{"role": "system", "content": ""}, {"role": "user", "content": _MARK}]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
        before, _, after = text.partition(_MARK)
        return before, after

    def _ids(self, text: str, *, special: bool) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=not special).input_ids)
