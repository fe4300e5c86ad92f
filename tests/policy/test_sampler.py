"""The sampler beside plain transformers and slow references."""

import copy
import itertools
import math
import random

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from ssrl.policy.sampler import TransformersSampler, choose, merged_weights
from ssrl.types import Finish, Request, Sampling

SIZES = {
    "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.3, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
}  # fmt: skip
FAMILIES = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=False),
    "qwen3": Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True),
}


def make(family):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return AutoModelForCausalLM.from_config(FAMILIES[family]).eval()


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tiny):
    return make(request.param)


@pytest.fixture
def sampler(model, tiny):
    return TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=torch.float32)


def request(prompt, seed=0, n=12, stop=(), **sampling):
    entropy = sampling.pop("entropy", None)
    return Request(prompt_ids=tuple(prompt), max_new_tokens=n, seed=seed, sampling=Sampling(**sampling), stop=stop, entropy=entropy)


def varied(count=9, **options):
    """Prompts of several lengths, some with a common beginning and some equal, with different budgets."""
    draw = random.Random(5)
    stem = [draw.randrange(257) for _ in range(6)]
    prompts = [stem, stem, stem + [1, 2, 3], stem + [9], [7], [draw.randrange(257) for _ in range(20)]]
    return [request(prompts[i % len(prompts)], seed=i, n=4 + i, **options) for i in range(count)]


