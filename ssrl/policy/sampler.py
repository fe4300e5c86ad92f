"""Sampling with transformers, in process: requests in, exact tokens and log-probabilities out."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ssrl.policy.decode import ATTENTION, SharedPrefixCache, check_supported, step
from ssrl.policy.packed import pack_linears, repack
from ssrl.policy.shard import WholeWeights
from ssrl.policy.stop import holds_stop
from ssrl.types import Completion, Finish, Request, Sampling

_BLOCK = 64  # tokens of the vocabulary that are summed together when one is drawn
_BASE = ".base_layer."  # in the name of a weight that has an adapter
_COMPACT_BELOW = 0.9  # drop finished sequences from the batch once fewer than this share is left


@dataclass(slots=True)
class _Sequence:
    """A request while it is being continued."""

    request: Request
    index: int
    draw: random.Random
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: Finish | None = None


class TransformersSampler:
    """Continues sequences with a KV cache, at most `batch` at a time, and drops finished ones from the batch.

    Every request draws its tokens from its own generator, one number a token, so results do not depend on what else is in the
    batch (up to rounding of the matrix products). The sampler works on its own copy of the weights in `dtype`.

    Args:
        device: where it samples; None: where the policy is, also after that has moved.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_ids: frozenset[int], *, batch: int = 256, dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:  # fmt: skip
        check_supported(model)
        self.source, self.tokenizer, self.end_ids, self.batch = model, tokenizer, end_ids, batch
        self.dtype, self.device = dtype, device
        self.listener: Callable[[int, int], None] | None = None  # told (index of the request, token) as tokens are drawn
        self.model: PreTrainedModel | None = None
        self.publish()

    def publish(self) -> None:
        """Take over the policy's weights as they are now; adapters are merged into them."""
        # adapters are merged in the same arithmetic within a training step and outside
        with torch.no_grad(), torch.autocast(self.source.device.type, enabled=False):
            moved = self.model is not None and self.device is None and self.model.device != self.source.device
            if self.model is None or moved:
                self.model = _frozen_copy(self.source, self.dtype, self.device or self.source.device)
                pack_linears(self.model)
            else:
                repack(self.model, merged_weights(self.source))

    def rest(self) -> None:
        """Keeps what it has: its copy of the weights, which is small beside what an update needs."""

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        with torch.autocast(self.model.device.type, enabled=False):  # sampling has a type of its own, also within a training step
            return self._generate(requests)

    def _generate(self, requests: Sequence[Request]) -> list[Completion]:
        for request in requests:
            if request.max_new_tokens < 1:
                raise ValueError(f"a request needs room for at least one new token, found max_new_tokens={request.max_new_tokens}")
        results: list[Completion | None] = [None] * len(requests)
        order = sorted(range(len(requests)), key=lambda i: requests[i].prompt_ids)  # equal prompts side by side
        for start in range(0, len(order), self.batch):
            sequences = [_Sequence(request=requests[i], index=i, draw=random.Random(requests[i].seed)) for i in order[start : start + self.batch]]
            self._continue(sequences)
            for s in sequences:
                entropies = None if s.request.entropy is None else tuple(s.entropies)
                results[s.index] = Completion(ids=tuple(s.ids), logprobs=tuple(s.logprobs), finish=s.finish, entropies=entropies)
        return results

    def _continue(self, sequences: list[_Sequence]) -> None:
        device = self.model.device
        cache, hidden, positions = self._read_prompts(sequences, device)
        active = list(sequences)
        rows = list(range(len(active)))  # row of the cache that belongs to each active sequence
        while active:
            new_ids = self._draw(active, hidden[torch.tensor(rows, device=device)])
            keep = [i for i, (s, token) in enumerate(zip(active, new_ids, strict=True)) if not self._finished(s, token)]
            active, rows, new_ids = [active[i] for i in keep], [rows[i] for i in keep], [new_ids[i] for i in keep]
            if not active:
                return
            if len(active) < _COMPACT_BELOW * len(cache.pad):
                selected = torch.tensor(rows, device=device)
                cache.select(selected)
                positions, rows = positions[selected], list(range(len(active)))
            ids = torch.zeros(len(cache.pad), dtype=torch.long, device=device)
            ids[torch.tensor(rows, device=device)] = torch.tensor(new_ids, device=device)
            hidden = step(self.model, cache, ids[:, None], positions[:, None])[:, -1]
            positions = positions + 1

    def _read_prompts(self, sequences: list[_Sequence], device: torch.device) -> tuple[SharedPrefixCache, Tensor, Tensor]:
        """Fill the cache with the prompts, each distinct one once; returns the last hidden states [B, H] and the next positions [B]."""
        prompts = [s.request.prompt_ids for s in sequences]
        distinct = list(dict.fromkeys(prompts))
        common = _common_prefix(distinct)
        tails = [prompt[common:] for prompt in distinct]
        longest = max(map(len, tails))
        cache = SharedPrefixCache()
        if common:
            step(self.model, cache, torch.tensor([distinct[0][:common]], device=device), torch.arange(common, device=device)[None])
        ids = torch.tensor([[0] * (longest - len(tail)) + list(tail) for tail in tails], device=device)
        cache.pad = torch.tensor([longest - len(tail) for tail in tails], device=device)
        positions = common + (torch.arange(longest, device=device) - cache.pad[:, None]).clamp(min=0)
        hidden = step(self.model, cache, ids, positions)[:, -1]
        row_of = {prompt: i for i, prompt in enumerate(distinct)}
        rows = torch.tensor([row_of[prompt] for prompt in prompts], device=device)
        cache.select(rows)
        return cache, hidden[rows], positions[rows, -1] + 1

    def _draw(self, active: list[_Sequence], hidden: Tensor) -> list[int]:
        """The next token of each active sequence, with its log-probability (and entropy) noted."""
        logits = self.model.get_output_embeddings()(hidden).float()
        samplings = [s.request.sampling for s in active]
        temperatures = [x.temperature or 1.0 for x in samplings]
        if any(t != 1.0 for t in temperatures):
            logits = logits / torch.tensor(temperatures, device=logits.device)[:, None]
        logp = torch.log_softmax(logits, dim=-1)
        uniform = torch.tensor([s.draw.random() for s in active], dtype=torch.float64, device=logits.device)
        chosen = choose(logp, samplings, uniform)
        logprobs = logp.gather(1, chosen[:, None])[:, 0].tolist()
        for kind in {s.request.entropy for s in active} - {None}:
            rows = [i for i, s in enumerate(active) if s.request.entropy == kind]
            for i, value in zip(rows, entropy(logp[torch.tensor(rows, device=logp.device)], kind).tolist(), strict=True):
                active[i].entropies.append(value)
        for s, logprob in zip(active, logprobs, strict=True):
            s.logprobs.append(logprob)
        return chosen.tolist()

    def _finished(self, s: _Sequence, token: int) -> bool:
        s.ids.append(token)
        if self.listener is not None:
            self.listener(s.index, token)
        if token in self.end_ids:
            s.finish = Finish.EOS
        elif s.request.stop and holds_stop(self.tokenizer, s.ids, s.request.stop):
            s.finish = Finish.STOP
        elif len(s.ids) >= s.request.max_new_tokens:
            s.finish = Finish.LENGTH
        return s.finish is not None


