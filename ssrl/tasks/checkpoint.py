"""Checkpoints as users name them (`ckpt=`): a run folder, `<run>/best`, `<run>/last`, or a file."""

from __future__ import annotations

from pathlib import Path

import torch
from omegaconf import OmegaConf

from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.runlog.files import read_json

# What a run's own configuration decides for `task=eval`, `ask` and `export`, unless the user types it.
INHERITED = ("model", "prompt", "rollout", "reward", "data", "engine", "algo")


def checkpoint_path(run: Path, role: str) -> Path:
    return run / "checkpoints" / f"{role}.ckpt"


def locate(ckpt: str) -> tuple[Path, Path]:
    """The run folder and the checkpoint file that `ckpt` names; `best` where it names only the run."""
    path = Path(ckpt).expanduser()
    if path.is_file() and path.parent.name == "checkpoints":
        return path.parent.parent, path
    run, role = (path.parent, path.name) if path.name in ("best", "last") and not path.exists() else (path, "best")
    file = checkpoint_path(run, role)
    if not (run / "manifest.json").exists():
        raise UserError(f"ckpt={ckpt}: {run} is no run folder (it has no manifest.json); give runs/<name>-<hash>/seed<k>, with /best or /last")
    if not file.exists():
        found = sorted(p.stem for p in (run / "checkpoints").glob("*.ckpt"))
        raise UserError(f"ckpt={ckpt}: {run} has no {role} checkpoint; it has {', '.join(found) or 'none yet'}")
    return run, file


def with_run_config(config: Config, overrides: list[str]) -> Config:
    """`config` with the sections of the run behind `config.ckpt`, on which the user's own overrides are laid again."""
    if config.ckpt is None:
        return config
    run, _ = locate(config.ckpt)
    manifest = read_json(run / "manifest.json")
    merged = OmegaConf.structured(config)
    typed = [word.lstrip("+") for word in overrides]
    groups = {word.partition("=")[0] for word in typed}
    for section in INHERITED:
        if section in groups:
            continue
        merged[section] = OmegaConf.merge(OmegaConf.structured(type(getattr(config, section))), manifest["config"][section])
        for key in (key for key in groups if key.startswith(f"{section}.")):
            OmegaConf.update(merged, key, OmegaConf.select(OmegaConf.structured(config), key))
    if "name" not in groups:
        merged.name = Config.name  # the interpolation again, over the sections as they are now
    return OmegaConf.to_object(merged)


def load_weights(model: torch.nn.Module, file: Path) -> None:
    """Put a checkpoint's weights into the model that its run's configuration builds."""
    state = torch.load(file, map_location="cpu", weights_only=False, mmap=True)["state_dict"]
    model.load_state_dict({name.removeprefix("policy."): value for name, value in state.items()})
