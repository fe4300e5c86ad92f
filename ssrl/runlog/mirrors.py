"""W&B, TensorBoard and CSV as mirrors of `metrics.jsonl`: a mirror that fails is reported once and left alone, and the run goes on."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ssrl.errors import UserError
from ssrl.runlog.files import dumps

NAMES = ("wandb", "tensorboard", "csv")
_LONGEST_ID = 128  # W&B refuses longer run ids


class Mirrors:
    """Loggers by name, each dropped at its first failure."""

    def __init__(self) -> None:
        self._loggers: dict[str, Any] = {}

    @property
    def alive(self) -> tuple[str, ...]:
        """Names of the mirrors that still work."""
        return tuple(self._loggers)

    def open(self, name: str, make: Callable[[], Any], config: Mapping[str, Any]) -> None:
        """Makes one logger and hands it the configuration."""

        def start() -> None:
            logger = self._loggers[name] = make()
            logger.log_hyperparams(dict(config))

        self._try(name, start)

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Sends the finite numbers among `metrics`."""
        numbers = {key: float(value) for key, value in metrics.items() if isinstance(value, (int, float)) and math.isfinite(value)}
        for name, logger in list(self._loggers.items()):
            self._try(name, lambda logger=logger: (logger.log_metrics(numbers, step=step), logger.save()))

    def close(self, ok: bool = True) -> None:
        """Ends every mirror; W&B's own run too, so that the next run of a sweep gets a new one."""
        for name, logger in list(self._loggers.items()):
            self._try(name, lambda logger=logger: logger.finalize("success" if ok else "failed"))
            if name == "wandb" and name in self._loggers:
                self._try(name, lambda logger=logger: logger.experiment.finish(exit_code=0 if ok else 1))
        self._loggers.clear()

    def _try(self, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self._loggers.pop(name, None)
            warnings.warn(
                f"the {name} mirror failed and is off for the rest of this run ({type(error).__name__}: {error}); "
                "metrics.jsonl in the run folder has every number",
                RuntimeWarning,
                stacklevel=3,
            )


def open_mirrors(
    names: Sequence[str], folder: Path, run_name: str, config_dict: Mapping[str, Any], project: str, wandb_mode: str
) -> Mirrors:
    """The chosen mirrors, writing into the run folder. `wandb_mode` is "offline", which needs no account, or "online"."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise UserError(f"logger.names has {unknown[0]!r}; known mirrors are {', '.join(NAMES)}: type e.g. logger.names=[csv]")
    for name in names:
        if name != "csv" and not _installed(name):
            raise UserError(f'logger.names has {name}, which is not installed; type in the clone: pip install -e ".[{name}]"')
    folder = folder.resolve()
    config = json.loads(dumps(config_dict))  # as the manifest would hold it: no secrets, plain values
    mirrors = Mirrors()
    for name in names:
        mirrors.open(name, lambda name=name: _make(name, folder, run_name, project, wandb_mode), config)
    return mirrors


def wandb_id(folder: Path) -> str:
    """W&B's run id: the run folder's name and its seed, so that a run that continues goes on as the same W&B run."""
    return re.sub(r"[^\w.+-]", "-", f"{folder.parent.name}-{folder.name}")[-_LONGEST_ID:]


def _installed(package: str) -> bool:
    spec = find_spec(package)
    # W&B writes to a folder `wandb`, which Python takes for a package without files when it lies in the working directory
    return spec is not None and spec.origin is not None


def _make(name: str, folder: Path, run_name: str, project: str, wandb_mode: str) -> Any:
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger

    if name == "csv":
        return CSVLogger(save_dir=folder, name="csv", flush_logs_every_n_steps=1)
    if name == "tensorboard":
        return TensorBoardLogger(save_dir=folder, name="tensorboard", version="", default_hp_metric=False)
    import wandb

    settings = wandb.Settings(console="off", silent=True)
    logger = WandbLogger(
        name=run_name, project=project, id=wandb_id(folder), save_dir=folder, offline=wandb_mode == "offline", settings=settings
    )
    _ = logger.experiment  # connects now, so that a failure is reported at the start
    return logger
