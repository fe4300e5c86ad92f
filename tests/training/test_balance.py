"""Groups are shared out by tokens, and every one is trained once, in its own update."""

import pickle

import pytest
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from hypothesis import given
from hypothesis import strategies as st

from ssrl.training.balance import balanced, shared_out
from ssrl.types import Block, Question, Rollout, Score, Source, Status


def test_the_most_costly_go_first_to_whoever_has_least():
    assert shared_out([1, 9, 5, 5], [0] * 4, 2) == [0, 0, 1, 1]
    assert shared_out([7, 7, 1, 1], [0, 1, 0, 1], 2) == [0, 0, 1, 1]  # each update by itself
    assert shared_out([], [], 3) == []


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 2)), max_size=40), st.integers(1, 8))
def test_no_process_has_more_than_the_mean_and_one_group(groups, processes):
    costs, update = [cost for cost, _ in groups], [one for _, one in groups]
    owner = shared_out(costs, update, processes)
    assert len(owner) == len(costs) and set(owner) <= set(range(processes))
    for one in set(update):
        mine = [i for i in range(len(costs)) if update[i] == one]
        loads = [sum(costs[i] for i in mine if owner[i] == process) for process in range(processes)]
        assert max(loads) <= sum(loads) / processes + max(costs[i] for i in mine)


def rollout(group, length, total):
    n = length + 1  # the last token is only predicted
    return Rollout(
        question=Question(id=group, text="q", answers=("a",)), group=group, sample=0, prompt_ids=(1, 2), ids=(3,) * n,
        sources=(Source.POLICY,) * n, blocks=(Block.OUTSIDE,) * n, turns=(0,) * n, logprobs=(0.0,) * n, trained=(True,) * n,
        segments=(), status=Status.ENDED, score=Score(total=total, parts={}, answer=None))  # fmt: skip


SAMPLED = [  # by process: long responses met the first one; its last group has no signal
    [rollout("a", 50, 1), rollout("a", 50, 0), rollout("b", 40, 1), rollout("b", 40, 0), rollout("c", 90, 1), rollout("c", 90, 1)],
    [rollout("d", 5, 1), rollout("d", 5, 0), rollout("e", 5, 1), rollout("e", 5, 0)],
]
NUMBERS = [{"a": 0, "b": 2, "c": 4}, {"d": 1, "e": 3}]


def one(rank, file, folder):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    found = balanced(SAMPLED[rank], NUMBERS[rank], updates=1, share_prompt=True, skip_flat=True)
    (folder / str(rank)).write_bytes(pickle.dumps(found))
    dist.destroy_process_group()


def test_alone_a_process_keeps_what_it_sampled():
    assert balanced(SAMPLED[0], NUMBERS[0], updates=1, share_prompt=True, skip_flat=True) == (SAMPLED[0], NUMBERS[0])


@pytest.mark.slow
def test_two_processes_exchange_whole_groups(tmp_path):
    multiprocessing.spawn(one, args=(tmp_path / "meet", tmp_path), nprocs=2)
    (first, numbers), (second, others) = (pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in (0, 1))
    # a costs 102 tokens, b 82, d and e 12, c nothing: a | b d e, then c where least is left
    assert numbers == {"a": 0, "c": 4}
    assert sorted(numbers | others) == ["a", "b", "c", "d", "e"] and not set(numbers) & set(others)
    assert [r for r in first if r.group == "a"] == SAMPLED[0][:2] and len(first) + len(second) == 10
    assert {r.group for r in first} == set(numbers) and {r.group for r in second} == set(others)
