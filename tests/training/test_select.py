"""Which rollouts are trained, and how they are split."""

from ssrl.training.select import mini_batches, numbered, trainable
from ssrl.types import Block, Question, Rollout, Source, Status

QUESTION = Question(id="q", text="Why?", answers=("so",))


def rollout(group, sample, status=Status.ENDED):
    return Rollout(
        question=QUESTION, group=group, sample=sample, prompt_ids=(1,), ids=(2,), sources=(Source.POLICY,), blocks=(Block.OUTSIDE,),
        turns=(0,), logprobs=(0.0,), trained=(True,), segments=(), status=status)  # fmt: skip


def test_failed_rollouts_are_left_out_and_so_is_a_group_that_they_leave_alone():
    failed = Status.FAILED
    batch = [rollout("a", 0), rollout("a", 1, failed), rollout("a", 2), rollout("b", 0, failed), rollout("b", 1), rollout("c", 0, failed)]
    assert [(r.group, r.sample) for r in trainable(batch)] == [("a", 0), ("a", 2)]
    assert trainable([]) == []
    assert trainable(batch, failed=True) == batch[:5]


def test_mini_batches_are_whole_groups_and_each_rollout_is_in_one():
    numbers = [6, 6, 7, 7, 8, 8, 9, 9, 10, 10]
    parts = mini_batches(numbers, 3)
    assert sorted(i for part in parts for i in part) == list(range(10))
    assert [{numbers[i] for i in part} for part in parts] == [{6, 9}, {7, 10}, {8}]
    assert mini_batches([], 2) == [[], []]


def test_mini_batches_do_not_depend_on_the_number_of_processes():
    numbers = list(range(20, 32))
    whole = mini_batches(numbers, 4)
    for processes in (2, 3, 5):
        shared = [numbers[rank::processes] for rank in range(processes)]
        for k in range(4):
            assert {numbers[i] for i in whole[k]} == {mine[i] for mine in shared for i in mini_batches(mine, 4)[k]}


def test_a_rollout_trained_in_place_of_a_failed_one_is_not_taken_for_one_of_the_next_group():
    voted = [rollout("a", 0), rollout("a", 1, Status.FAILED), rollout("a", 2), rollout("b", 0), rollout("b", 1), rollout("b", 2)]
    trained = [r for r in trainable(voted) if (r.group, r.sample) != ("b", 2)]  # two of the three of each group
    numbers = numbered(trained, {"a": 4, "b": 5}, 3)
    assert numbers == [12, 14, 15, 16]
    assert mini_batches([number // 3 for number in numbers], 2) == [[0, 1], [2, 3]]
