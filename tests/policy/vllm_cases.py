"""What a sampler on vLLM must do, as functions of a sampler and the policy's model: for the engine in process, and for servers.

    python -m tests.policy.vllm_cases FOLDER

runs them on an engine in this process (there can be one only) and prints one line of JSON, {case: "" or what went wrong}.
"""

import json
import random
import sys
import traceback

import torch

from ssrl.errors import UserError
from ssrl.policy.sampler import TransformersSampler
from ssrl.types import Finish, Request, Sampling

CLOSE = 1e-4


def request(prompt, seed=0, n=12, stop=(), entropy=None, **sampling):
    return Request(prompt_ids=tuple(prompt), max_new_tokens=n, seed=seed, sampling=Sampling(**sampling), stop=stop, entropy=entropy)


def varied(count=8, **options):
    """Prompts of several lengths, some with a common beginning and some equal, with different budgets."""
    draw = random.Random(5)
    stem = [draw.randrange(1, 257) for _ in range(6)]
    prompts = [stem, stem, stem + [1, 2, 3], stem + [9], [7], [draw.randrange(1, 257) for _ in range(200)]]
    return [request(prompts[i % len(prompts)], seed=2**62 + i, n=4 + i, **options) for i in range(count)]


def forward(model, prompt, ids, temperature=1.0):
    """[N, V] log-probabilities of every new position by one plain forward."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0].float()
    return torch.log_softmax(logits[len(prompt) - 1 : len(prompt) + len(ids) - 1] / temperature, -1)


def gap(model, asked, done):
    """The largest difference between the sampler's log-probabilities and a plain forward's."""
    logp = forward(model, asked.prompt_ids, done.ids, asked.sampling.temperature or 1.0)
    return (torch.tensor(done.logprobs) - logp.gather(1, torch.tensor(done.ids)[:, None])[:, 0]).abs().max().item()


def base(sampler, end_ids):
    return TransformersSampler(sampler.source, sampler.tokenizer, end_ids, dtype=torch.float32)


def changed(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def log_probabilities_are_those_of_a_plain_forward(sampler):
    for options in ({"temperature": 0.6}, {"temperature": 1.0}, {"temperature": 1.5}, {"temperature": 0.8, "top_p": 0.5, "top_k": 7}):
        requests = varied(**options)
        for asked, done in zip(requests, sampler.generate(requests), strict=True):
            assert len(done.ids) == asked.max_new_tokens and done.finish is Finish.LENGTH
            assert gap(sampler.source, asked, done) < CLOSE, options


def each_request_gets_the_kind_of_entropy_that_it_asked_for(sampler):
    kinds = [None, 0, 1, 5, 1000]
    requests = [request([3, 4, 5], seed=i, n=6, temperature=0.7, entropy=kind) for i, kind in enumerate(kinds)]
    for kind, asked, done in zip(kinds, requests, sampler.generate(requests), strict=True):
        if kind is None:
            assert done.entropies is None
            continue
        for row, found in zip(forward(sampler.source, asked.prompt_ids, done.ids, 0.7).double(), done.entropies, strict=True):
            top = torch.log_softmax(row.topk(min(kind or 260, 260)).values, -1)
            assert abs(-(top.exp() * top).sum().item() - found) < 1e-3


def greedy_tokens_and_endings_equal_the_base_samplers(sampler):
    free = base(sampler, frozenset()).generate([request(range(3, 40), n=40, temperature=0.0)])[0]
    end = frozenset({free.ids[17]})
    text = sampler.tokenizer.decode(free.ids)
    kept, sampler.end_ids = sampler.end_ids, end
    try:
        for stop in ((), (text[5:7],), (text[30:32], text[9:11]), ("never",)):
            requests = [request(range(3, 40), n=n, stop=stop, temperature=0.0) for n in (1, 10, 40)]
            for one, other in zip(sampler.generate(requests), base(sampler, end).generate(requests), strict=True):
                assert (one.ids, one.finish) == (other.ids, other.finish), stop
    finally:
        sampler.end_ids = kept


def seeds_differ_inside_a_group_repeat_and_depend_on_no_other_request(sampler):
    group = [request(range(5, 200), seed=seed) for seed in range(6)]
    first = sampler.generate(group)
    assert len({done.ids for done in first}) == 6
    assert [done.ids for done in sampler.generate(group)] == [done.ids for done in first]
    assert [sampler.generate([asked])[0].ids for asked in group[::-1]] == [done.ids for done in first[::-1]]


def a_continuation_of_a_turn_has_the_log_probabilities_of_a_plain_forward(sampler):
    first = [request(range(5, 160), seed=seed, n=20) for seed in range(3)]
    longer = [request((*asked.prompt_ids, *done.ids, 9, 9), seed=7) for asked, done in zip(first, sampler.generate(first), strict=True)]
    for asked, done in zip(longer, sampler.generate(longer), strict=True):
        assert gap(sampler.source, asked, done) < CLOSE


def after_each_of_several_updates_the_log_probabilities_agree_and_no_cached_prefix_is_used(sampler):
    requests = [request(range(1, 250), seed=seed) for seed in range(4)]  # longer than a block of the cache
    for update in range(3):
        before = sampler.generate(requests)
        changed(sampler.source, update)
        assert max(gap(sampler.source, asked, done) for asked, done in zip(requests, before, strict=True)) > 100 * CLOSE
        sampler.publish()
        for asked, done in zip(requests, sampler.generate(requests), strict=True):
            assert gap(sampler.source, asked, done) < CLOSE, update


def without_seeds_the_rollouts_of_a_group_still_differ(sampler):
    sampler.seeded = False
    try:
        assert len({done.ids for done in sampler.generate([request([5, 6, 7], seed=1) for _ in range(6)])}) == 6
    finally:
        sampler.seeded = True


def without_seeds_a_batch_repeats_and_another_is_drawn_otherwise(sampler):
    """Processes begin with the same random numbers, and must not explore the same."""
    sampler.seeded = False
    try:
        one, again, other = (
            [done.ids for done in sampler.generate([request([5, 6, 7], seed=seed + i) for i in range(6)])] for seed in (0, 0, 100))  # fmt: skip
    finally:
        sampler.seeded = True
    assert one == again and not set(one) & set(other)


def what_a_group_and_its_next_turn_have_in_common_is_computed_once(sampler):
    read: list[tuple[int, int]] = []
    generate = sampler.backend.engine.generate

    def watched(*args, **options):
        outputs = generate(*args, **options)
        read.extend((len(output.prompt_token_ids), output.num_cached_tokens) for output in outputs)
        return outputs

    sampler.backend.engine.generate = watched
    try:
        prompt = range(1, 250)
        sampler.publish()  # nothing is cached now
        del read[:]
        first = sampler.generate([request(prompt, seed=seed, n=20) for seed in range(4)])
        assert [cached > 0 for _, cached in read] == [False, True, True, True], read
        del read[:]
        sampler.generate([request((*prompt, *done.ids, 9, 9), seed=7) for done in first])
        assert all(cached >= 128 for _, cached in read), read
    finally:
        sampler.backend.engine.generate = generate


def after_rest_comes_a_publish(sampler):
    sampler.rest()
    try:
        sampler.generate([request([5])])
    except RuntimeError as error:
        assert "publish first" in str(error)
    else:
        raise AssertionError("generated from an engine that rests")
    sampler.publish()
    assert sampler.generate([request([5], n=2)])[0].finish is Finish.LENGTH


def more_prompts_than_are_read_at_once_keep_their_seeds(sampler):
    """vLLM would read a part of one of them, and then turn back its generator, which a CPU's cannot be."""
    requests = [request([i, *range(5, 200)], seed=i, n=3) for i in range(1, 9)]
    for asked, done in zip(requests, sampler.generate(requests), strict=True):
        assert gap(sampler.source, asked, done) < CLOSE
        assert sampler.generate([asked])[0].ids == done.ids


