"""Tables of real runs: filled by one command, found again, and read."""

import json
import re
import sys
from collections.abc import Callable
from statistics import fmean, stdev

import pytest

from ssrl.app import main
from ssrl.runlog.folder import RunFolder, State

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MINI = ("+table=mini/algorithms", "experiment=mini", "eval.before=false", "eval.samples=1")


@pytest.fixture
def command(runs, monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """Exit code and output of a command line, typed in the folder of the test."""
    monkeypatch.chdir(runs.home)
    monkeypatch.setattr(sys, "argv", ["ssrl"])

    def run(*words: str) -> tuple[int, str]:
        try:
            main(runs.words(*words))
            code = 0
        except SystemExit as end:
            code = end.code
        return code, "".join(capsys.readouterr())

    return run


def by_algo(runs) -> dict[str, list[RunFolder]]:
    """The trained runs of each algorithm and the evaluations of the untrained model, found by what they say of themselves."""
    found: dict[str, list[RunFolder]] = {}
    for path in sorted(runs.home.glob("runs/*/seed*/manifest.json")):
        manifest = json.loads(path.read_text())
        name = "untrained" if manifest["config"]["task"] == "eval" else manifest["config"]["algo"]["name"]
        found.setdefault(name, []).append(RunFolder(path.parent))
    return found


def column(text: str, row: str, name: str) -> str:
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    (line,) = [line for line in table if line[0] == row and len(line) == len(table[0])]
    return line[table[0].index(name)]


def test_a_table_is_filled_by_one_command_found_again_and_reported(runs, command):
    words = (*MINI, "algo=grpo,rloo", "seed=0,1", "train.steps=2")
    code, said = command(*words)
    assert code == 0, said
    found = by_algo(runs)
    assert {name: [folder.path.name for folder in folders] for name, folders in found.items()} == {
        name: ["seed0", "seed1"] for name in ("untrained", "grpo", "rloo")
    }
    files = {path: path.stat().st_mtime_ns for path in runs.home.glob("runs/*/seed*/status.json")}
    code, said = command(*words, "seed=1")
    assert code == 0 and said.count("finished before, in ") == 3, said
    assert files == {path: path.stat().st_mtime_ns for path in runs.home.glob("runs/*/seed*/status.json")}

    code, said = command("task=report", *words, "out=written")
    assert code == 0 and "missing" not in said, said
    text = (runs.home / "written" / "mini-algorithms.md").read_text()
    assert {path.suffix for path in (runs.home / "written").iterdir()} == {".md", ".html", ".tex"}
    for name, row in (("untrained", "untrained (before training)"), ("grpo", "grpo"), ("rloo", "rloo")):
        summaries = [json.loads((folder.path / "summary.json").read_text())["after"] for folder in found[name]]
        for title, metric, digits in (("EM (greedy)", "em", 3), ("pass@1", "pass@1", 3), ("Tokens", "response_tokens", 1)):
            values = [summary[f"test/bundled/{metric}"] for summary in summaries]
            assert column(text, row, title) == f"{fmean(values):.{digits}f} ± {stdev(values):.{digits}f}"
    for name in ("grpo", "rloo"):
        entropies = [[json.loads(line)["train/entropy"] for line in folder.metrics_path.read_text().splitlines()] for folder in found[name]]
        assert column(text, name, "Entropy, last step") == f"{fmean(e[1] for e in entropies):.3f} ± {stdev(e[1] for e in entropies):.3f}"
        assert column(text, name, "Entropy, first step") == f"{fmean(e[0] for e in entropies):.3f} ± {stdev(e[0] for e in entropies):.3f}"
    for folder in found["grpo"]:
        assert folder.summary()["before"] == {} and "best_step" not in folder.summary()


def test_a_cell_that_fails_leaves_the_others_and_a_longer_table_continues_them(runs, command):
    words = (*MINI, "algo=ppo,grpo", "seed=0", "train.questions=4", "algo.critic.path=nowhere/at/all")
    code, said = command(*words, "train.steps=1")
    assert code == 1
    found = by_algo(runs)
    states = {name: folder.status().state for name, (folder,) in found.items()}
    assert states == {"untrained": State.DONE, "grpo": State.DONE}, said  # the manifest of ppo could not be written
    code, said = command("task=status", *words, "train.steps=2")
    assert code == 0 and re.search(r"^\| grpo +\| +0 \| step 1 of 2 +\| +1 \|", said, re.MULTILINE), said
    assert re.search(r"^\| ppo +\| +0 \| failed ", said, re.MULTILINE), said
    command(*words, "train.steps=2")
    (grpo,) = by_algo(runs)["grpo"]
    assert [row["step"] for row in grpo.metrics()] == [1, 2] and grpo.status().step == 2
    code, said = command("task=report", *words, "train.steps=2", "out=mine.md")
    assert code == 0 and re.search(r"^missing: ppo, seed 0 \(failed\): python -m ssrl table=mini/algorithms seed=0 algo=ppo ", said, re.MULTILINE), said
    assert column((runs.home / "mine.md").read_text(), "ppo", "seeds") == "0 of 1"


def test_the_status_of_all_runs_needs_no_table(runs, command):
    folder = runs.run("train.steps=1")
    code, said = command("task=status")
    assert code == 0, said
    (line,) = [line for line in said.splitlines() if line.startswith(f"| {folder.path.parent.name}")]
    assert [cell.strip() for cell in line.strip("|").split("|")][1:4] == ["0", "done", "1"]
