"""Checkpoints as users name them (`ckpt=`): a run folder, `<run>/best`, `<run>/last`, or a file."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from ssrl.check import check
from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.runlog.files import read_json

if TYPE_CHECKING:
    from torch.nn import Module

# What a run's own configuration decides for `task=eval`, `ask` and `export`, unless the user types it.
INHERITED = (
    "recipe", "model", "prompt", "rollout", "reward", "data", "engine", "retriever", "simulator", "wrapper", "algo",
    "eval.engine", "eval.retriever", "eval.temperature",
)  # fmt: skip


def checkpoint_path(run: Path, role: str) -> Path:
    return run / "checkpoints" / f"{role}.ckpt"


def locate(ckpt: str) -> tuple[Path, Path]:
    """The run folder and the checkpoint file that `ckpt` names; where it names only the run, `best`, or `last` if none was chosen."""
    path = Path(ckpt).expanduser()
    if path.exists() and path.parent.name == "checkpoints":
        return path.parent.parent, path
    if path.name in ("best", "last") and not path.exists():
        run, role = path.parent, path.name
    else:
        run, role = path, "best" if checkpoint_path(path, "best").exists() else "last"
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
    merged, stored = OmegaConf.structured(config), OmegaConf.create(manifest["config"])
    typed = typed_keys(overrides)
    for section in INHERITED:
        of_run = OmegaConf.select(stored, section)  # None: the run is older than the section
        if of_run is None or {section, section.removeprefix("eval.")} & set(typed):  # who types an engine means it for evaluation too
            continue
        if not OmegaConf.is_config(of_run):
            OmegaConf.update(merged, section, of_run)
            continue
        OmegaConf.update(merged, section, OmegaConf.merge(OmegaConf.structured(type(attrgetter(section)(config))), of_run), merge=False)
        for key in (key for key in typed if key.startswith(f"{section}.")):
            addition = OmegaConf.create()
            OmegaConf.update(addition, key, OmegaConf.select(OmegaConf.structured(config), key), force_add=True)
            merged = OmegaConf.merge(merged, addition)
    if "name" not in typed:
        merged.name = Config.name  # the interpolation again, over the sections as they are now
    check(merged)
    return OmegaConf.to_object(merged)


def typed_keys(overrides: list[str]) -> list[str]:
    """The groups and keys that were given a value, those of a dictionary one by one; an empty one gives none."""
    keys: list[str] = []
    for override in OverridesParser.create().parse_overrides(overrides):
        if override.is_delete():
            continue
        keys += _leaves(override.package or override.key_or_group, override.value())
    return keys


def _leaves(key: str, value: object) -> list[str]:
    return [leaf for name, inner in value.items() for leaf in _leaves(f"{key}.{name}", inner)] if isinstance(value, dict) else [key]


def load_weights(model: Module, file: Path) -> None:
    """Put a checkpoint's weights into the model that its run's configuration builds."""
    from ssrl.training.files import read_weights

    state = read_weights(file)
    model.load_state_dict({name.removeprefix("policy."): value for name, value in state.items() if name.startswith("policy.")})