def entropy(logp: Tensor, k: int) -> Tensor:
    """[B] entropy in nats of log-probabilities [B, V]: of all tokens where k is 0, else of the k most likely ones, renormalised."""
    if k:
        logp = torch.log_softmax(logp.topk(min(k, logp.shape[1]), dim=-1).values, dim=-1)
    return -(logp.exp() * logp).nansum(-1)


def choose(logp: Tensor, samplings: Sequence[Sampling], uniform: Tensor) -> Tensor:
    """Draw one token a row by inverting the cumulative distribution, or the most likely one at temperature 0.

    Args:
        logp: [B, V] log-probabilities at each row's temperature.
        uniform: [B] float64 numbers in [0, 1), one a row.

    Returns:
        [B] token ids. Top-k leaves the most likely tokens, and of these, their probabilities renormalised as in vLLM, top-p the smallest set
        that reaches it; ties go to the lower id.
    """
    greedy = torch.tensor([x.temperature == 0 for x in samplings], device=logp.device)
    top_k = torch.tensor([x.top_k or logp.shape[1] for x in samplings], device=logp.device)
    top_p = torch.tensor([x.top_p if x.top_p < 1 else math.inf for x in samplings], device=logp.device)
    probability = logp.exp()
    if bool((top_p < 1).any() or (top_k < logp.shape[1]).any()):
        ranked, order = probability.sort(dim=-1, descending=True, stable=True)
        before = ranked.cumsum(-1) - ranked
        beyond = torch.arange(logp.shape[1], device=logp.device) >= top_k[:, None]
        mass = torch.where(top_k < logp.shape[1], ranked.masked_fill(beyond, 0.0).sum(-1), 1.0)
        dropped = (before >= (top_p * mass)[:, None]) | beyond
        dropped[:, 0] = False
        probability = torch.zeros_like(probability).scatter(1, order, ranked.masked_fill(dropped, 0.0))
    if bool(greedy.all()):
        return logp.argmax(-1)
    drawn = _invert(probability, uniform)
    return torch.where(greedy, logp.argmax(-1), drawn) if bool(greedy.any()) else drawn


