"""Log-probabilities of chosen tokens: chunked and not, and beside the sampler's."""

import math
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ssrl.policy.logprobs import token_logprobs
from ssrl.policy.rescore import rescored
from ssrl.policy.sampler import TransformersSampler
from ssrl.types import Request, Sampling


def states(seed=0, m=11, h=6, v=17):
    generator = torch.Generator().manual_seed(seed)
    head = torch.nn.Linear(h, v)
    with torch.no_grad():
        head.weight.copy_(torch.randn(v, h, generator=generator))
        head.bias.zero_()
    return torch.randn(m, h, generator=generator), head, torch.randint(v, (m,), generator=generator)


class Allocations(TorchDispatchMode):
    """Counts the bytes of tensors that operators make, in the backward pass too, while they are alive."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and storage.data_ptr() not in given | self.known:
                self.known.add(storage.data_ptr())
                self.now += storage.nbytes()
                weakref.finalize(storage, self.freed, storage.data_ptr(), storage.nbytes())
        self.peak = max(self.peak, self.now)
        return made

    def freed(self, address, size):
        self.known.discard(address)
        self.now -= size


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 1.5])
def test_they_are_the_log_softmax_at_the_temperature_and_greedy_means_one(temperature):
    hidden, head, target = states()
    logp, entropy = token_logprobs(hidden, head, target, temperature=temperature, chunk=100)
    for m, (found, h) in enumerate(zip(logp.tolist(), entropy.tolist(), strict=True)):
        logits = [x / (temperature or 1.0) for x in (head.weight.double() @ hidden[m].double()).tolist()]
        norm = math.log(sum(math.exp(x) for x in logits))
        assert found == pytest.approx(logits[target[m]] - norm, abs=1e-5)
        assert h == pytest.approx(-sum(math.exp(x - norm) * (x - norm) for x in logits), abs=1e-5)


@pytest.mark.parametrize("chunk", [1, 3, 10, 11])
def test_chunks_change_neither_value_nor_gradient(chunk):
    def run(chunk):
        hidden, head, target = states()
        hidden.requires_grad_()
        logp, entropy = token_logprobs(hidden, head, target, temperature=0.7, chunk=chunk)
        (logp * torch.arange(1.0, 12.0)).sum().backward()
        return logp.detach(), entropy, hidden.grad, head.weight.grad

    whole = run(1000)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(whole, run(chunk), strict=True))
    hidden, head, target = states()
    with torch.no_grad():
        assert torch.allclose(token_logprobs(hidden, head, target, temperature=0.7, chunk=chunk)[0], whole[0], atol=1e-6)


def test_logits_of_more_tokens_than_a_chunk_never_exist_at_once():
    hidden, head, target = states()
    hidden.requires_grad_()
    seen = []
    head.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    logp, _ = token_logprobs(hidden, head, target, temperature=1.0, chunk=4)
    forward = len(seen)
    logp.sum().backward()
    assert seen[:forward] == [4, 4, 3] and sorted(seen[forward:]) == [3, 4, 4], "and they are computed again in the backward pass"


def test_memory_does_not_grow_with_tokens_times_vocabulary():
    def peak(m):
        """Most bytes that exist at one time, beyond hidden states and their gradients."""
        hidden, head, target = states(m=m, h=8, v=4000)
        hidden.requires_grad_()
        with Allocations() as made:
            token_logprobs(hidden, head, target, temperature=1.0, chunk=32)[0].sum().backward()
        return made.peak - 3 * hidden.nbytes

    chunk = 32 * 4000 * 4  # bytes of a chunk's logits
    assert chunk < peak(64) < 8 * chunk  # logits, their softmax and gradients, and the head's gradient
    assert peak(640) < peak(64) + chunk  # whole logits would be 20 chunks


def test_the_gradient_does_not_flow_through_entropies():
    hidden, head, target = states()
    assert not token_logprobs(hidden.requires_grad_(), head, target, temperature=1.0, chunk=5)[1].requires_grad


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_the_trainers_ratio_to_the_sampler_is_one(tiny, temperature):
    prompt = tuple(range(40, 60))
    sampler = TransformersSampler(tiny.model, tiny.tokenizer, frozenset(), dtype=torch.float32)
    requests = [Request(prompt_ids=prompt, max_new_tokens=30, seed=seed, sampling=Sampling(temperature=temperature)) for seed in range(4)]
    for completion in sampler.generate(requests):
        own, _ = rescored(tiny.model, prompt, completion.ids, temperature=temperature)
        ratio = (torch.tensor(own) - torch.tensor(completion.logprobs)).exp()
        assert ratio.tolist() == pytest.approx([1.0] * 30, abs=1e-4)
