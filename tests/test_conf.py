"""Every file in `conf/` composes and passes the check, and says at its top what it is for."""

import importlib.util
import re
import shlex
from contextlib import nullcontext

import pytest
from omegaconf import OmegaConf

from ssrl.check import check
from ssrl.compose import CONF, Composer
from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.table import UNTRAINED, cells, sweeps
from tests.lines import prepare

COMPOSER = Composer()
GROUPS = [group for group in COMPOSER.groups if group not in ("experiment", "table")]
FILES = [(group, choice) for group in GROUPS for choice in COMPOSER.options(group)]
EXPERIMENTS = COMPOSER.options("experiment")
TABLES = COMPOSER.options("table")
EXTRA = {("model", "path"): ["model.path=a/folder"], ("data", "files"): [f"data.{part}.mine.path=a.jsonl" for part in ("train", "val", "test")], ("engine", "none"): ["prompt=r1"], ("prompt", "r1"): ["engine=none"], ("prompt", "quickstart_none"): ["engine=none"]}
KINDS = ("retriever", "simulator")  # their name selects a kind, of which several files may be presets


def compose(*words: str):
    (config,) = COMPOSER.jobs(words, multirun=False)
    return config


@pytest.mark.parametrize(("group", "choice"), FILES)
def test_every_choice_of_every_group_composes_and_passes_the_check(group, choice):
    config = compose("experiment=ssrl", "model=tiny", "data=bundled", f"{group}={choice}", *EXTRA.get((group, choice), []))
    config.task = "train" if config.data.train else "eval"
    absent = (group, choice) == ("rollout", "vllm") and importlib.util.find_spec("vllm") is None
    with pytest.raises(UserError, match="rollout=vllm needs vllm") if absent else nullcontext():
        check(config)
    if group not in KINDS and "name" in config.get(group, {}) and choice != "path":
        assert config[group].name == choice


@pytest.mark.parametrize("choice", EXPERIMENTS)
def test_every_experiment_composes_names_itself_and_gives_a_command_that_passes(choice, capsys):
    config = compose(f"experiment={choice}")
    check(config)
    assert config.recipe == choice
    head = (CONF / "experiment" / f"{choice}.yaml").read_text()
    assert head.startswith("# @package _global_\n")
    command = re.search(r"^#   python -m ssrl(.*)$", head, re.MULTILINE)[1]
    words = prepare(shlex.split(command))
    assert choice == "quickstart" or f"experiment={choice}" in words
    assert compose(*words).recipe == choice


@pytest.mark.parametrize("choice", TABLES)
def test_every_table_composes_names_itself_and_gives_its_commands(choice):
    head = (CONF / "table" / f"{choice}.yaml").read_text()
    assert head.startswith("# @package _global_\n")
    for task in ("", " task=status", " task=report"):
        assert re.search(rf"^#   python -m ssrl{task} \+table={choice} ", head, re.MULTILINE), task
    table, found = cells(COMPOSER, [f"table={choice}"])
    assert table.name == choice and table.title and {column.of for column in table.columns.values()} <= {"after", "first", "last", "mean", "median"}
    trained = [cell for cell in found if cell.row != UNTRAINED]
    assert {cell.seed for cell in trained} == {0, 1} and all(cell.steps == compose("experiment=mini").train.steps for cell in trained)
    assert len({cell.folder for cell in found}) == len(found)


@pytest.mark.parametrize("choice", TABLES)
def test_every_cell_of_a_table_passes_the_check(choice):
    for words in sweeps([f"table={choice}"], COMPOSER.base([f"table={choice}"]).table):
        for config in COMPOSER.jobs(words, multirun=False):
            check(config)
            assert config.recipe == "mini"


def test_the_mini_recipe_is_the_quickstart_but_smaller():
    mini, quickstart = compose("experiment=mini"), compose()
    assert (mini.model, mini.data, mini.prompt, mini.reward) == (quickstart.model, quickstart.data, quickstart.prompt, quickstart.reward)
    assert mini.train.questions * mini.rollout.n * mini.train.steps < quickstart.train.questions * quickstart.rollout.n * quickstart.train.steps


