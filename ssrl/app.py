"""The command line: what was typed is composed and checked first, in a second and without torch; only then does anything start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ssrl.check import check
from ssrl.compose import CONF, HYDRA_VERSION, Composer
from ssrl.errors import UserError
from ssrl.overrides import recipe, rewrite, values_of, without
from ssrl.processes import is_first_process
from ssrl.table import cells, sweeps

USER_ERROR = 2
INTERRUPTED = 130
FAILED = 1
READING = ("report", "status")  # tasks that read runs, those of a table without running them


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command line (`sys.argv` by default).

    Exits with 2 after one sentence on stderr where the command is at fault, with 130 after Ctrl-C, and with 1 where a run of a sweep
    or the program itself failed.
    """
    try:
        line = understand(sys.argv[1:] if argv is None else argv)
        if line.reads:
            read(line)
            return
        failed = [launch(words) for words in checked(line)]
        if any(failed):
            sys.exit(FAILED)
    except UserError as error:
        say(str(error))
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def launch(words: Sequence[str]) -> bool:
    """Hand a command line to Hydra; whether a run of it failed. Any other end, such as an interruption, ends the program."""
    sys.argv = [sys.argv[0], *words]
    try:
        hydra.main(version_base=HYDRA_VERSION, config_path=str(CONF), config_name="config")(job)()
    except SystemExit as end:
        if end.code != FAILED:
            raise
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A command line in Hydra's spelling, with the recipe that it implies."""

    flags: list[str]
    words: list[str]
    composer: Composer | None = None  # None: one of Hydra's own questions
    why: str = ""  # the sentence about the recipe
    multirun: bool = False
    only_shows: bool = False  # --help, --cfg …

    @property
    def reads(self) -> bool:
        """Whether it reads runs and starts none."""
        return not self.only_shows and values_of(self.words, "task") in [[task] for task in READING]


def understand(argv: Sequence[str]) -> Line:
    """The command line that was meant.

    Raises:
        UserError: it cannot be read.
    """
    args = get_args_parser().parse_intermixed_args(list(argv))
    flags = [word for word in argv if word not in args.overrides]
    if args.hydra_help or args.shell_completion or args.config_path or args.experimental_rerun:
        return Line(flags=list(argv), words=[], only_shows=True)
    composer = Composer(args.config_dir, args.config_name or "config")
    words = rewrite(args.overrides, composer.defaults)
    chosen, why = recipe(words, composer.defaults)
    shows = bool(args.help or args.cfg or args.info)
    return Line(flags=flags, words=[*words, *chosen], composer=composer, why=why, multirun=args.multirun, only_shows=shows)


def checked(line: Line) -> list[list[str]]:
    """The command lines of each sweep or run that was asked for; every job of them has passed the check.

    Raises:
        UserError: the first thing that is wrong with it.
    """
    if line.composer is None:
        return [[*line.flags, *line.words]]
    if not line.only_shows and (reading := set(values_of(line.words, "task")) & set(READING)):
        raise UserError(f"task={reading.pop()} reads runs and is no part of a sweep: type it alone")
    parts, notes = [line.words], [line.why]
    for config in line.composer.jobs(line.words, line.multirun):  # one by one: the first that is wrong is answered before the others are composed
        notes += [] if line.only_shows else check(config)
        parts = parts if line.only_shows else sweeps(line.words, config.table)  # the table is the same in all of them
    for words in parts[:-1]:
        for config in line.composer.jobs(words, line.multirun):
            notes += check(config)
    if is_first_process() and not line.only_shows:
        for note in dict.fromkeys(filter(None, notes)):
            say(f"note: {note}")
    return [[*line.flags, *words] for words in parts]


def read(line: Line) -> None:
    """Do a task that reads runs. Nothing is swept: what is typed says which cells of the table are looked at."""
    config = line.composer.base(line.words)
    check(config)
    tabled = config.table.name or config.task == "report"
    found = cells(line.composer, without(line.words, ["task", "out"]), line.flags) if tabled else None
    from ssrl.tasks import read as do

    do(OmegaConf.to_object(config), found)


def job(config: DictConfig) -> None:
    """What Hydra calls for each run, in this process or on another machine."""
    hydra_config = HydraConfig.get()
    try:
        check(config)
        from ssrl.tasks import run  # torch comes with it

        run(OmegaConf.to_object(config), list(hydra_config.overrides.task))
    except UserError as error:
        say(str(error))
        if hydra_config.mode is RunMode.RUN:
            sys.exit(USER_ERROR)
        raise CompactHydraException(str(error)) from error  # the sweep's other runs go on; its end repeats the sentence, without a traceback


def say(text: str) -> None:
    """One line for the person at the terminal; standard output belongs to results."""
    print(text, file=sys.stderr, flush=True)
