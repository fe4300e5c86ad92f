"""`task=eval`: figures of a checkpoint or a model on the test sets."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ssrl.config import Config
from ssrl.data.fingerprint import fingerprint
from ssrl.errors import UserError
from ssrl.overrides import command
from ssrl.runlog.folder import RunFolder, State
from ssrl.runlog.identity import eval_folder
from ssrl.tasks.checkpoint import locate, with_run_config
from ssrl.tasks.show import say_finished
from ssrl.tasks.sources import load_sources


def main(config: Config, overrides: list[str]) -> None:
    """Evaluate on every set of `data.test`; the figures, rollouts and a page go to `out`, or to a folder of their own under `runs`.

    A cell of a table that is finished is only named.
    """
    config = with_run_config(config, overrides)
    if config.ckpt is not None:
        config = dataclasses.replace(config, ckpt=str(locate(config.ckpt)[1]))
    sources = load_sources(config, ("test",))
    if not sources.test:
        raise UserError(f"data={config.data.name} has no test set; choose e.g. data=bundled or data=bamboogle")
    folder = RunFolder(Path(config.out) if config.out else eval_folder(config, fingerprint))
    _refuse_training_run(folder)
    with folder.claim():
        status = folder.status()
        if config.table.name and not config.out and status and status.state is State.DONE:
            say_finished(folder)
            return
        with folder.tracked(command(overrides)):
            _evaluate(config, sources, folder)


def _refuse_training_run(folder: RunFolder) -> None:
    manifest = folder.manifest() or {}
    if manifest.get("config", {}).get("task") == "train" or (folder.path / "checkpoints").exists():
        raise UserError(
            f"out={folder.path} holds a training run, whose records and figures an evaluation would replace: "
            "type out= with another folder, or leave it out for a folder of its own"
        )


def _evaluate(config: Config, sources, folder: RunFolder) -> None:
    from rich.console import Console

    from ssrl.report.page import write_page
    from ssrl.runlog.manifest import build_manifest
    from ssrl.tasks.build import build_agent, build_trained, engine_identity, ping, short_enough
    from ssrl.tasks.engines import evaluation
    from ssrl.tasks.measure import measure
    from ssrl.tasks.show import relative, show
    from ssrl.training.progress import Progress

    console = Console()
    agent = build_agent(evaluation(config), build_trained(config))
    progress = Progress(console, 0)
    progress.say(f"[bold]{config.name}[/bold]: {config.ckpt or config.model.path}, prompt {config.prompt.name}, engine {agent.loop.engine.name}")
    for sentence in ping(agent):
        progress.say(sentence)
    tests, counts = {}, {}
    for name, questions in sources.test.items():
        tests[name], too_long = short_enough(agent, questions, config.rollout.max_prompt_tokens, f"data.test.{name}")
        counts |= {f"test questions {name}": len(tests[name]), f"over-long prompts {name}": too_long}
    folder.write_manifest(build_manifest(config, seeds={"run": config.seed}, data=sources.manifest, engine=engine_identity(agent)))
    folder.rewind(-1)
    figures = measure(config, agent, tests, step=0, folder=folder, progress=progress)
    progress.close()
    folder.write_summary({"before": {}, "after": figures, "test_sets": [f"test/{name}" for name in tests], "counts": counts})
    folder.set_status(State.DONE)
    show(console, folder.summary())
    console.print(f"rollouts: [bold]{relative(write_page(folder.path))}[/bold]", highlight=False, soft_wrap=True)
