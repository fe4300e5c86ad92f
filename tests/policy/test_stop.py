"""The shortest prefix of ids that holds a stop string."""

import random

import pytest

from ssrl.policy.stop import holds_stop, shortest_holding


def slow(tokenizer, ids, stop):
    """By looking at every prefix."""
    return next((n for n in range(1, len(ids) + 1) if any(one in tokenizer.decode(ids[:n]) for one in stop)), None)


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("ab</search>cd", ("</search>",), "ab</search>"),
        ("a</answer>b</search>", ("</search>", "</answer>"), "a</answer>"),
        ("</sea</search>x", ("</search>",), "</sea</search>"),
        ("aaé！b", ("é！",), "aaé！"),
        ("</search>", ("</search>",), "</search>"),
        ("</search", ("</search>",), None),
        ("", ("</search>",), None),
        ("anything", (), None),
    ],
)
def test_the_prefix_ends_with_the_token_that_completes_the_first_stop_string(tiny, text, stop, expected):
    ids = tiny.tokenizer(text).input_ids
    length = shortest_holding(tiny.tokenizer, ids, stop)
    assert (None if length is None else tiny.tokenizer.decode(ids[:length])) == expected


def test_it_is_the_one_that_looking_at_every_prefix_finds_and_that_the_sampler_stops_at(tiny):
    draw = random.Random(4)
    pieces = ["</search>", "</answer>", "<", "/", "é", "s", "</se", "！", "arch>"]
    for _ in range(200):
        ids = tiny.tokenizer("".join(draw.choice(pieces) for _ in range(draw.randrange(1, 9)))).input_ids
        found = shortest_holding(tiny.tokenizer, ids, ("</search>", "</answer>"))
        assert found == slow(tiny.tokenizer, ids, ("</search>", "</answer>"))
        stepwise = next((n for n in range(1, len(ids) + 1) if holds_stop(tiny.tokenizer, ids[:n], ("</search>", "</answer>"))), None)
        assert found == stepwise
