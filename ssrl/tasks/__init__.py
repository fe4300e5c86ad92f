"""One file a task. Objects are built from the configuration and wired here, and nowhere else."""

from __future__ import annotations

from importlib import import_module

from ssrl.config import Config, TableConfig
from ssrl.processes import is_first_process
from ssrl.table import Cell


def run(config: Config, overrides: list[str]) -> None:
    """Do `config.task`, of which several processes share training alone; else further ones have nothing to do.

    `overrides`: what the user typed, for tasks that start from a run's own configuration.
    """
    if config.task != "train" and not is_first_process():
        return
    import_module(f"ssrl.tasks.{config.task}").main(config, overrides)


def read(config: Config, found: tuple[TableConfig, list[Cell]] | None) -> None:
    """Do `config.task`, one that reads runs and needs no torch. `found`: a table and its cells; None: all runs are meant."""
    import_module(f"ssrl.tasks.{config.task}").main(config, found)
