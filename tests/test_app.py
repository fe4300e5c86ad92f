"""The command line: spellings that work, commands that are refused in one sentence, and the recipe that a command implies."""

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from ssrl.app import main
from ssrl.check import check
from ssrl.compose import Composer
from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.overrides import recipe, rewrite
from tests.lines import prepare

DEFAULTS = Composer().defaults
ASK = Path(__file__).parent / "ask.py"


def ask(*words: str) -> tuple[dict, str]:
    """What a fresh process says to a command line: its report, and its standard error."""
    done = subprocess.run([sys.executable, ASK, *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algo.clp=0.1"], "algo.clip_low"),
        (["+algo.clp=0.1"], "algo.clip_low"),
        (["++algo.clp=0.1"], "algo.clip_low"),
        (["algo=grop"], "grpo"),
        (["engine=fulsim"], "fullsim"),
        (["algo.clip_low=abc"], "number"),
        (["rollout.n=1"], "rollout.n=2"),
        (["rollout.max_response_tokens=9000"], "model.context=8192"),
    ],
)
def test_a_wrong_command_gets_one_sentence_within_three_seconds_and_without_torch(words, expected):
    report, said = ask(*words)
    assert report["code"] == 2
    assert report["cpu_s"] < 3  # of the processor, so that a busy machine does not fail it
    assert not report["torch"]
    assert len(said.strip().splitlines()) == 1 and expected in said and "Traceback" not in said


def test_help_is_short_and_names_every_group(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    page = capsys.readouterr().out
    assert len(page.splitlines()) < 40
    for group in (group for group in DEFAULTS if "@" not in group):
        assert f"\n{group}: " in page or f"\n{group}/" in page


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["foo=1"], "foo is not a key"),
        (["lr=1e-5"], "did you mean algo.critic.lr or train.lr?"),
        (["rollout.temprature=1"], "rollout.temperature"),
        (["data.train.mine.pth=x"], "data.train.mine.path"),
        (["foo"], "group=choice or key=value"),
        (["seed=1,2"], "type -m"),
        (["seed=1.5"], "seed=1.5 is of the wrong kind: expected whole number"),
        (["logger.names=wandb"], "expected list of text"),
        (["experiment=null"], "~experiment"),
        (["~algo.clip_low"], "algo.clip_low"),
        (["hydra/launcher=slrm"], "slurm"),
        (["hydra.foo=1"], "hydra.foo"),
        (["model=llama-3.2-3b-instrct"], "llama-3.2-3b-instruct"),
        (["model=path"], "model.path has no value: type model.path="),
        (["name=${nosuch}"], "nosuch"),
        (["--config-dir", "no/such/folder"], "no/such/folder is not a folder"),
        (["+nosuchgroup=1"], "nosuchgroup is not a key"),
        (["algo.updates=[1"], "cannot be read"),
    ],
)
def test_every_kind_of_mistake_is_named(words, phrase):
    with pytest.raises(UserError) as caught:
        prepare(words)
    assert phrase in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_combination_of_a_sweep_is_checked_before_any_starts():
    with pytest.raises(UserError, match="rollout.n=1 leaves nothing to compare"):
        prepare(["-m", "seed=0,1", "rollout.n=4,2,1"])


def test_flags_and_overrides_may_come_in_any_order():
    assert prepare(["seed=0,1", "-m", "rollout.n=4"]) == ["-m", "seed=0,1", "rollout.n=4"]


@pytest.mark.parametrize("word", ["+engine=fullsim", "engine=fullsim", "++engine=fullsim"])
def test_a_plus_before_a_group_of_the_defaults_list_is_dropped(word):
    assert prepare([word, "algo=grpo"]) == ["engine=fullsim", "algo=grpo"]


def test_a_plus_is_dropped_in_sweeps_experiments_and_known_keys_too():
    assert prepare(["-m", "+reward=ssrl,em", "+experiment=quickstart"]) == ["-m", "reward=ssrl,em", "experiment=quickstart"]
    assert rewrite(["+algo.clip_low=0.1", "+other=one", "~logger"], DEFAULTS) == ["algo.clip_low=0.1", "+other=one", "~logger"]
    assert rewrite(["+table=mini/masks"], DEFAULTS) == ["table=mini/masks"]


@given(st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1).filter(lambda text: "${" not in text))
def test_a_question_arrives_as_it_was_typed(text):
    if text in ("null",) or (text[0] in "'\"" and text[-1] == text[0]):
        return  # these mean what they mean to Hydra
    (word,) = rewrite([f"question={text}"], DEFAULTS)
    assert OverridesParser.create().parse_override(word).value() == text


def test_a_path_that_hydra_cannot_read_is_quoted():
    assert rewrite(["ckpt=runs/lr=1/best"], DEFAULTS) == ["ckpt='runs/lr=1/best'"]
    assert rewrite(["ckpt=runs/a-b/best"], DEFAULTS) == ["ckpt=runs/a-b/best"]


