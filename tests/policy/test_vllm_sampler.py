"""The part that all of vLLM's engines share, with a slow engine in their place: a real model, one token at a time, that keeps its own weights."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from ssrl.errors import UserError
from ssrl.policy.rescore import rescored
from ssrl.policy.sampler import TransformersSampler
from ssrl.policy.vllm_protocol import Written
from ssrl.policy.vllm_sampler import VllmSampler
from ssrl.types import Request, Sampling

SIZES = {
    "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "initializer_range": 0.3, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip


class SlowEngine:
    """Greedy or seeded sampling with a model of its own, which takes over weights when it is told to."""

    def __init__(self, model, stale=(), names=None):
        self.model = copy.deepcopy(model)
        self.stale, self.names = stale, names  # weights that it forgets to take over; versions that it claims
        self.version = "nothing"
        self.rested = 0

    def load(self, weights, version):
        state = {name: weight for name, weight in weights if not any(part in name for part in self.stale)}
        self.model.load_state_dict(state, strict=False)
        self.version = version
        return version

    def rest(self):
        self.rested += 1

    def generate(self, jobs, version):
        assert version == self.version, "cached prefixes belong to a version"
        return [self._continue(job) for job in jobs]

    def _continue(self, job):
        p, ids, logprobs, top = job.parameters, [], [], []
        generator = torch.Generator().manual_seed(p["seed"] % 2**31)
        for _ in range(p["max_tokens"]):
            with torch.no_grad():
                logits = self.model(input_ids=torch.tensor([[*job.ids, *ids]])).logits[0, -1]
            logp = torch.log_softmax(logits / (p["temperature"] or 1.0), -1)
            token = int(logp.argmax() if p["temperature"] == 0 else torch.multinomial(logp.exp(), 1, generator=generator))
            ids.append(token)
            logprobs.append(logp[token].item())
            likely = logp.topk(max(p["logprobs"] - 1, 0)).indices.tolist()
            top.append(tuple(logp[t].item() for t in {*likely, token}))
            if token in p["stop_token_ids"]:
                return Written(ids=tuple(ids), logprobs=tuple(logprobs), top=tuple(top), finish="stop", versions=self._versions())
        return Written(ids=tuple(ids), logprobs=tuple(logprobs), top=tuple(top), finish="length", versions=self._versions())

    def _versions(self):
        return (self.version,) if self.names is None else self.names


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)).eval()


def build(model, tiny, engine=None, **options):
    return VllmSampler(engine or SlowEngine(model), model, tiny.tokenizer, frozenset(), dtype=torch.float32, **options)


def request(prompt=(5, 6, 7), seed=0, n=8, entropy=None, **sampling):
    return Request(prompt_ids=tuple(prompt), max_new_tokens=n, seed=seed, sampling=Sampling(**sampling), entropy=entropy)


def changed(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(9)))


def test_greedy_completions_equal_the_base_samplers(model, tiny):
    requests = [request(prompt=range(3, 3 + i), n=4 + i, temperature=0.0, entropy=kind) for i, kind in enumerate([None, 0, 1, 5, 1000], 1)]
    base = TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=torch.float32).generate(requests)
    for one, other in zip(build(model, tiny).generate(requests), base, strict=True):
        assert (one.ids, one.finish) == (other.ids, other.finish)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert (one.entropies is None) == (other.entropies is None)
        assert one.entropies is None or one.entropies == pytest.approx(other.entropies, abs=1e-3)


def test_log_probabilities_of_truncated_sampling_are_those_before_it(model, tiny):
    asked = request(temperature=0.8, top_p=0.5)
    (done,) = build(model, tiny).generate([asked])
    assert done.logprobs == rescored(model, asked.prompt_ids, done.ids, temperature=0.8)[0]


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.5])
def test_rescoring_is_a_plain_forward(model, temperature):
    prompt, ids = [3, 4, 5], [9, 8, 200, 1]
    logprobs, entropies = rescored(model, prompt, ids, temperature=temperature)
    with torch.no_grad():
        logp = torch.log_softmax(model(input_ids=torch.tensor([prompt + ids])).logits[0, 2:-1].double() / (temperature or 1), -1)
    assert logprobs == pytest.approx(logp.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist(), abs=1e-5)
    assert entropies == pytest.approx((-(logp.exp() * logp).sum(-1)).tolist(), abs=1e-5)


def test_after_a_publish_the_engine_computes_with_the_new_weights(model, tiny):
    sampler = build(model, tiny)
    before = sampler.generate([request()])
    changed(model)
    assert sampler.generate([request()]) == before
    sampler.publish()
    (after,) = sampler.generate([request()])
    assert after.logprobs == pytest.approx(rescored(model, (5, 6, 7), after.ids, temperature=1.0)[0], abs=1e-5)


def test_every_publish_has_a_version_of_its_own(model, tiny):
    sampler, other = build(model, tiny), build(model, tiny)
    versions = [sampler.version, other.version]
    for one in (sampler, other):
        one.publish()
        versions.append(one.version)
    assert len(set(versions)) == 4 and all(versions)


@pytest.mark.parametrize("names", [("somebody-else",), (), ("default", "somebody-else")])
def test_a_completion_of_other_weights_is_an_error_that_names_them(model, tiny, names):
    engine = SlowEngine(model)
    sampler = build(model, tiny, engine)
    engine.names = names
    with pytest.raises(UserError, match=f"{names[-1] if names else 'without a version'}.*expected {sampler.version}"):
        sampler.generate([request()])


@pytest.mark.parametrize("part", ["embed_tokens", "lm_head", "down_proj", "layernorm"])
def test_an_engine_that_keeps_an_old_weight_fails_the_probe_and_cannot_be_sampled_from(model, tiny, part):
    engine = SlowEngine(model, stale=(part,))
    sampler = build(model, tiny, engine)  # nothing has changed yet
    changed(model)
    with pytest.raises(UserError, match="differ from the policy's by"):
        sampler.publish()
    with pytest.raises(RuntimeError, match="publish first"):
        sampler.generate([request()])


def test_an_engine_that_ignores_the_temperature_fails_the_probe(model, tiny):
    class Raw(SlowEngine):
        def _continue(self, job):
            done = super()._continue(job)
            own, _ = rescored(self.model, job.ids, done.ids, temperature=1.0)
            return Written(ids=done.ids, logprobs=own, top=done.top, finish=done.finish, versions=done.versions)

    with pytest.raises(UserError, match="processed_logprobs"):
        build(model, tiny, Raw(model))


def test_a_sampler_that_rests_needs_a_publish(model, tiny):
    engine = SlowEngine(model)
    sampler = build(model, tiny, engine)
    sampler.rest()
    assert engine.rested == 1
    with pytest.raises(RuntimeError, match="publish first"):
        sampler.generate([request()])
    sampler.publish()
    assert len(sampler.generate([request()])) == 1


def test_a_sampler_for_a_further_process_waits_for_its_first_publish(model, tiny):
    engine = SlowEngine(model)
    sampler = build(model, tiny, engine, publish=False)
    assert engine.version == "nothing"
    with pytest.raises(RuntimeError, match="publish first"):
        sampler.generate([request()])


def test_a_listener_hears_every_token_in_order(model, tiny):
    sampler, heard = build(model, tiny), []
    sampler.listener = lambda index, token: heard.append((index, token))
    done = sampler.generate([request(seed=1), request(seed=2)])
    assert heard == [(index, token) for index, one in enumerate(done) for token in one.ids]


def test_a_request_without_room_is_refused_and_none_is_no_work(model, tiny):
    sampler = build(model, tiny)
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        sampler.generate([request(n=0)])
    assert sampler.generate([]) == []
