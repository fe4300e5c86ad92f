"""What vLLM is asked and how its answers are read, without an engine."""

import json
import math

import pytest

from ssrl.errors import UserError
from ssrl.policy.vllm_protocol import Written, ending, job, top_entropy
from ssrl.types import Finish, Request, Sampling

ENDS = frozenset({0})


def request(n=50, stop=(), entropy=None, **sampling):
    return Request(prompt_ids=(5, 6), max_new_tokens=n, seed=2**62 + 3, sampling=Sampling(**sampling), stop=stop, entropy=entropy)


def written(ids, finish="length"):
    return Written(ids=tuple(ids), logprobs=(-1.0,) * len(ids), top=((-1.0,),) * len(ids), finish=finish, versions=("v",))


def end(tiny, text, finish, n=50, stop=(), ended=False):
    ids = [*tiny.tokenizer(text).input_ids, *([0] if ended else [])]
    return ending(request(n=n, stop=stop), written(ids, finish), ENDS, tiny.tokenizer)


def test_a_job_is_one_continuation_with_its_own_seed_that_survives_json():
    asked = job(request(stop=("</search>",), temperature=0.7, top_p=0.9, top_k=5), ENDS, vocabulary=257, seeded=True)
    assert asked.ids == (5, 6)
    parameters = json.loads(json.dumps(asked.parameters))
    assert parameters["seed"] == 2**62 + 3 and "n" not in parameters
    assert (parameters["temperature"], parameters["top_p"], parameters["top_k"], parameters["max_tokens"]) == (0.7, 0.9, 5, 50)
    assert parameters["stop"] == ["</search>"] and parameters["include_stop_str_in_output"] and parameters["detokenize"]
    assert parameters["stop_token_ids"] == [0] and parameters["ignore_eos"]


def test_an_unseeded_job_names_no_seed():
    assert "seed" not in job(request(), ENDS, vocabulary=257, seeded=False).parameters


@pytest.mark.parametrize(("entropy", "expected"), [(None, 0), (0, 0), (5, 6), (256, 257), (1000, 257)])
def test_top_tokens_are_asked_for_only_where_their_entropy_is(entropy, expected):
    assert job(request(entropy=entropy), ENDS, vocabulary=257, seeded=True).parameters["logprobs"] == expected


def test_text_is_decoded_only_where_there_is_a_stop_string():
    assert job(request(), ENDS, vocabulary=257, seeded=True).parameters["detokenize"] is False


def test_an_end_token_ends_the_completion_and_belongs_to_it(tiny):
    assert end(tiny, "abc", "stop", ended=True) == (4, Finish.EOS)


def test_a_stop_string_ends_it_at_the_token_that_completes_it(tiny):
    assert end(tiny, "ab</search>", "stop", stop=("</search>",)) == (11, Finish.STOP)
    assert end(tiny, "ab</search>cd", "length", stop=("</search>",)) == (11, Finish.STOP), "tokens behind it are dropped"


def test_a_stop_string_behind_the_end_token_does_not_count(tiny):
    ids = [9, 0, *tiny.tokenizer("</search>").input_ids]
    assert ending(request(stop=("</search>",)), written(ids, "stop"), ENDS, tiny.tokenizer) == (2, Finish.EOS)


def test_a_full_budget_is_length_unless_the_last_token_ends_it(tiny):
    assert end(tiny, "abcd", "length", n=4) == (4, Finish.LENGTH)
    assert end(tiny, "abc", "stop", n=4, ended=True) == (4, Finish.EOS)
    assert end(tiny, "</search>", "length", n=9, stop=("</search>",)) == (9, Finish.STOP)


def test_a_server_whose_sequences_are_too_short_is_named_instead_of_cutting_rollouts(tiny):
    with pytest.raises(UserError, match="stopped after 2 of 4 tokens.*--max-model-len"):
        end(tiny, "ab", "length", n=4)


def test_a_stop_that_the_ids_do_not_hold_still_ends_it(tiny):
    assert end(tiny, "ab", "stop", stop=("</search>",)) == (2, Finish.STOP)


@pytest.mark.parametrize("reason", ["abort", "error", ""])
def test_any_other_reason_is_an_error_that_names_it(tiny, reason):
    with pytest.raises(RuntimeError, match=f"finish reason '{reason}'"):
        end(tiny, "ab", reason)


def test_the_entropy_of_top_tokens_is_renormalised():
    probabilities = [0.5, 0.2, 0.1, 0.05]
    shares = [0.5 / 0.8, 0.2 / 0.8, 0.1 / 0.8]
    expected = -sum(p * math.log(p) for p in shares)
    assert top_entropy([math.log(p) for p in (0.05, 0.2, 0.5, 0.1)], 3) == pytest.approx(expected, abs=1e-12)
    assert top_entropy([math.log(p) for p in probabilities], 1) == 0.0
    assert top_entropy([math.log(0.5), math.log(0.5), -math.inf], 3) == pytest.approx(math.log(2))