def weights_of_another_version_are_an_error(sampler):
    """The last case: it changes the version behind the sampler's back."""
    sampler.backend.engine.update_weight_version("somebody-else")
    try:
        sampler.generate([request([5])])
    except UserError as error:
        assert "somebody-else" in str(error) and sampler.version in str(error)
    else:
        raise AssertionError("a completion of other weights was taken")


SHARED = (
    log_probabilities_are_those_of_a_plain_forward,
    each_request_gets_the_kind_of_entropy_that_it_asked_for,
    greedy_tokens_and_endings_equal_the_base_samplers,
    seeds_differ_inside_a_group_repeat_and_depend_on_no_other_request,
    a_continuation_of_a_turn_has_the_log_probabilities_of_a_plain_forward,
    after_each_of_several_updates_the_log_probabilities_agree_and_no_cached_prefix_is_used,
    without_seeds_the_rollouts_of_a_group_still_differ,
    after_rest_comes_a_publish,
    more_prompts_than_are_read_at_once_keep_their_seeds,
)
CASES = (
    *SHARED, without_seeds_a_batch_repeats_and_another_is_drawn_otherwise, what_a_group_and_its_next_turn_have_in_common_is_computed_once,
    weights_of_another_version_are_an_error,
)  # fmt: skip


def in_process(folder):
    """A sampler on an engine in this process, and whether making it left the process as it was."""
    from ssrl.policy import vllm_inprocess
    from ssrl.policy.load import load_model
    from ssrl.policy.vllm_sampler import VllmSampler

    loaded = load_model(folder)
    torch.manual_seed(11)
    random.seed(11)
    state, drawn = torch.get_rng_state(), random.getstate()
    vllm_inprocess.READ = 600
    engine = vllm_inprocess.InProcess(
        folder, revision=None, device=torch.device("cpu"), dtype=torch.float32, context=512, batch=16, cache_gb=0.25)  # fmt: skip
    untouched = torch.equal(state, torch.get_rng_state()) and drawn == random.getstate() and not torch.distributed.is_initialized()
    return VllmSampler(engine, loaded.model, loaded.tokenizer, loaded.end_ids, dtype=torch.float32), untouched


def main(folder):
    sampler, untouched = in_process(folder)
    results = {"the_process_keeps_its_random_numbers_and_has_no_process_group": "" if untouched else "changed"}
    for case in CASES:
        try:
            case(sampler)
            results[case.__name__] = ""
        except Exception:  # whatever it was is the case's result, on which its test fails
            results[case.__name__] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