def _invert(probability: Tensor, uniform: Tensor) -> Tensor:
    """[B] the first token whose cumulative probability exceeds uniform * total: first its block of the vocabulary, then the token.

    Blocks are summed in float32, and all else in float64. A token of probability 0 is never drawn, whatever rounding does at the border of a block.
    """
    if missing := -probability.shape[1] % _BLOCK:
        probability = torch.nn.functional.pad(probability, (0, missing))
    blocks = probability.unflatten(1, (-1, _BLOCK))
    cumulative = blocks.sum(-1).double().cumsum(-1)
    target = uniform[:, None] * cumulative[:, -1:]
    block = torch.searchsorted(cumulative, target, right=True).clamp(max=blocks.shape[1] - 1)
    before = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp(min=0)), 0.0)
    within = blocks[torch.arange(len(blocks), device=blocks.device), block[:, 0]].double()  # [B, _BLOCK]
    token = torch.searchsorted(within.cumsum(-1), target - before, right=True)
    last = _BLOCK - 1 - (within > 0).flip(1).byte().argmax(-1, keepdim=True)  # the last token of the block that can be drawn
    return (block * _BLOCK + torch.minimum(token, last))[:, 0]


def merged_weights(model: PreTrainedModel) -> Mapping[str, Tensor]:
    """The plain model's weights by name, with adapters (if any) merged in; each is made when it is read."""
    return _Merged(model) if hasattr(model, "peft_config") else WholeWeights(model)


class _Merged(Mapping[str, Tensor]):
    """The weights of a model with adapters, under the names that they have without."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._base, self._adapters = model.get_base_model(), list(model.active_adapters)
        state = self._base.state_dict()
        self._weights = {name.replace(_BASE, "."): (name, weight) for name, weight in state.items() if ".lora_" not in name}

    def __getitem__(self, name: str) -> Tensor:
        own, weight = self._weights[name]
        if not own.endswith(f"{_BASE}weight"):
            return weight
        layer = self._base.get_submodule(own.removesuffix(f"{_BASE}weight"))
        return sum((layer.get_delta_weight(adapter) for adapter in self._adapters), weight).to(weight.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def _frozen_copy(model: PreTrainedModel, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The plain model for inference. Only weights are cast, one at a time: the frequencies of rotary embeddings, which are no weights, would turn
    far positions by a radian and more if they were rounded to bfloat16."""
    weights = {id(p): torch.nn.Parameter(p.detach().to(device, dtype, copy=True), requires_grad=False) for p in model.parameters()}
    plain = copy.deepcopy(model, weights)
    if hasattr(plain, "peft_config"):
        plain, merged = plain.unload(), merged_weights(model)
        for name, parameter in plain.named_parameters():
            parameter.copy_(merged[name])
    plain = plain.to(device).eval().requires_grad_(False)
    plain.config._attn_implementation = ATTENTION
    return plain


def _common_prefix(prompts: Sequence[tuple[int, ...]]) -> int:
    """Length of the beginning that all share, leaving each at least one token of its own."""
    first, last = min(prompts), max(prompts)
    limit = min(map(len, prompts)) - 1
    return next((i for i in range(limit) if first[i] != last[i]), limit)