def test_a_set_of_ones_own_joins_or_refines_those_of_the_file():
    words = rewrite(["data.train.mine.path=a.jsonl", "+data.train.mine.limit=5", "data.train.bundled.limit=7"], DEFAULTS)
    (config,) = Composer().jobs(words, multirun=False)
    assert {name: (one.path, one.limit) for name, one in config.data.train.items()} == {
        "bundled": ("bundled:train", 7),
        "mine": ("a.jsonl", 5),
    }


@pytest.mark.parametrize("word", ["+data.train={mine: {path: a.jsonl}}", "data.train={mine: {path: a.jsonl}}", "data={train: {mine: {path: a.jsonl}}}"])
def test_a_dictionary_is_merged_into_what_is_there(word):
    (config,) = Composer().jobs(rewrite([word, "rollout={n: 3}"], DEFAULTS), multirun=False)
    assert set(config.data.train) == {"bundled", "mine"}
    assert config.rollout.n == 3


def test_files_of_ones_own_need_no_validation_or_test_set():
    (config,) = Composer().jobs(rewrite(["data=files", "data.train.mine.path=a.jsonl", "~data.val.mine", "~data.test.mine"], DEFAULTS), multirun=False)
    assert config.data.train.mine.path == "a.jsonl"
    check(config)


def test_a_users_own_folder_joins(tmp_path):
    (tmp_path / "reward").mkdir()
    (tmp_path / "reward" / "mine.yaml").write_text("name: mine\noutcome: cover_em\n")
    assert prepare(["--config-dir", str(tmp_path), "reward=mine"])[-1] == "reward=mine"
    (tmp_path / "reward" / "mine.yaml").write_text("name: mine\noutcom: cover_em\n")
    with pytest.raises(UserError, match="reward/mine: reward.outcom is not a key .*reward.outcome"):
        prepare(["--config-dir", str(tmp_path), "reward=mine"])
    (tmp_path / "reward" / "mine.yaml").write_text("name: [\n")
    with pytest.raises(UserError, match="mine.yaml"):
        prepare(["--config-dir", str(tmp_path), "reward=mine"])


@pytest.mark.parametrize(
    ("words", "added"),
    [
        ([], []),
        (["seed=3", "rollout.n=4", "model.lora.rank=8"], []),
        (["model=smollm2-135m", "data=bundled"], []),
        (["model=tiny"], ["experiment=ssrl", "data=bundled"]),
        (["model=smollm2-135m,tiny"], ["experiment=ssrl", "data=bundled"]),
        (["model.path=/a/folder"], ["experiment=ssrl", "model=smollm2-135m", "data=bundled"]),
        (["data=nq"], ["experiment=ssrl", "model=smollm2-135m"]),
        (["data.train.mine.path=a.jsonl"], ["experiment=ssrl", "model=smollm2-135m", "data=bundled"]),
        (["++data={train: {mine: {path: a.jsonl}}}"], ["experiment=ssrl", "model=smollm2-135m", "data=bundled"]),
        (["++model={lora: {rank: 8}}"], []),
        (["data.train.bundled.limit=5", "data.test.mine.path=a.jsonl"], []),
        (["model=tiny", "experiment=quickstart"], []),
        (["model=tiny", "~experiment"], []),
        (["task=eval", "data=nq"], []),
        (["task=eval", "model=tiny", "data=nq"], ["experiment=ssrl"]),
        (["task=eval", "ckpt=runs/a", "model=tiny"], []),
        (["engine=fullsim"], []),
        (["engine=fullreal"], ["experiment=quickstart_search"]),
        (["engine=sim2real,entropy"], ["experiment=quickstart_search"]),
        (["engine=none"], ["experiment=quickstart_none"]),
        (["engine=fullreal", "experiment=quickstart"], []),
        (["engine@eval.engine=fullreal"], []),
        (["task=eval", "ckpt=runs/a", "engine=fullreal"], []),
        (["task=serve", "engine=fullreal"], []),
        (["model=tiny", "engine=fullreal"], ["experiment=search_r1", "data=bundled"]),
        (["model=tiny", "engine=semireal"], ["experiment=zerosearch", "data=bundled"]),
        (["model=tiny", "engine=sim2real"], ["experiment=ssrl", "data=bundled"]),
    ],
)
def test_the_quickstart_recipe_is_not_inherited_by_what_it_was_not_made_for(words, added):
    chosen, why = recipe(words, DEFAULTS)
    assert chosen == added
    assert bool(why) == bool(added)


def test_a_sweep_over_engines_without_a_recipe_in_common_is_refused():
    with pytest.raises(UserError, match="engine=none,fullsim cannot share a recipe"):
        prepare(["-m", "engine=none,fullsim"])


def test_the_recipe_is_said_and_what_was_typed_wins(capsys):
    words = prepare(["model=tiny", "rollout.n=3"])
    assert "experiment=ssrl" in capsys.readouterr().err
    (config,) = Composer().jobs(words, multirun=False)
    assert (config.recipe, config.model.name, config.data.name, config.rollout.n, config.train.questions) == ("ssrl", "tiny", "bundled", 3, 256)