def test_the_defaults_run_the_quickstart():
    config = compose()
    assert (config.recipe, config.model.name, config.data.name, config.reward.name) == ("quickstart", "smollm2-135m", "bundled", "quickstart")
    assert config.rollout.stop_at_answer and config.prompt.search


def test_the_published_experiment_is_what_the_dataclasses_hold():
    config = OmegaConf.to_object(compose("experiment=ssrl"))
    plain = Config()
    for part in ("engine", "algo", "reward", "rollout", "eval", "train"):
        assert getattr(config, part) == getattr(plain, part), part
    assert (config.data.name, config.prompt.name) == ("nq_hotpotqa", "ssrl")


def test_the_published_values_are_those_of_the_sheet():
    config = compose("experiment=ssrl")
    assert (config.train.questions, config.rollout.n, config.algo.updates) == (256, 5, 1)
    assert (config.rollout.max_prompt_tokens, config.rollout.max_response_tokens, config.rollout.temperature) == (1024, 4096, 1.0)
    assert (config.train.lr, config.train.warmup_steps, config.train.weight_decay, config.train.grad_clip) == (1e-6, 62, 0.01, 1.0)
    assert (config.algo.kl, config.algo.kl_estimator, config.algo.kl_coef) == ("loss", "k3", 0.001)
    assert (config.algo.clip_low, config.algo.clip_high, config.algo.dual_clip, config.algo.aggregate) == (0.2, 0.2, 3.0, "token_mean")
    assert (config.reward.outcome, config.reward.format, config.reward.outcome_weight, config.reward.format_weight) == ("em", "ssrl", 0.9, 0.1)
    assert (config.eval.temperature, config.eval.every) == (0.0, 16)


def test_search_r1_and_zerosearch_have_the_published_entropy_bonus_which_ssrl_has_not():
    assert [compose(f"experiment={name}").algo.entropy_coef for name in ("search_r1", "zerosearch", "ssrl")] == [0.001, 0.001, 0]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_what_is_typed_wins_over_an_experiment(experiment):
    typed = {"reward": "f1", "model": "tiny", "data": "nq", "prompt": "r1", "rollout.n": "3", "train.steps": "7"}
    config = compose(f"experiment={experiment}", *(f"{key}={value}" for key, value in typed.items()))
    for key, value in typed.items():
        found = OmegaConf.select(config, key)
        assert str(found.name if OmegaConf.is_config(found) else found) == value


def test_qwen3_has_its_own_thinking_off_until_it_is_asked_for():
    files = [path for path in (CONF / "model").glob("qwen3-*.yaml")]
    assert len(files) == 6 and all(OmegaConf.load(path).thinking is False for path in files)
    assert compose("model=qwen3-4b", "model.thinking=true").model.thinking is True


def test_the_families_of_the_papers_are_there_by_name():
    known = set(COMPOSER.options("model"))
    llama = {f"llama-{size}{kind}" for size in ("3.2-1b", "3.2-3b", "3.1-8b", "3.1-70b") for kind in ("", "-instruct")}
    qwen = {f"qwen2.5-{size}b{kind}" for size in ("1.5", "3", "7", "14", "32", "72") for kind in ("", "-instruct")}
    qwen3 = {f"qwen3-{size}b" for size in ("0.6", "1.7", "4", "8", "14", "32")}
    assert known == llama | qwen | qwen3 | {"smollm2-135m", "tiny", "path"}
    for name in llama | qwen | qwen3:
        path = OmegaConf.load(CONF / "model" / f"{name}.yaml").path
        assert path.split("/")[1].lower() == name, path


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF)))
def test_every_file_says_at_its_top_what_it_is_for(path):
    assert re.match(r"(# @package _global_\n)?#", path.read_text())
