"""Hydra's loader over `conf/` and a user's own folder, with each of its errors as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException, ValidationError

from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.schema import describe, generic, keys, nearest, suggest

CONF = Path(__file__).parent / "conf"
HYDRA_VERSION = "1.3"

ConfigStore.instance().store("schema", Config)


class Composer:
    """Composes configurations without running anything."""

    def __init__(self, config_dir: str | None = None, config_name: str = "config") -> None:
        version.setbase(HYDRA_VERSION)
        Plugins.instance()  # the launchers put their own choices into the store
        search_path = create_config_search_path(str(CONF))
        if config_dir is not None:
            folder = Path(config_dir).resolve()
            if not folder.is_dir():
                raise UserError(f"--config-dir {config_dir} is not a folder")
            search_path.prepend(provider="command-line", path=f"file://{folder}", anchor=SearchPathQuery(provider="schema"))
        self._name = config_name
        self._loader = ConfigLoaderImpl(search_path)

    @cached_property
    def defaults(self) -> dict[str, str]:
        """The choice of each group in the defaults list of `conf/config.yaml`."""
        entries = OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml").defaults)
        pairs = (pair for entry in entries if isinstance(entry, dict) for pair in entry.items())
        return {group: choice for group, choice in pairs if not group.startswith("override ")}

    def options(self, group: str) -> list[str]:
        """The choices of a group, those in its folders as `folder/choice`; empty where there is no such group."""
        below = [f"{folder}/{choice}" for folder in self._loader.list_groups(group) for choice in self.options(f"{group}/{folder}")]
        return sorted([*self._loader.get_group_options(group, results_filter=ObjectType.CONFIG), *below])

    @property
    def groups(self) -> list[str]:
        """The groups at the top level."""
        return [group for group in self._loader.list_groups("") if group != "hydra"]

    def jobs(self, words: Sequence[str], multirun: bool) -> Iterator[DictConfig]:
        """The configuration of each job: one, or every combination of a sweep (those that differ by their seed count once).

        Raises:
            UserError: a group, key or value is not known, or the files do not compose.
        """
        with sentences():
            overrides = self._parsed(words)
            base = self._without_sweeps(overrides)
            if not multirun and base.hydra.mode is not RunMode.MULTIRUN:
                self._refuse_sweep(overrides)
                self._refuse_launcher(base.hydra.runtime.choices["hydra/launcher"])
                yield without_hydra(base)
                return
            combinations = self._combinations(base, words)
            if combinations is None:
                yield without_hydra(base)  # another sweeper draws the values
                return
            for combination in dict.fromkeys(tuple(word for word in job if not word.startswith("seed=")) for job in combinations):
                yield without_hydra(self._load(combination))

    def base(self, words: Sequence[str]) -> DictConfig:
        """The configuration that the jobs of a sweep have in common: that of the words that are no sweep."""
        with sentences():
            return without_hydra(self._without_sweeps(self._parsed(words)))

    def sweep(self, words: Sequence[str]) -> tuple[DictConfig, list[list[str]]]:
        """`base`, and what each job of a sweep is given, in the order in which they run; the files' own sweep is part of it."""
        with sentences():
            base = self._without_sweeps(self._parsed(words))
            combinations = self._combinations(base, words) or []
            return without_hydra(base), combinations

    def one(self, words: Sequence[str]) -> DictConfig:
        """The configuration of a single job, whatever its files sweep over."""
        with sentences():
            return without_hydra(self._load(words))

    def _parsed(self, words: Sequence[str]) -> list[Override]:
        overrides = OverridesParser.create().parse_overrides(list(words))
        self._look(overrides)
        return overrides

    def _without_sweeps(self, overrides: Sequence[Override]) -> DictConfig:
        return self._load([item.input_line for item in overrides if not item.is_sweep_override()])

    @staticmethod
    def _combinations(base: DictConfig, words: Sequence[str]) -> list[list[str]] | None:
        params = [f"{key}={value}" for key, value in (base.hydra.sweeper.get("params") or {}).items()]
        overrides = OverridesParser.create().parse_overrides([*params, *words])
        if not all(item.is_discrete_sweep() for item in overrides if item.is_sweep_override()):
            return None
        return BasicSweeper.split_arguments(overrides, None)[0]

    def _load(self, words: Sequence[str]) -> DictConfig:
        return self._loader.load_configuration(self._name, list(words), RunMode.RUN, from_shell=False)

    def _look(self, overrides: Sequence[Override]) -> None:
        for item in overrides:
            if item.is_hydra_override() or item.key_or_group.startswith("hydra/") or item.is_delete():
                continue
            options = self.options(item.key_or_group)
            if options and not isinstance(item.value(), dict):
                self._look_at_choice(item, options)
            elif generic(item.key_or_group) is None:
                raise UserError(f"{item.key_or_group} is not a key of the configuration; {suggest(item.key_or_group, self.groups)}")

    def _look_at_choice(self, item: Override, options: Sequence[str]) -> None:
        group = item.key_or_group
        value = item.value()
        if value is None:
            raise UserError(f"{group}=null chooses nothing: type ~{group} to leave the group out")
        for choice in item.sweep_string_iterator() if item.is_discrete_sweep() else value if isinstance(value, list) else [value]:
            if str(choice) not in options:
                raise UserError(f"{group}={choice} is not a choice; {known_choices(str(choice), options)}")

    def _refuse_sweep(self, overrides: Sequence[Override]) -> None:
        for item in overrides:
            if item.is_sweep_override():
                raise UserError(
                    f"{item.input_line} has several values: type -m for a run of each, {item.key_or_group}=[…] for a list, or quotes for a text"
                )

    def _refuse_launcher(self, launcher: str) -> None:
        if launcher != "basic":  # Hydra would ignore it and run here, perhaps on the front end of a cluster
            raise UserError(f"hydra/launcher={launcher} only acts together with -m: type -m, for one run too")


