"""A table as data: the sweeps that fill it, and its cells, each with the folder that its run has by identity."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from ssrl.compose import Composer
from ssrl.config import Config, TableConfig
from ssrl.data.fingerprint import fingerprint
from ssrl.errors import UserError
from ssrl.overrides import command, key_of, values_of, without
from ssrl.runlog.identity import eval_folder, run_folder, run_hash

UNTRAINED = "untrained"
TRAINING = (  # what cannot change the figures of a model before it is trained
    "recipe", "algo", "train", "guard", "model.lora", "data.train", "data.val", "rollout.n", "eval.every",
    "reward.label", "reward.votes", "reward.min_share",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a table."""

    row: str  # "grpo"; several keys that name a row: "grpo, none"
    seed: int
    steps: int  # training steps that it has when it is finished; 0: it is an evaluation
    folder: Path
    command: str  # runs this cell alone
    before: str  # hash over what its figures before training depend on: cells in which it is the same share them


def untrained(words: Sequence[str], table: TableConfig) -> list[str] | None:
    """The words of the sweep that measures the untrained model, which has no place in the product of the other cells; None: no such row."""
    if not table.before or values_of(words, "task") not in ([], ["train"]):
        return None
    return [*without(words, {key_of(word) for word in table.before}), *table.before]


def sweeps(words: Sequence[str], table: TableConfig) -> list[list[str]]:
    """What is run, one sweep after the other: the untrained model first, except where the words name a single cell; without a table, the words."""
    single = all(len(values_of(words, key)) == 1 for key in (*table.rows, "seed"))
    first = untrained(words, table)
    return [list(words)] if first is None or single else [first, list(words)]


def cells(composer: Composer, words: Sequence[str], flags: Sequence[str] = ()) -> tuple[TableConfig, list[Cell]]:
    """A table and its cells, in the order in which they run.

    Args:
        words: overrides in Hydra's spelling, `table=` among them.
        flags: what else a cell's command needs, such as `--config-dir`.

    Raises:
        UserError: the words name no table, or something is wrong with it.
    """
    base, trained = composer.sweep(words)
    table: TableConfig = OmegaConf.to_object(base.table)
    if not table.name:
        raise UserError(f"there is no table to read: type +table=NAME; known: {', '.join(composer.options('table'))}")
    first = untrained(words, table)
    jobs = [(UNTRAINED, job) for job in (composer.sweep(first)[1] if first else ())] + [(None, job) for job in trained]
    composed: dict[tuple[str, ...], DictConfig] = {}
    found: list[Cell] = []
    for label, job in jobs:
        seedless = tuple(without(job, ["seed"]))
        if seedless not in composed:  # runs that differ by their seed share the work
            composed[seedless] = composer.one(seedless)
        found.append(_cell(table, composed[seedless], job, flags, label))
    _refuse_namesakes(table, found)
    return table, found


def _cell(table: TableConfig, config: DictConfig, words: Sequence[str], flags: Sequence[str], label: str | None) -> Cell:
    values = {key_of(word): str(OverridesParser.create().parse_override(word).value()) for word in words if key_of(word)}
    if missing := [key for key in table.rows if key not in values]:
        raise UserError(f"table.rows of {table.name} names {missing[0]}, but its sweep gives no value to it: add it to hydra.sweeper.params")
    config.seed = int(values.get("seed", config.seed))
    evaluates = config.task == "eval"
    return Cell(
        row=label or ", ".join(values[key] for key in table.rows) or table.name,
        seed=config.seed,
        steps=0 if evaluates else config.train.steps,
        folder=(eval_folder if evaluates else run_folder)(config, fingerprint),
        command=command([*flags, *sorted((word for word in words if not word.startswith("hydra")), key=lambda word: key_of(word) != "table")]),
        before=before_hash(config),
    )


def before_hash(config: DictConfig) -> str:
    """A hash over what the figures before training depend on; the engine and the retriever are those of evaluation."""
    tree, defaults = deepcopy(config), OmegaConf.structured(Config)
    for part in ("engine", "retriever"):
        if tree.eval[part].name != "same":
            tree[part] = tree.eval[part]
            tree.eval[part] = defaults.eval[part]
    for key in TRAINING:
        OmegaConf.update(tree, key, OmegaConf.select(defaults, key), merge=False)
    return run_hash(tree, fingerprint)


def _refuse_namesakes(table: TableConfig, found: Sequence[Cell]) -> None:
    known: dict[tuple[str, int], Cell] = {}
    for cell in found:
        other = known.setdefault((cell.row, cell.seed), cell)
        if other is not cell:
            raise UserError(
                f"two runs of {table.name} would be row {cell.row!r} with seed {cell.seed}: add what they differ by to table.rows={table.rows}, or sweep over it apart"
            )
