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


def one(rank, file, folder):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)

    def work():
        if rank == 1:
            raise UserError("start the server")
        return "done"

    try:
        said = ranks.together(work, torch.device("cpu"))
    except UserError as error:
        said = str(error)
    (folder / str(rank)).write_text(said)
    dist.destroy_process_group()


def test_an_error_of_one_process_stops_all_of_them(tmp_path):
    multiprocessing.spawn(one, args=(tmp_path / "meet", tmp_path), nprocs=2)
    assert (tmp_path / "1").read_text() == "start the server"
    assert "another process" in (tmp_path / "0").read_text()
