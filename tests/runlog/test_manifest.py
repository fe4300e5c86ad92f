import json
import platform
import subprocess
from pathlib import Path

import pytest

from ssrl.runlog.folder import RunFolder
from ssrl.runlog.manifest import build_manifest, git_state, versions


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.py").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def build(config, code):
    return build_manifest(
        config, seeds={"run": 1}, data={"bundled": {"train": 3, "fingerprint": "f"}}, engine={"name": "fullsim"}, code=code
    )


def test_the_state_of_the_code_is_its_commit_and_a_hash_of_what_differs(repository):
    clean = git_state(repository)
    assert clean == {"sha": git(repository, "rev-parse", "HEAD"), "dirty": None}
    (repository / "a.py").write_text("two\n")
    changed = git_state(repository)
    assert changed["sha"] == clean["sha"] and changed["dirty"] is not None
    (repository / "new.py").write_text("x\n")
    assert git_state(repository)["dirty"] not in (None, changed["dirty"])


def test_code_outside_a_repository_or_not_tracked_by_it_has_no_commit(tmp_path, repository):
    (tmp_path / "plain").mkdir()
    assert git_state(tmp_path / "plain") is None
    (repository / "installed").mkdir()
    (repository / "installed" / "b.py").write_text("")
    assert git_state(repository / "installed") is None


def test_a_manifest_says_what_was_run(config, repository):
    manifest = build(config, repository)
    assert manifest["config"]["name"] == "fullsim-grpo-tiny-bundled"
    assert manifest["versions"]["python"] == platform.python_version() and "omegaconf" in versions()
    assert manifest["seeds"] == {"run": 1} and manifest["engine"] == {"name": "fullsim"}
    assert manifest["host"]["cpus"] >= 1 and manifest["history"] == []


def test_code_that_changed_on_resume_is_shown(config, repository, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_manifest(build(config, repository))
    first = git(repository, "rev-parse", "HEAD")
    folder.write_manifest(build(config, repository))
    assert folder.manifest()["history"] == []
    (repository / "a.py").write_text("two\n")
    git(repository, "commit", "-qam", "two")
    folder.write_manifest(build(config, repository))
    manifest = folder.manifest()
    assert manifest["git"]["sha"] == git(repository, "rev-parse", "HEAD") != first
    assert [entry["git"]["sha"] for entry in manifest["history"]] == [first]


def test_no_value_of_a_secret_variable_enters_even_through_the_configuration(config, repository, tmp_path, monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "planted-serper-key")
    monkeypatch.setenv("WANDB_API_KEY", "planted-wandb-key")
    config.question = "${oc.env:SERPER_API_KEY}"
    folder = RunFolder(tmp_path / "run")
    folder.write_manifest(build(config, repository))
    text = (tmp_path / "run" / "manifest.json").read_text()
    assert json.loads(text)["config"]["question"] == "<SERPER_API_KEY>"
    assert "planted" not in text
