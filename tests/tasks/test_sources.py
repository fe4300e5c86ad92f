"""Bad data files, through the real command line: one sentence, at once, before torch is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from omegaconf import OmegaConf

from ssrl import tasks
from ssrl.compose import Composer
from ssrl.data.fingerprint import fingerprint
from ssrl.errors import UserError
from ssrl.runlog.folder import RunFolder
from ssrl.runlog.identity import run_folder
from ssrl.tasks.checkpoint import checkpoint_path
from ssrl.tasks.sources import load_sources, refuse_other_content

ASK = Path(__file__).parents[1] / "ask.py"
GOOD = '{"id": 1, "question": "Who?", "golden_answers": ["I"]}\n'


@pytest.mark.slow
@pytest.mark.parametrize("task", ["train", "eval"])
@pytest.mark.parametrize(
    ("content", "phrases"),
    [
        pytest.param(None, ["does not exist", "data.{part}.mine.path="], id="missing"),
        pytest.param("", ["is empty"], id="empty"),
        pytest.param(GOOD + "{oops\n", ["line 2"], id="bad line"),
        pytest.param('{"id": 1, "query": "Who?", "golden_answers": ["I"]}\n', ["question", "query", "data.{part}.mine.columns"], id="missing column"),
        pytest.param(GOOD + '{"id": 2, "question": "What?", "golden_answers": []}\n', ["line 2", "answer"], id="no answers"),
    ],
)
def test_a_bad_data_file_gets_one_sentence_without_torch(tmp_path, task, content, phrases):
    file = tmp_path / "mine.jsonl"
    if content is not None:
        file.write_text(content)
    part = "train" if task == "train" else "test"
    words = [f"task={task}", "model=tiny", "experiment=quickstart", f"data.{part}.mine.path={file}", f"runs={tmp_path / 'runs'}"]
    done = subprocess.run([sys.executable, ASK, *words], capture_output=True, text=True)
    report = json.loads(done.stdout)
    said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert report["code"] == 2 and not report["torch"] and report["cpu_s"] < 3
    assert len(said) == 1 and str(file) in said[0]
    for phrase in phrases:
        assert phrase.format(part=part) in said[0], said
    assert not (tmp_path / "runs").exists()


def test_the_manifest_counts_what_was_left_out(runs):
    file = runs.home / "mine.jsonl"
    rows = [("1", "Who?"), ("2", "who"), ("3", "What is this? " * 40), ("4", "Where?"), ("5", "When?")]
    file.write_text("".join(json.dumps({"id": i, "question": q, "golden_answers": ["x"]}) + "\n" for i, q in rows))
    folder = runs.run("train.steps=1", "data.train.bundled.limit=3", f"data.train.mine.path={file}")
    data = folder.manifest()["data"]
    assert data["train/mine"]["rows"] == 5 and data["train/mine"]["duplicates"] == 1 and data["train/mine"]["kept"] == 4
    assert data["over_long_prompts"] == {"train": 1, "val/bundled": 0, "test/bundled": 0}
    assert data["train/mine"]["fingerprint"].startswith("sha256:")
    assert folder.summary()["counts"]["train questions"] == 6


def test_a_run_whose_local_copy_was_replaced_is_not_continued(runs):
    copy = runs.home / "copies" / "mine.jsonl"
    copy.parent.mkdir()
    copy.write_text(GOOD)
    words = runs.words(f"data.root={copy.parent}", "+data.train={mine: {path: 'hf:someone/mine', local: mine.jsonl}}")
    (tree,) = Composer().jobs(words, multirun=False)
    config = OmegaConf.to_object(tree)
    began = load_sources(config).manifest
    assert began["train/mine"]["fingerprint"] == fingerprint(str(copy))
    folder = RunFolder(run_folder(config, fingerprint))
    checkpoint_path(folder.path, "last").parent.mkdir(parents=True)
    checkpoint_path(folder.path, "last").touch()
    folder.write_manifest({"git": None, "versions": {}, "created": "", "data": began})
    refuse_other_content(folder.manifest(), began)
    copy.write_text(GOOD.replace("Who", "Where"))
    assert run_folder(config, fingerprint) == folder.path
    with pytest.raises(UserError, match="data.train.mine has other content .* runs= with another folder"):
        tasks.run(config, words)
    assert folder.status() is None


def test_a_manifest_that_names_a_hub_data_set_says_nothing_about_its_content():
    refuse_other_content({"data": {"test/nq": {"fingerprint": "hf:someone/nq"}}}, {"test/nq": {"fingerprint": "sha256:00"}})


def test_a_planted_secret_is_in_no_file_of_a_run(runs, monkeypatch):
    secrets = {name: f"planted-{name.lower()}-0123456789" for name in ("SERPER_API_KEY", "WANDB_API_KEY")}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    file = runs.home / "mine.jsonl"  # a question that quotes one ends up in the rollouts
    file.write_text(json.dumps({"id": 1, "question": f"Is {secrets['SERPER_API_KEY']} a key?", "golden_answers": ["x"]}) + "\n")
    folder = runs.run(
        "train.steps=1", "eval.every=1", "logger.names=[csv]", f"data.train.mine.path={file}", "data.train.bundled.limit=1",
        f"logger.project={secrets['WANDB_API_KEY']}")  # fmt: skip
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        data = path.read_bytes()
        if path.name.endswith(".zst"):
            data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
        for value in secrets.values():
            assert value.encode() not in data, path
