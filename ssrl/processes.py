"""Which of the processes of a distributed run this one is, before torch knows."""

import os


def is_first_process() -> bool:
    """Whether this is not one of the further processes, each of which repeats the command (Lightning, torchrun, Slurm)."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))
