"""What processes agree on, with two real ones over gloo."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from ssrl.errors import UserError
from ssrl.training import ranks


def test_alone_the_result_and_the_error_are_ones_own():
    assert ranks.together(lambda: 3, torch.device("cpu")) == 3

    def fail():
        raise UserError("start the server")

    with pytest.raises(UserError, match="start the server"):
        ranks.together(fail, torch.device("cpu"))


KINDS = (UserError, OSError, RuntimeError)


def one(rank, file, folder):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)

    def work(kind):
        if rank == 1:
            raise kind("start the server")

    said = []
    for kind in KINDS:
        try:
            ranks.together(lambda kind=kind: work(kind), torch.device("cpu"), Exception)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    (folder / str(rank)).write_text("\n".join(said))
    dist.destroy_process_group()


def test_an_error_of_one_process_stops_all_of_them(tmp_path):
    multiprocessing.spawn(one, args=(tmp_path / "meet", tmp_path), nprocs=2)
    assert (tmp_path / "1").read_text().splitlines() == [f"{kind.__name__}: start the server" for kind in KINDS]
    others = (tmp_path / "0").read_text().splitlines()
    assert len(others) == len(KINDS) and all(line.startswith("UserError: another process") for line in others)
