import re
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ssrl.config import Config, QuestionsConfig
from ssrl.runlog.identity import counted, resolved, run_folder, run_hash


def by_path(path: str) -> str:
    return f"content of {path}"


def test_the_hash_is_eight_hexadecimal_characters_and_stable(config):
    assert re.fullmatch(r"[0-9a-f]{8}", run_hash(config, by_path))
    assert run_hash(config, by_path) == run_hash(OmegaConf.structured(config), by_path)


@pytest.mark.parametrize(
    "key, value", [("seed", 5), ("train.steps", 7), ("trainer.devices", 8), ("logger.names", ["csv"]), ("name", "x"), ("task", "eval")]
)
def test_a_free_field_does_not_change_the_hash(config, key, value):
    changed = OmegaConf.structured(config)
    OmegaConf.update(changed, key, value)
    assert run_hash(changed, by_path) == run_hash(config, by_path)


@pytest.mark.parametrize(
    "key, value",
    [
        ("train.lr", 3e-6),
        ("algo.kl_coef", 0.0),
        ("train.betas", [0.9, 0.95]),
        ("model.lora.rank", 8),
        ("data.train.bundled.columns.question", "q"),
    ],
)
def test_a_counted_field_changes_the_hash(config, key, value):
    changed = OmegaConf.structured(config)
    OmegaConf.update(changed, key, value)
    assert run_hash(changed, by_path) != run_hash(config, by_path)


def test_a_path_counts_by_what_lies_there(config, tmp_path):
    moved = replace(config, model=replace(config.model, path="models/b"))
    assert run_hash(moved, lambda path: "same weights") == run_hash(config, lambda path: "same weights")

    (tmp_path / "data").write_text("one")
    here = replace(config, data=replace(config.data, train={"bundled": QuestionsConfig(path=str(tmp_path / "data"))}))
    read = lambda path: Path(path).read_text() if path.startswith(str(tmp_path)) else path  # noqa: E731
    before = run_hash(here, read)
    (tmp_path / "data").write_text("two")
    assert run_hash(here, read) != before


def test_the_order_of_keys_does_not_matter(config):
    sets = {"a": QuestionsConfig(path="a"), "b": QuestionsConfig(path="b")}
    forward = replace(config, data=replace(config.data, train=sets))
    backward = replace(config, data=replace(config.data, train=dict(reversed(sets.items()))))
    assert list(forward.data.train) != list(backward.data.train)
    assert run_hash(forward, by_path) == run_hash(backward, by_path)


def test_counted_fields_are_walked_through_nested_dataclasses_and_dictionaries(config):
    tree = counted(config, by_path)
    assert tree["data"]["train"]["bundled"]["path"] == "content of data/a.jsonl"
    assert tree["model"]["path"] == "content of models/a"
    assert tree["ckpt"] is None
    assert "steps" not in tree["train"] and "seed" not in tree and tree["rollout"]["n"] == 5


def test_a_missing_value_can_be_hashed():
    assert counted(Config(), by_path)["model"]["name"] == "???"


def test_the_folder_is_named_after_name_hash_and_seed(config):
    folder = run_folder(replace(config, seed=3), by_path)
    assert folder == Path("runs") / f"fullsim-grpo-tiny-bundled-{run_hash(config, by_path)}" / "seed3"


def test_a_name_with_a_slash_stays_one_folder(config):
    folder = run_folder(replace(config, name="meta/llama 3"), by_path)
    assert folder.parent.parent == Path("runs") and folder.parent.name.startswith("meta-llama-3-")


def test_resolved_values_are_plain_and_filled_in(config):
    assert resolved(config)["name"] == "fullsim-grpo-tiny-bundled"


@pytest.mark.parametrize(
    "key, value", [("retriever.name", "dense"), ("simulator.model", "x"), ("wrapper.style", "bullets"), ("engine.k", "1"), ("eval.retriever.name", "http")]
)
def test_what_does_nothing_with_the_engine_does_not_change_the_hash(config, key, value):
    changed = OmegaConf.structured(config)
    OmegaConf.update(changed, key, value)
    assert run_hash(changed, by_path) == run_hash(config, by_path)


@pytest.mark.parametrize(
    "engine, key, value, counts",
    [
        ("fullreal", "retriever.corpus", "other.jsonl", True),
        ("fullreal", "retriever.encoder", "other", False),
        ("fullreal", "wrapper.style", "bullets", True),
        ("fullreal", "engine.topk", 1, True),
        ("fullreal", "simulator.model", "other", False),
        ("sim2real", "engine.k", "1", True),
        ("sim2real", "engine.max_turns", 9, False),
        ("semireal", "simulator.end", 0.75, True),
        ("semireal", "retriever.corpus", "other.jsonl", False),
    ],
)
def test_what_an_engine_uses_counts_and_the_rest_does_not(config, engine, key, value, counts):
    base = OmegaConf.structured(config)
    base.engine.name = engine
    changed = base.copy()
    OmegaConf.update(changed, key, value)
    assert (run_hash(changed, by_path) != run_hash(base, by_path)) is counts


def test_the_engine_of_evaluation_counts_with_what_it_uses(config):
    base = OmegaConf.structured(config)
    base.eval.engine.name = "fullreal"
    assert run_hash(base, by_path) != run_hash(config, by_path)
    changed = base.copy()
    changed.retriever.corpus = "other.jsonl"
    assert run_hash(changed, by_path) != run_hash(base, by_path)


def test_a_switch_that_was_added_later_counts_only_where_it_is_used(config):
    assert "pipeline" not in counted(config, by_path)["train"]
    config.train.pipeline = True
    assert counted(config, by_path)["train"]["pipeline"] is True


def test_the_sampler_counts_from_vllm_on(config):
    """Runs with `hf` keep the folders that they had before there was a choice."""
    assert "name" not in counted(config, by_path)["rollout"]
    config.rollout.name = "vllm"
    assert counted(config, by_path)["rollout"]["name"] == "vllm"
