"""`task=train`: the main job, from questions to a before-and-after table."""

from __future__ import annotations

import os

from ssrl.config import Config
from ssrl.data.fingerprint import fingerprint
from ssrl.runlog.folder import RunFolder
from ssrl.runlog.identity import run_folder
from ssrl.tasks.sources import Sources, load_sources


def main(config: Config, overrides: list[str]) -> None:
    """Train, or continue the run of the same configuration; a finished one is only shown."""
    sources = load_sources(config)  # before torch, so that bad data are answered at once
    folder = RunFolder(run_folder(config, fingerprint))
    if is_further_process():
        _train(config, sources, folder)
        return
    with folder.claim():
        command = " ".join(["python -m ssrl", *overrides])
        status = folder.status()
        with folder.tracked(command, step=status.step if status else 0):
            _train(config, sources, folder)


def is_further_process() -> bool:
    return any(os.environ.get(name, "0") != "0" for name in ("LOCAL_RANK", "SLURM_PROCID", "RANK"))


def _train(config: Config, sources: Sources, folder: RunFolder) -> None:
    from ssrl.tasks.fit import Fit

    fit = Fit(config, sources, folder)
    fit.prepare()
    fit.measure("before")
    if not fit.train():
        return
    fit.measure("after")
    fit.close()
