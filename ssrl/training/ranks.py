"""What the processes of a run agree on. With one process every function is the identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist

from ssrl.errors import UserError

T = TypeVar("T")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def total(values: list[float], device: torch.device) -> list[float]:
    """Element-wise sum over processes, in float64."""
    return _reduce(values, device, dist.ReduceOp.SUM)


def largest(value: float, device: torch.device) -> float:
    """Maximum over processes: also the way to agree on a flag."""
    return _reduce([value], device, dist.ReduceOp.MAX)[0]


def together(work: Callable[[], T], device: torch.device, kinds: type[Exception] = UserError) -> T:
    """What `work` returns on this process.

    Raises:
        UserError: on all processes, where it was raised on any; else the others would wait for one that has gone. So it is with any other
            of these `kinds`, which the process that raised it raises again: more than UserErrors only where the work of one process waits for
            no other in its middle.
    """
    problem = result = None
    try:
        result = work()
    except kinds as error:
        problem = error
    if largest(float(problem is not None), device):
        raise problem or UserError("another process had to stop; what it printed says why")
    return result


def from_first(work: Callable[[], T], beside: Callable[[], object], device: torch.device) -> T:
    """What `work` returns on the first process, on all of them; the others do `beside` meanwhile. An error of one stops all, as in `together`."""
    return gathered([together(work if rank() == 0 else beside, device)])[0]


def gathered(items: list[T]) -> list[T]:
    """The items of all processes, in the order of their ranks; every process gets them."""
    if world_size() == 1:
        return items
    lists: list[list[T]] = [[] for _ in range(world_size())]
    dist.all_gather_object(lists, items)
    return [item for part in lists for item in part]


def _reduce(values: list[float], device: torch.device, operation: dist.ReduceOp.RedOpType) -> list[float]:
    if world_size() == 1 or not values:
        return values
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, operation)
    return tensor.tolist()