@contextmanager
def sentences() -> Iterator[None]:
    """Turns what Hydra, OmegaConf or the YAML reader object to into a UserError."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise UserError(sentence(error)) from error


def without_hydra(config: DictConfig) -> DictConfig:
    """The part of a composed configuration that is ours."""
    with open_dict(config):
        del config["hydra"]
    return config


def known_choices(choice: str, options: Sequence[str]) -> str:
    """The choices of a group, the nearest one first where there are many."""
    near = nearest(choice, options)
    if len(options) > 8 and near:
        return f"did you mean {' or '.join(near)}? (python -m ssrl --help lists all)"
    return f"known: {', '.join(options)}" + (f" (did you mean {near[0]}?)" if near and len(options) > 1 else "")


def sentence(error: Exception) -> str:
    """What Hydra, OmegaConf or the YAML reader say over several lines, in one sentence."""
    if isinstance(error, OverrideParseException):
        if "=" not in error.override:
            return f"{error.override} is neither a choice nor a value: type group=choice or key=value"
        key = error.override.partition("=")[0]
        return f"{error.override} cannot be read: a value with commas, quotes, brackets or = stands in quotes, as in \"{key}='…'\""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        return f"{group}={choice} is not a choice; {known_choices(choice, sorted(error.options or ()))}"
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    if isinstance(cause, OmegaConfBaseException):
        return _about_key(error, cause)
    return " ".join(str(error).split())


def _about_key(error: Exception, cause: OmegaConfBaseException) -> str:
    where = re.match(r"In '([^']+)'", str(error))
    prefix = f"in conf file {where[1]}: " if where else ""
    name = cause.full_key or ""
    known = generic(name) if name else None
    if name and known is None and not name.startswith("hydra"):
        return f"{prefix}{name} is not a key of the configuration; {suggest(name)}"
    if isinstance(cause, ValidationError) and known in keys():
        value = "" if cause.value is None else f"={cause.value}"
        return f"{prefix}{name}{value} is of the wrong kind: expected {describe(keys()[known].type)}"
    return f"{prefix}{name + ': ' if name else ''}{str(cause).splitlines()[0]}"
