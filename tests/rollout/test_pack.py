"""A packed row gives what plain sequences give: log-probabilities, loss and gradient, for tiny models of each family."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssrl.policy.attention import attention_inputs, visible
from ssrl.policy.logprobs import row_hidden, token_logprobs
from ssrl.rollout.pack import pack, trained_lengths
from ssrl.types import Block, Question, Rollout, Source, Status
from tests.families import FAMILIES, make, right_padded

TEMPERATURE = 0.7


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    torch.set_num_threads(1)
    return make(request.param)


def rollout(group, prompt, ids, trained, logprobs=None):
    n = len(ids)
    return Rollout(
        question=Question(id=group, text="q", answers=("a",)), group=group, sample=0, prompt_ids=tuple(prompt), ids=tuple(ids),
        sources=(Source.POLICY,) * n, blocks=(Block.OUTSIDE,) * n, turns=(0,) * n,
        logprobs=tuple(logprobs or [-1.0 - 0.1 * t for t in range(n)]), trained=tuple(trained), segments=(), status=Status.ENDED)  # fmt: skip


def batch(seed=0, groups=3, size=4):
    """Groups of rollouts of unequal lengths with holes in their masks; one first token trained, one not; one with nothing trained."""
    draw = random.Random(seed)
    made = []
    for group in range(groups):
        prompt = [draw.randrange(61) for _ in range(draw.randint(1, 9))]
        for member in range(size):
            ids = [draw.randrange(61) for _ in range(draw.randint(1, 12))]
            trained = [draw.random() < 0.7 for _ in ids]
            trained[0] = member % 2 == 0
            made.append(rollout(f"g{group}", prompt, ids, trained if member < size - 1 or group else [False] * len(ids)))
    return made


def plain(model, rollouts):
    """One forward a rollout over its whole sequence: log-probabilities of its trained tokens, with gradient."""
    out = []
    for r in rollouts:
        logits = model(input_ids=torch.tensor([[*r.prompt_ids, *r.ids]])).logits[0].float() / TEMPERATURE
        logp = torch.log_softmax(logits, -1)
        out.append([logp[len(r.prompt_ids) + t - 1, r.ids[t]] for t, trained in enumerate(r.trained) if trained])
    return out


def padded(model, rollouts):
    """All sequences as one right-padded batch."""
    logp = torch.log_softmax(model(**right_padded(rollouts)).logits.float() / TEMPERATURE, -1)
    return [[logp[i, len(r.prompt_ids) + t - 1, r.ids[t]] for t, x in enumerate(r.trained) if x] for i, r in enumerate(rollouts)]


def packed(model, rows, count):
    out = [[] for _ in range(count)]
    for row in rows:
        logp, _ = token_logprobs(
            row_hidden(model.get_decoder(), row), model.get_output_embeddings(), row.target, temperature=TEMPERATURE, chunk=1000)  # fmt: skip
        for index, value in zip(row.rollout.tolist(), logp, strict=True):
            out[index].append(value)
    return out


def objective(logps):
    """Some smooth loss in which every token and rollout has its own weight."""
    return sum(math.cos(i + 3 * t) * value.exp() + 0.1 * (i + 1) * value for i, row in enumerate(logps) for t, value in enumerate(row))


def gradients(model, logps):
    model.zero_grad()
    loss = objective(logps)
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}


def same_gradients(one, other):
    for name, gradient in one.items():
        scale = max(1.0, gradient.abs().max().item())
        assert torch.allclose(gradient, other[name], atol=1e-5 * scale), name


@pytest.mark.parametrize("reference", [plain, padded])
@pytest.mark.parametrize("row_tokens", [1, 30, 10_000])
def test_packed_rows_give_the_log_probabilities_loss_and_gradient_of_plain_sequences(model, reference, row_tokens):
    rollouts = batch()
    expected = reference(model, rollouts)
    found = packed(model, pack(rollouts, row_tokens=row_tokens), len(rollouts))
    assert [len(row) for row in found] == trained_lengths(rollouts).tolist() == [sum(r.trained) for r in rollouts]
    for a, b in zip(found, expected, strict=True):
        assert [x.item() for x in a] == pytest.approx([x.item() for x in b], abs=1e-5)
    loss, gradient = gradients(model, expected)
    other, summed = gradients(model, found)
    assert other == pytest.approx(loss, rel=1e-5)
    same_gradients(gradient, summed)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["parts", "eager"])
@pytest.mark.parametrize("row_tokens", [1, 30, 10_000])
def test_every_attention_gives_the_same_log_probabilities_and_gradient(family, attention, row_tokens):
    rollouts = batch()
    rows = pack(rollouts, row_tokens=row_tokens)
    one, other = make(family), make(family, attention)
    first, second = packed(one, rows, len(rollouts)), packed(other, rows, len(rollouts))
    for a, b in zip(first, second, strict=True):
        assert [x.item() for x in a] == pytest.approx([x.item() for x in b], abs=1e-5)
    same_gradients(gradients(one, first)[1], gradients(other, second)[1])


def test_a_fused_kernel_is_told_the_same_mask():
    rows = pack(batch(), row_tokens=40)
    config = make("llama", "flex").config
    for row in rows:
        mask = attention_inputs(config, row)["attention_mask"]
        at = torch.arange(len(row.ids))
        seen = [[bool(mask.mask_mod(torch.tensor(0), torch.tensor(0), i, j)) for j in at] for i in at]
        assert torch.equal(torch.tensor(seen), visible(row.group, row.segment))


def test_attention_by_parts_refuses_what_is_not_a_packed_row():
    with pytest.raises(RuntimeError, match="row_hidden"):
        make("llama", "parts")(input_ids=torch.tensor([[1, 2]]))


def test_without_sharing_every_rollout_has_its_prompt_before_it():
    group = [rollout("a", [1, 2, 3], [4, 5], [True] * 2) for _ in range(2)]
    (row,) = pack(group, row_tokens=100, share_prompt=False)
    assert row.ids.tolist() == [1, 2, 3, 4] * 2 and row.positions.tolist() == [0, 1, 2, 3] * 2
    assert row.source.tolist() == [2, 3, 6, 7]


def test_a_row_by_hand():
    (row,) = pack([
        rollout("a", [1, 2], [3, 4, 5], [True, True, False]), rollout("a", [1, 2], [6, 7], [False, True]), rollout("b", [8], [9], [True]),
    ], row_tokens=100)  # fmt: skip
    # prompt 1 2, then 3 of the first response (4 is only predicted, 5 not even that), 6 of the second, then prompt 8
    assert row.ids.tolist() == [1, 2, 3, 6, 8]
    assert row.positions.tolist() == [0, 1, 2, 2, 0]
    assert row.source.tolist() == [1, 2, 3, 4]
    assert row.target.tolist() == [3, 4, 7, 9]
    assert row.rollout.tolist() == [0, 0, 1, 2]
    assert row.sampled_logp.tolist() == pytest.approx([-1.0, -1.1, -1.1, -1.0])
    assert visible(row.group, row.segment).int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 1]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60))
def test_rows_keep_to_their_budget_and_every_trained_token_is_in_one_row(seed, row_tokens):
    rollouts = batch(seed)
    rows = pack(rollouts, row_tokens=row_tokens)
    homes = {}
    for number, row in enumerate(rows):
        members = sorted(set(row.rollout.tolist()))
        assert len(row.ids) <= row_tokens or len(members) == 1, "only a single sequence may be longer"
        for index in members:
            assert homes.setdefault(index, number) == number, "a rollout lies in one row only"
            mine = row.rollout == index
            expected = [(r_id, logp) for r_id, logp, t in zip(rollouts[index].ids, rollouts[index].logprobs, rollouts[index].trained, strict=True) if t]
            assert row.target[mine].tolist() == [token for token, _ in expected]
            assert row.sampled_logp[mine].tolist() == pytest.approx([logp for _, logp in expected])
    assert sorted(homes) == [i for i, r in enumerate(rollouts) if any(r.trained)]


def test_a_group_that_does_not_fit_goes_on_in_another_row_with_its_prompt_again():
    group = [rollout("a", [1, 2, 3], [4, 5, 6], [True] * 3) for _ in range(4)]  # each reads two response tokens
    rows = pack(group, row_tokens=3 + 2 * 2)
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4, 5, 4, 5]] * 2
    assert [sorted(set(row.rollout.tolist())) for row in rows] == [[0, 1], [2, 3]]


def test_a_sequence_longer_than_the_budget_gets_a_row_of_its_own():
    short, long = [rollout("a", [1], [2, 3], [True, True]), rollout("b", [1] * 20, [2, 3], [True, True])]
    assert [len(row.ids) for row in pack([short, long, rollout("c", [1], [2, 3], [True, True])], row_tokens=5)] == [2, 21, 2]


def test_rollouts_that_are_not_kept_take_no_place():
    rollouts = batch()
    keep = [i % 3 == 1 for i in range(len(rollouts))]
    rows = pack(rollouts, row_tokens=50, keep=keep)
    assert {i for row in rows for i in row.rollout.tolist()} == {i for i, r in enumerate(rollouts) if keep[i] and any(r.trained)}
    assert pack([], row_tokens=5) == [] and pack(rollouts, row_tokens=5, keep=[False] * len(rollouts)) == []


def test_members_of_a_group_must_have_one_prompt():
    with pytest.raises(ValueError, match="different prompts"):
        pack([rollout("a", [1], [2], [True]), rollout("a", [3], [2], [True])], row_tokens=50)


def test_a_token_that_is_not_trained_influences_nothing():
    changed, rollouts = [], batch()
    for r in rollouts:
        last = max((t for t, trained in enumerate(r.trained) if trained), default=-1)
        ids = [token if t <= last else (token + 17) % 61 for t, token in enumerate(r.ids)]
        logprobs = [logp if trained else float("nan") for logp, trained in zip(r.logprobs, r.trained, strict=True)]
        changed.append(rollout(r.group, r.prompt_ids, [*ids, 5, 6], [*r.trained, False, False], [*logprobs, -9.0, float("nan")]))
    assert any(one.ids != other.ids[: len(one.ids)] for one, other in zip(rollouts, changed, strict=True))
    for row, other in zip(pack(rollouts, row_tokens=40), pack(changed, row_tokens=40), strict=True):
        for name in row.__slots__:
            assert torch.equal(getattr(row, name), getattr(other, name)), name


def test_an_untrained_token_between_trained_ones_is_read_and_not_scored():
    model = make("llama")
    with_hole = rollout("a", [1, 2], [3, 4, 5], [True, False, True])
    (scored,) = packed(model, pack([with_hole], row_tokens=50), 1)
    every = rollout("a", [1, 2], [3, 4, 5], [True, True, True])
    (whole,) = packed(model, pack([every], row_tokens=50), 1)
    assert [x.item() for x in scored] == pytest.approx([whole[0].item(), whole[2].item()], abs=1e-6)