@pytest.fixture
def task(monkeypatch, tmp_path):
    """The calls of a stand-in for the tasks; what it holds in `error` is raised."""
    calls = types.SimpleNamespace(seen=[], error=None)

    def run(config, overrides):
        calls.seen.append((config, overrides))
        if calls.error is not None:
            raise calls.error

    module = types.ModuleType("ssrl.tasks")
    module.run = run
    monkeypatch.setitem(sys.modules, "ssrl.tasks", module)
    monkeypatch.setattr(sys, "argv", ["ssrl"])
    monkeypatch.chdir(tmp_path)
    return calls


def test_a_task_gets_the_plain_dataclass_and_the_users_overrides_and_hydra_leaves_no_files(task, tmp_path):
    main(["+engine=fullsim", "train.steps=3"])
    ((config, overrides),) = task.seen
    assert type(config) is Config and config.train.steps == 3 and config.recipe == "quickstart"
    assert overrides == ["engine=fullsim", "train.steps=3"]
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_runs_every_job_and_keeps_its_files_under_the_folder_of_runs(task, tmp_path):
    main(["-m", "seed=0,1", "runs=here"])
    assert [config.seed for config, _ in task.seen] == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert [path.name for path in (tmp_path / "here").iterdir()] == [".sweeps"]


def test_a_users_mistake_found_by_a_task_is_one_sentence(task, capsys):
    task.error = UserError("data.train.bundled.path=nope: there is no such file")
    with pytest.raises(SystemExit) as end:
        main(["rollout.top_p=1.0"])
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == str(task.error) and not any("Traceback" in line for line in said)


def test_a_failed_job_does_not_keep_the_sweep_from_its_others(task, capsys):
    task.error = UserError("no")
    with pytest.raises(SystemExit) as end:
        main(["-m", "seed=0,1"])
    assert end.value.code == 1
    assert len(task.seen) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_table_needs_no_flag_and_measures_the_untrained_model_first(task):
    main(["+table=mini/masks", "seed=0,1", "train.steps=2"])
    seen = [(config.task, config.algo.mask, config.seed) for config, _ in task.seen]
    assert seen[:2] == [("eval", "tokens", 0), ("eval", "tokens", 1)]
    assert seen[2:] == [("train", mask, seed) for seed in (0, 1) for mask in ("tokens", "none", "paper")]
    assert {config.train.steps for config, _ in task.seen} == {2}


def test_a_table_goes_on_where_its_untrained_model_fails(task, capsys):
    task.error = UserError("no")
    with pytest.raises(SystemExit) as end:
        main(["+table=mini/masks", "seed=0", "algo.mask=none,paper"])
    assert end.value.code == 1
    assert [config.task for config, _ in task.seen] == ["eval", "train", "train"]


def test_a_single_cell_of_a_table_runs_alone(task):
    main(["+table=mini/masks", "seed=1", "algo.mask=none"])
    assert [(config.task, config.algo.mask, config.seed) for config, _ in task.seen] == [("train", "none", 1)]


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["-m", "task=train,status"], "task=status reads runs and is no part of a sweep"),
        (["task=report"], "there is no table to read: type +table=NAME; known: mini/algorithms, mini/masks"),
        (["task=report", "+table=mini/algoritms"], "mini/algoritms is not a choice; known: mini/algorithms, mini/masks (did you mean mini/algorithms?)"),
        (["+table=mini/masks", "algo.mask=toknes"], "algo.mask=toknes is not a choice"),
        (["task=report", "+table=mini/masks", "algo=grop"], "did you mean"),
        (["task=report", "+table=mini/masks", "table.columns.em.of=later"], "table.columns.em.of=later is not a choice; known: after"),
    ],
)
def test_a_wrong_command_about_tables_gets_one_sentence_without_torch(words, phrase):
    report, said = ask(*words)
    assert (report["code"], report["torch"]) == (2, False)
    assert report["cpu_s"] < 3
    assert len(said.strip().splitlines()) == 1 and phrase in said


@pytest.mark.parametrize("task", ["report", "status"])
def test_reading_a_table_starts_nothing_and_needs_no_torch(task, tmp_path):
    report, said = ask(f"task={task}", "+table=mini/masks", "algo.mask=tokens", "seed=0,1", f"runs={tmp_path}")
    assert (report["code"], report["torch"], said) == (0, False, "")
    assert not list(tmp_path.glob("*/seed*"))


def test_ctrl_c_ends_with_130(task):
    task.error = KeyboardInterrupt()
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 130


def test_further_processes_of_a_distributed_run_stay_silent(monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "1")
    prepare([])
    assert capsys.readouterr().err == ""


def test_the_module_runs_as_a_program(tmp_path):
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "ssrl", "--cfg", "job", "--resolve"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(root)}, check=True)
    assert "recipe: quickstart" in done.stdout and "${" not in done.stdout
