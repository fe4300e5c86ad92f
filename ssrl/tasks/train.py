"""`task=train`: the main job, from questions to a before-and-after table."""

from __future__ import annotations

import os

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from rich.console import Console

from ssrl.config import Config
from ssrl.data.fingerprint import fingerprint
from ssrl.errors import UserError
from ssrl.overrides import command
from ssrl.processes import is_first_process
from ssrl.runlog.folder import RunFolder, RunStatus, State
from ssrl.runlog.identity import run_folder
from ssrl.tasks.checkpoint import checkpoint_path
from ssrl.tasks.show import say_finished, show_run
from ssrl.tasks.sources import Sources, load_sources, refuse_other_content


def main(config: Config, overrides: list[str]) -> None:
    """Train, or continue the run of the same configuration; a finished one is only shown, in a table by one line."""
    _check_launcher(config)
    sources = load_sources(config)  # before torch, so that bad data are answered at once
    folder = RunFolder(run_folder(config, fingerprint))
    if not is_first_process():
        if not _finished(config, folder.status()):
            _refuse_other_content(folder, sources)
            _train(config, sources, folder)
        return
    with folder.claim():
        status = folder.status()
        if _finished(config, status):
            say_finished(folder, "a larger train.steps continues it")
            if not config.table.name:
                show_run(Console(), folder)
            return
        _refuse_other_content(folder, sources)
        with folder.tracked(command(overrides), step=status.step if status else 0):
            _train(config, sources, folder)


def _check_launcher(config: Config) -> None:
    """Further processes repeat the command line, which in a sweep is that of the whole sweep; Slurm starts all processes itself."""
    several = config.trainer.devices * config.trainer.num_nodes > 1
    if several and HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN and "SLURM_PROCID" not in os.environ:
        alone = "with hydra.mode=RUN" if config.table.name else "without -m"
        raise UserError(
            f"trainer.devices={config.trainer.devices} in a sweep needs hydra/launcher=slurm; type trainer.devices=1, or one command a run {alone}"
        )


def _finished(config: Config, status: RunStatus | None) -> bool:
    return status is not None and status.state is State.DONE and status.step >= config.train.steps


def _refuse_other_content(folder: RunFolder, sources: Sources) -> None:
    if checkpoint_path(folder.path, "last").exists():  # else it begins anew
        refuse_other_content(folder.manifest(), sources.manifest)


def _train(config: Config, sources: Sources, folder: RunFolder) -> None:
    from ssrl.tasks.fit import Fit

    with Fit(config, sources, folder) as fit:
        if not (fit.first or fit.trains):  # training is all that further processes share
            return
        fit.prepare()
        if config.eval.before:
            fit.measure("before")
        fit.train()
        fit.measure("after")
        fit.finish()
