"""Sampling with vLLM, in this process or by servers: the same requests, the same endings and the same log-probabilities as the base sampler."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ssrl.errors import UserError
from ssrl.policy.rescore import rescored
from ssrl.policy.sampler import merged_weights
from ssrl.policy.vllm_protocol import Backend, Written, ending, job, top_entropy
from ssrl.types import Completion, Request, Sampling

_PROBE_READ, _PROBE_WRITTEN = 16, 4  # tokens
_PROBE_SAMPLING = Sampling(temperature=0.7)  # not 1, so that it shows whether the temperature counts
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5}  # nats; bfloat16 rounds a log-probability by some hundredths, other weights by whole units


class VllmSampler:
    """Continues sequences with engines that hold a copy of the policy's weights in `dtype`, one version of them at a time.

    Every completion must have been written by the version that was published last; anything else is an error. After each publish a probe
    compares the engines' log-probabilities with the policy's own. What vLLM does not
    tell, the policy computes in a forward pass of its own: entropies over the full vocabulary, and log-probabilities before top-p and top-k.

    Args:
        backend: the engine in this process, or servers.
        seeded: give each request its own seed, so that results do not depend on what else is in the batch. Off: a batch draws
            from one stream, which is faster on some GPUs.
        probes: off where the policy alone cannot compute them, since its weights are cut over processes.
        publish: take over the weights at once. Off where another process does it for all.
    """

    def __init__(
        self, backend: Backend, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_ids: frozenset[int], *, dtype: torch.dtype,
        seeded: bool = True, probes: bool = True, publish: bool = True,
    ) -> None:  # fmt: skip
        self.backend, self.source, self.tokenizer, self.end_ids = backend, model, tokenizer, end_ids
        self.dtype, self.seeded, self.probes = dtype, seeded, probes
        self.listener: Callable[[int, int], None] | None = None  # told (index of the request, token) when a request is done
        self.version = ""  # of the weights that the engines hold; empty: none that may be used
        self._name, self._published = uuid.uuid4().hex[:12], 0
        if publish:
            self.publish()

    @torch.no_grad()
    def publish(self) -> None:
        """Take over the policy's weights as they are now; adapters are merged into them.

        Raises:
            UserError: the engines do not compute what the policy computes.
        """
        self.version = ""  # a publish that fails half-way leaves nothing that could be sampled from
        self._published += 1
        weights = ((name, weight.to(self.dtype)) for name, weight in merged_weights(self.source).items())
        with torch.autocast(self.source.device.type, enabled=False):  # adapters are merged as they are where nothing is trained
            self.version = self.backend.load(weights, f"{self._name}-{self._published}")
        if self.probes:
            self._probe()

    def rest(self) -> None:
        """Let the engines give back memory; generating needs a publish first."""
        self.version = ""
        self.backend.rest()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        if not self.version:
            raise RuntimeError("the engines hold no weights that may be sampled from: publish first, also after rest and after a publish that failed")
        for request in requests:
            if request.max_new_tokens < 1:
                raise ValueError(f"a request needs room for at least one new token, found max_new_tokens={request.max_new_tokens}")
        vocabulary = self.source.get_output_embeddings().weight.shape[0]
        jobs = [job(request, self.end_ids, vocabulary=vocabulary, seeded=self.seeded) for request in requests]
        found = self.backend.generate(jobs, self.version) if jobs else []
        completions = [self._completion(request, written) for request, written in zip(requests, found, strict=True)]
        if self.listener is not None:
            for index, completion in enumerate(completions):
                for token in completion.ids:
                    self.listener(index, token)
        return completions

    def _completion(self, request: Request, written: Written) -> Completion:
        if set(written.versions) != {self.version}:
            raise UserError(
                f"a completion was written by weights {', '.join(written.versions) or 'without a version'}, expected {self.version}: "
                "somebody else has changed the engine's weights, or it was started anew; give every run servers of its own and repeat the command"
            )
        length, finish = ending(request, written, self.end_ids, self.tokenizer)
        ids, logprobs, s = written.ids[:length], written.logprobs[:length], request.sampling
        entropies = None if request.entropy is None else tuple(top_entropy(top, request.entropy) for top in written.top[:length] if request.entropy)
        if request.entropy == 0 or s.top_p < 1 or s.top_k:
            own, full = rescored(self.source, request.prompt_ids, ids, temperature=s.temperature)
            logprobs = own if s.top_p < 1 or s.top_k else logprobs
            entropies = full if request.entropy == 0 else entropies
        return Completion(ids=ids, logprobs=logprobs, finish=finish, entropies=entropies)

    def _probe(self) -> None:
        """Compare a few log-probabilities with the policy's own."""
        prompt = tuple(i * len(self.tokenizer) // _PROBE_READ for i in range(_PROBE_READ))
        (done,) = self.generate([Request(prompt_ids=prompt, max_new_tokens=_PROBE_WRITTEN, seed=1, sampling=_PROBE_SAMPLING)])
        own, _ = rescored(self.source, prompt, done.ids, temperature=_PROBE_SAMPLING.temperature)
        gap = max(abs(a - b) for a, b in zip(done.logprobs, own, strict=True))
        if not gap <= _TOLERANCE[self.dtype]:  # not a number counts as far apart, too
            self.version = ""
            raise UserError(
                f"after taking over the weights vLLM's log-probabilities differ from the policy's by {gap:.3g}, expected at most "
                f"{_TOLERANCE[self.dtype]:g}: a server must run with --logprobs-mode processed_logprobs and the --dtype of rollout.dtype; "
                "else this vllm does not compute the model as transformers does, and rollout=hf does"
            )
