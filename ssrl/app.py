"""The command line: what was typed is composed and checked first, in a second and without torch; only then does anything start."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ssrl.check import check
from ssrl.compose import CONF, HYDRA_VERSION, Composer
from ssrl.errors import UserError
from ssrl.overrides import recipe, rewrite
from ssrl.processes import is_first_process

USER_ERROR = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command line (`sys.argv` by default).

    Exits with 2 after one sentence on stderr where the command is at fault, with 130 after Ctrl-C, and with 1 where a run of a sweep
    or the program itself failed.
    """
    try:
        sys.argv = [sys.argv[0], *prepare(sys.argv[1:] if argv is None else argv)]
        hydra.main(version_base=HYDRA_VERSION, config_path=str(CONF), config_name="config")(job)()
    except UserError as error:
        say(str(error))
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def prepare(argv: Sequence[str]) -> list[str]:
    """The command line in Hydra's spelling, with the recipe that it implies; every job of it has passed the check.

    Raises:
        UserError: the first thing that is wrong with it.
    """
    args = get_args_parser().parse_intermixed_args(list(argv))
    flags = [word for word in argv if word not in args.overrides]
    if args.hydra_help or args.shell_completion or args.config_path or args.experimental_rerun:
        return list(argv)
    composer = Composer(args.config_dir, args.config_name or "config")
    words = rewrite(args.overrides, composer.defaults)
    chosen, why = recipe(words, composer.defaults)
    jobs = list(composer.jobs([*words, *chosen], args.multirun))
    if not (args.help or args.cfg or args.info):
        notes = [*filter(None, [why]), *(note for config in jobs for note in check(config))]
        if is_first_process():
            for note in dict.fromkeys(notes):
                say(f"note: {note}")
    return [*flags, *words, *chosen]


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