def forward(model, prompt, ids, temperature=1.0):
    """[N, V] log-probabilities of every new position by one plain forward."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0].float()
    return torch.log_softmax(logits[len(prompt) - 1 : len(prompt) + len(ids) - 1] / temperature, -1)


def same(one, other):
    assert (one.ids, one.finish) == (other.ids, other.finish)
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_log_probabilities_and_entropies_are_those_of_a_plain_forward(model, sampler, temperature):
    requests = varied(temperature=temperature, entropy=0)
    for asked, done in zip(requests, sampler.generate(requests), strict=True):
        logp = forward(model, asked.prompt_ids, done.ids, temperature)
        assert done.logprobs == pytest.approx(logp.gather(1, torch.tensor(done.ids)[:, None])[:, 0].tolist(), abs=1e-5)
        assert done.entropies == pytest.approx([-sum(math.exp(x) * x for x in row) for row in logp.tolist()], abs=1e-4)
        assert len(done.ids) == asked.max_new_tokens and done.finish is Finish.LENGTH


def slow_entropy(logits, k, temperature):
    """In float64, from the definition."""
    top = sorted((x / temperature for x in logits), reverse=True)[: k or None]
    weights = [math.exp(x - top[0]) for x in top]
    shares = [w / sum(weights) for w in weights]
    return -sum(p * math.log(p) for p in shares if p > 0)


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.5])
def test_each_request_gets_the_kind_of_entropy_that_it_asked_for_at_its_temperature(model, sampler, temperature):
    kinds = [None, 0, 1, 5, 20, 1000]
    requests = [request([3, 4, 5], seed=i, n=6, temperature=temperature, top_p=0.9, entropy=kind) for i, kind in enumerate(kinds)]
    for kind, asked, done in zip(kinds, requests, sampler.generate(requests), strict=True):
        if kind is None:
            assert done.entropies is None
            continue
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*asked.prompt_ids, *done.ids]])).logits[0, 2:-1].tolist()
        assert done.entropies == pytest.approx([slow_entropy(row, kind, temperature or 1.0) for row in logits], abs=1e-4)
        assert kind != 1 or done.entropies == pytest.approx([0.0] * 6, abs=1e-6)


def test_log_probabilities_are_those_before_truncation(model, sampler):
    requests = varied(temperature=0.8, top_p=0.5, top_k=7)
    for asked, done in zip(requests, sampler.generate(requests), strict=True):
        logp = forward(model, asked.prompt_ids, done.ids, 0.8)
        assert done.logprobs == pytest.approx(logp.gather(1, torch.tensor(done.ids)[:, None])[:, 0].tolist(), abs=1e-5)


def test_greedy_equals_transformers_generate_with_log_probabilities_at_one(model, sampler):
    requests = varied(temperature=0.0)
    for asked, done in zip(requests, sampler.generate(requests), strict=True):
        prompt = torch.tensor([asked.prompt_ids])
        whole = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=asked.max_new_tokens, do_sample=False, pad_token_id=0)
        assert list(done.ids) == whole[0, prompt.shape[1] :].tolist()
        assert done.logprobs == pytest.approx(forward(model, asked.prompt_ids, done.ids).max(-1).values.tolist(), abs=1e-5)


@pytest.mark.parametrize("sampling", [{"temperature": 1.0}, {"temperature": 0.0}, {"temperature": 1.2, "top_p": 0.8, "top_k": 40}])
def test_results_depend_on_no_other_request(model, tiny, sampling):
    requests = varied(**sampling)
    ends = frozenset(range(0, 257, 5))  # many end early and leave the batch
    results = TransformersSampler(model, tiny.tokenizer, ends, dtype=torch.float32).generate(requests)
    assert len({len(done.ids) for done in results}) > 2
    for batch, order in itertools.product([1, 4, 64], [1, -1]):
        other = TransformersSampler(model, tiny.tokenizer, ends, batch=batch, dtype=torch.float32).generate(requests[::order])[::order]
        for one, two in zip(results, other, strict=True):
            same(one, two)


def test_a_row_that_truncates_does_not_truncate_others(tiny):
    plain = [request([1, 2, 3], seed=s, n=20) for s in range(6)]
    sampler = TransformersSampler(tiny.model, tiny.tokenizer, frozenset(), dtype=torch.float32)
    mixed = sampler.generate([*plain, request([1, 2, 3], top_p=0.1), request([4], top_k=1)])
    for one, two in zip(sampler.generate(plain), mixed, strict=False):
        same(one, two)


def test_seeds_differ_inside_a_group_and_repeat_on_a_second_run(sampler):
    group = [request([5, 6, 7], seed=seed) for seed in range(8)]
    first = sampler.generate(group)
    assert len({done.ids for done in first}) == 8
    assert sampler.generate(group) == first


def test_an_end_token_is_kept_and_several_are_known(model, tiny):
    free = TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=torch.float32).generate([request([3, 4], n=20)])[0]
    for ends in ({free.ids[4]}, {free.ids[4], free.ids[9]}, {free.ids[9], free.ids[7]}):
        cut = min(free.ids.index(end) for end in ends) + 1
        (done,) = TransformersSampler(model, tiny.tokenizer, frozenset(ends), dtype=torch.float32).generate([request([3, 4], n=20)])
        assert done.ids == free.ids[:cut] and done.finish is Finish.EOS
    (full,) = TransformersSampler(model, tiny.tokenizer, frozenset({free.ids[4]}), dtype=torch.float32).generate([request([3, 4], n=3)])
    assert full.ids == free.ids[:3] and full.finish is Finish.LENGTH


class Dictated(torch.nn.Module):
    """An output head that makes the next tokens certain, whatever the hidden states are."""

    def __init__(self, ids):
        super().__init__()
        self.left = list(ids)

    def forward(self, hidden):
        logits = torch.full((len(hidden), 257), -40.0)
        logits[:, self.left.pop(0) if self.left else 66] = 40.0
        return logits


def dictate(sampler, tiny, text, stop, n=100):
    ids = tiny.tokenizer(text).input_ids
    sampler.model.set_output_embeddings(Dictated(ids))
    (done,) = sampler.generate([request([1, 2], n=n, stop=stop)])
    return tiny.tokenizer.decode(done.ids), done.finish


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("ab</search>cd", ("</search>",), "ab</search>"),
        ("ab</search>cd</search>", ("</search>", "</answer>"), "ab</search>"),
        ("a</answer>b</search>", ("</search>", "</answer>"), "a</answer>"),
        ("</sea</search>x", ("</search>",), "</sea</search>"),
        ("aaé！b", ("é！",), "aaé！"),  # a stop string of two characters and five one-byte tokens
    ],
)
def test_a_stop_string_ends_the_tokens_at_the_shortest_prefix_that_holds_it(tiny, text, stop, expected):
    sampler = TransformersSampler(tiny.model, tiny.tokenizer, tiny.end_ids, dtype=torch.float32)
    assert dictate(sampler, tiny, text, stop) == (expected, Finish.STOP)


def test_a_stop_string_in_the_prompt_or_past_the_budget_stops_nothing(tiny):
    sampler = TransformersSampler(tiny.model, tiny.tokenizer, tiny.end_ids, dtype=torch.float32)
    assert dictate(sampler, tiny, "ab</search>", ("</search>",), n=10) == ("ab</search", Finish.LENGTH)
    assert dictate(sampler, tiny, "ab</search>", ("</search>",), n=11) == ("ab</search>", Finish.STOP)
    sampler.model.set_output_embeddings(Dictated(tiny.tokenizer("ch>abc").input_ids))
    (done,) = sampler.generate([request(tiny.tokenizer("</search>").input_ids, n=6, stop=("</search>",))])
    assert done.finish is Finish.LENGTH


def test_a_request_without_room_is_refused(sampler):
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        sampler.generate([request([1], n=0)])


def test_no_request_is_no_work(sampler):
    assert sampler.generate([]) == []


# choosing a token


def allowed(probabilities, top_k, top_p):
    """The top_k most likely tokens, and of these the fewest that make up top_p of what they have together, one by one."""
    likely = sorted(range(len(probabilities)), key=lambda t: (-probabilities[t], t))[: top_k or None]
    whole = sum(probabilities[token] for token in likely)
    kept, mass = [], 0.0
    for token in likely:
        if kept and mass >= top_p * whole:
            break
        kept.append(token)
        mass += probabilities[token]
    return set(kept)


def test_top_p_acts_on_what_top_k_has_left_as_in_vllm():
    logp = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().expand(100, -1)
    uniform = torch.arange(100, dtype=torch.float64) / 100
    assert set(choose(logp, [Sampling(top_k=2, top_p=0.5)] * 100, uniform).tolist()) == {0}  # 0.4 of 0.7; 0.4 of 1 would not be enough
    assert set(choose(logp, [Sampling(top_p=0.5)] * 100, uniform).tolist()) == {0, 1}


def test_choose_never_leaves_the_allowed_set_and_reaches_all_of_it():
    draw = random.Random(0)
    for top_k, top_p in [(0, 1.0), (3, 1.0), (1, 1.0), (0, 0.6), (0, 1e-9), (4, 0.7), (100, 0.99)]:
        weights = [draw.random() ** 3 for _ in range(12)]
        probabilities = torch.tensor([w / sum(weights) for w in weights])
        rows = 4001
        uniform = torch.arange(rows, dtype=torch.float64) / rows
        logp = probabilities.log().expand(rows, -1)
        found = choose(logp, [Sampling(top_k=top_k, top_p=top_p)] * rows, uniform)
        expected = allowed(probabilities.tolist(), top_k, top_p)
        assert set(found.tolist()) == expected, (top_k, top_p)
        mass = sum(probabilities[t].item() for t in expected)
        for token in expected:  # evenly spaced numbers draw each token in proportion
            assert (found == token).double().mean().item() == pytest.approx(probabilities[token].item() / mass, abs=2 / rows)


def test_ties_at_the_border_go_to_the_lower_id():
    logp = torch.full((50, 6), 1 / 6).log()
    uniform = torch.linspace(0, 1 - 1e-9, 50, dtype=torch.float64)
    assert set(choose(logp, [Sampling(top_k=2)] * 50, uniform).tolist()) == {0, 1}
    assert choose(logp, [Sampling(temperature=0)] * 50, uniform).tolist() == [0] * 50


@pytest.mark.parametrize("uniform", [0.0, 0.25, 0.5, 1 - 2**-53])
def test_a_token_of_probability_zero_is_never_drawn(uniform):
    logp = torch.tensor([[-math.inf, math.log(0.5), -math.inf, math.log(0.5), -math.inf, -math.inf]])
    for sampling in (Sampling(), Sampling(top_p=0.9), Sampling(top_k=5), Sampling(top_k=3, top_p=0.999)):
        assert choose(logp, [sampling], torch.tensor([uniform], dtype=torch.float64)).item() in (1, 3)


def test_rows_are_drawn_each_by_its_own_rules():
    logp = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().expand(4, -1)
    rules = [Sampling(), Sampling(temperature=0), Sampling(top_k=1), Sampling(top_p=0.5)]
    assert choose(logp, rules, torch.zeros(4, dtype=torch.float64)).tolist() == [0, 3, 3, 2]


def test_frequencies_match_the_distribution(tiny):
    """Chi-square over 4,000 seeds, rare tokens pooled: the statistic stays below its 99.9 % point."""
    logp = forward(tiny.model, [10, 20, 30], [0], 0.15)[0]
    seeds = 4000
    sampler = TransformersSampler(tiny.model, tiny.tokenizer, frozenset(), batch=2000, dtype=torch.float32)
    done = sampler.generate([request([10, 20, 30], seed=s, n=1, temperature=0.15) for s in range(seeds)])
    counts = torch.bincount(torch.tensor([d.ids[0] for d in done]), minlength=257).double()
    expected = logp.double().exp() * seeds
    common = expected >= 5
    observed = torch.cat([counts[common], counts[~common].sum()[None]])
    expected = torch.cat([expected[common], expected[~common].sum()[None]])
    degrees = len(expected) - 1
    assert degrees > 10
    statistic = ((observed - expected) ** 2 / expected).sum().item()
    assert statistic < degrees + 3.1 * math.sqrt(2 * degrees) + 7


# taking over weights


def changed(model):
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_publish_takes_over_changed_weights_and_nothing_before(tiny, family, dtype):
    model = make(family)
    sampler = TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=dtype)
    requests = varied()
    before = sampler.generate(requests)
    changed(model)
    assert sampler.generate(requests) == before, "the sampler has a copy of its own"
    sampler.publish()
    after = sampler.generate(requests)
    assert after != before
    fresh = TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=dtype).generate(requests)
    assert after == fresh
    if dtype is torch.float32:
        for asked, done in zip(requests, after, strict=True):
            logp = forward(model, asked.prompt_ids, done.ids)
            assert done.logprobs == pytest.approx(logp.gather(1, torch.tensor(done.ids)[:, None])[:, 0].tolist(), abs=1e-5)


def test_bfloat16_stays_near_float32(tiny):
    requests = [request([1, 2, 3], seed=s, n=1) for s in range(20)]
    one, two = (TransformersSampler(tiny.model, tiny.tokenizer, frozenset(), dtype=d).generate(requests) for d in (torch.float32, torch.bfloat16))
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if a.ids == b.ids]
    assert len(pairs) > 10
    assert all(a.logprobs == pytest.approx(b.logprobs, abs=0.1) for a, b in pairs)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sampler_in_bfloat16_rounds_weights_and_not_where_a_token_stands(tiny, family):
    model = make(family)
    copied = TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=torch.bfloat16).model
    frequencies = {name: buffer for name, buffer in model.named_buffers() if "inv_freq" in name}
    assert frequencies
    for name, buffer in copied.named_buffers():
        if name in frequencies:
            assert torch.equal(buffer, frequencies[name])
    assert {p.dtype for p in copied.parameters()} == {torch.bfloat16}
    tied = model.config.tie_word_embeddings
    assert (copied.get_output_embeddings().weight is copied.get_input_embeddings().weight) is tied


def test_the_policy_itself_is_left_alone(tiny):
    model = make("qwen2").train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    attention = model.config._attn_implementation
    sampler = TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=torch.float32)
    sampler.generate(varied())
    sampler.publish()
    assert model.training and all(p.requires_grad for p in model.parameters())
    assert model.config._attn_implementation == attention
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not sampler.model.training


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_are_merged_at_first_and_at_every_publish(tiny, family):
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(3)
        policy = get_peft_model(make(family), LoraConfig(r=2, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)).eval()
    sampler = TransformersSampler(policy, tiny.tokenizer, frozenset(), dtype=torch.float32)
    requests = varied()

    def check(results):
        for asked, done in zip(requests, results, strict=True):
            logp = forward(policy, asked.prompt_ids, done.ids)
            assert done.logprobs == pytest.approx(logp.gather(1, torch.tensor(done.ids)[:, None])[:, 0].tolist(), abs=2e-4)  # merging rounds

    before = sampler.generate(requests)
    check(before)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.mul_(-2)
    sampler.publish()
    after = sampler.generate(requests)
    assert after != before
    check(after)
    assert any("lora" in name for name, _ in policy.named_parameters()), "the adapters are still apart"


def test_merged_weights_are_those_that_merging_gives_under_the_names_of_the_plain_model():
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(3)
        policy = get_peft_model(make("qwen2"), LoraConfig(r=2, lora_alpha=8, target_modules="all-linear", init_lora_weights=False))
    found = dict(merged_weights(policy))
    expected = copy.deepcopy(policy).merge_and_unload().state_dict()
    assert found.keys() == expected.keys() == make("qwen2").state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_merged_weights_of_a_plain_model_are_its_own():
    model = make("qwen2")
    state = copy.deepcopy(model.state_dict())
    assert all(torch.equal(merged_weights(model)[name], value) for name, value in state.items())
