"""Checkpoints as users name them, and what eval, ask and export make of them."""

import json

import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from ssrl.compose import Composer
from ssrl.config import EngineConfig
from ssrl.errors import UserError
from ssrl.policy.load import load_model
from ssrl.runlog.rollouts import read_rollouts
from ssrl.tasks.checkpoint import checkpoint_path, locate, typed_keys, with_run_config


@pytest.fixture
def trained(runs):
    return runs.run("train.steps=2", "eval.every=1", "train.lr=0.01")


def test_a_run_its_best_its_last_and_a_file_are_found(tmp_path):
    run = tmp_path / "name-01234567" / "seed0"
    for role in ("best", "last"):
        checkpoint_path(run, role).parent.mkdir(parents=True, exist_ok=True)
        checkpoint_path(run, role).touch()
    (run / "manifest.json").write_text("{}")
    best, last = checkpoint_path(run, "best"), checkpoint_path(run, "last")
    assert locate(str(run)) == (run, best)
    assert locate(f"{run}/") == (run, best)
    assert locate(f"{run}/best") == (run, best)
    assert locate(f"{run}/last") == (run, last)
    assert locate(str(last)) == (run, last)
    best.unlink()
    assert locate(str(run)) == (run, last)  # a run without validation has no best
    with pytest.raises(UserError, match="no best checkpoint; it has last"):
        locate(f"{run}/best")
    last.unlink()
    with pytest.raises(UserError, match="has none yet|none yet"):
        locate(str(run))
    with pytest.raises(UserError, match="is no run folder"):
        locate(str(tmp_path / "nowhere"))


def test_the_keys_that_were_typed_are_those_with_a_value():
    words = ["rollout={n: 3, top_k: 5}", "++data.test={mine: {}}", "data.test.mine.path=a.jsonl", "prompt=r1", "~logger"]
    assert typed_keys(words) == ["rollout.n", "rollout.top_k", "data.test.mine.path", "prompt"]


def run_with(tmp_path, **sections):
    """A run folder whose manifest holds the composed default configuration, without some sections and with these changes."""
    (tree,) = Composer().jobs(["model=tiny", "experiment=quickstart"], multirun=False)
    stored = OmegaConf.to_container(tree, resolve=True)
    for key, value in sections.items():
        if value is None:
            del stored[key]
        else:
            stored[key] = stored[key] | value if isinstance(value, dict) else value
    (tmp_path / "checkpoints").mkdir()
    checkpoint_path(tmp_path, "last").touch()
    (tmp_path / "manifest.json").write_text(json.dumps({"config": stored}))


def configured(tmp_path, *words):
    (tree,) = Composer().jobs(["task=eval", f"ckpt={tmp_path}", *words], multirun=False)
    return with_run_config(OmegaConf.to_object(tree), ["task=eval", f"ckpt={tmp_path}", *words])


def test_the_engine_of_a_runs_evaluation_is_taken_over_unless_one_is_typed(tmp_path):
    fullreal = OmegaConf.to_container(OmegaConf.structured(EngineConfig(name="fullreal", max_turns=2)))
    run_with(tmp_path, eval={"engine": fullreal})
    config = configured(tmp_path)
    assert (config.engine.name, config.eval.engine.name, config.eval.engine.max_turns) == ("fullsim", "fullreal", 2)
    config = configured(tmp_path, "engine=sim2real", "engine.k=1")
    assert (config.engine.name, config.engine.k, config.eval.engine.name) == ("sim2real", "1", "same")
    assert configured(tmp_path, "engine@eval.engine=sim2real").eval.engine.name == "sim2real"


def test_the_temperature_of_a_runs_figures_and_its_recipe_are_taken_over_unless_typed(tmp_path):
    run_with(tmp_path, eval={"temperature": 0.6}, recipe="own")
    config = configured(tmp_path)
    assert (config.eval.temperature, config.recipe) == (0.6, "own")
    assert configured(tmp_path, "eval.temperature=0").eval.temperature == 0


def test_a_run_that_is_older_than_a_section_takes_it_from_the_command(tmp_path):
    run_with(tmp_path, retriever=None, wrapper=None)
    config = configured(tmp_path, "engine=fullreal", "retriever=http")
    assert (config.retriever.name, config.wrapper.name, config.model.name) == ("http", "search_r1", "tiny")


def test_what_a_run_and_the_command_make_together_is_checked(tmp_path):
    run_with(tmp_path, engine={"name": "none"}, prompt={"search": False})
    with pytest.raises(UserError, match="engine=fullreal waits for searches"):
        configured(tmp_path, "engine=fullreal")


@pytest.mark.slow
def test_eval_takes_the_runs_own_configuration_and_what_is_typed_wins(runs, trained, capsys):
    own = json.loads((trained.path / "manifest.json").read_text())["config"]
    common = ("task=eval", f"ckpt={trained.path}", "trainer=cpu", f"runs={runs.home / 'evals'}", "eval.samples=0")
    figures = {}
    for ckpt in ("", "/best", "/last", "/checkpoints/last.ckpt"):
        folder = runs.only(*common, f"ckpt={trained.path}{ckpt}", "rollout.dtype=float32")
        figures[ckpt] = folder.summary()["after"]
        config = folder.manifest()["config"]
        assert config["ckpt"].endswith("last.ckpt" if "last" in ckpt else "best.ckpt")
        for section in ("model", "prompt", "reward", "data", "algo"):
            assert config[section] == own[section], section
    assert figures[""] == figures["/best"] == trained.summary()["after"]
    assert figures["/last"] == figures["/checkpoints/last.ckpt"]
    other = runs.home / "other.jsonl"
    other.write_text('{"id": 1, "question": "Who?", "golden_answers": ["I"]}\n')
    folder = runs.only(*common, "rollout.max_response_tokens=9", f"data.test.mine.path={other}", "data.test.bundled.limit=2")
    config = folder.manifest()["config"]
    assert config["rollout"] == own["rollout"] | {"max_response_tokens": 9}
    assert {name: part["limit"] for name, part in config["data"]["test"].items()} == {"bundled": 2, "mine": None}
    assert folder.summary()["after"]["test/mine/response_tokens"] <= 9
    assert folder.summary()["counts"]["test questions bundled"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["model.lora.rank=2"]], ids=["full", "adapters"])
def test_an_export_is_what_was_trained(runs, words):
    trained = runs.run("train.steps=2", "train.lr=0.01", "train.warmup_steps=0", *words)
    runs.only("task=export", f"ckpt={trained.path}/last", "trainer=cpu", folder=False)
    target = trained.path / "export"
    assert sorted(path.name for path in trained.path.iterdir() if path.name.startswith(".export")) == []
    exported = AutoModelForCausalLM.from_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(target)
    ids = tokenizer("What is the capital of Peru?", return_tensors="pt").input_ids
    assert tokenizer.decode(ids[0]) == "What is the capital of Peru?" and tokenizer.chat_template
    weights = {name.removeprefix("policy."): value for name, value in runs.weights(trained).items()}
    first = load_model("random:tiny").model
    if words:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(first, LoraConfig(r=2, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    else:
        model = first
    before = load_model("random:tiny").model(ids).logits
    model.load_state_dict(weights)
    assert torch.allclose(exported(ids).logits, model.eval()(ids).logits, atol=1e-5)
    assert not torch.allclose(exported(ids).logits, before, atol=1e-3)
    with pytest.raises(UserError, match="is not empty"):
        runs.only("task=export", f"ckpt={trained.path}/last", "trainer=cpu", folder=False)


def test_a_model_as_it_is_can_be_exported(runs):
    runs.only("task=export", "model=tiny", f"out={runs.home / 'plain'}", folder=False)
    exported = AutoModelForCausalLM.from_pretrained(runs.home / "plain").state_dict()
    first = load_model("random:tiny").model.state_dict()
    assert exported.keys() == first.keys() and all(torch.equal(exported[name], first[name]) for name in first)


@pytest.mark.slow
def test_vllm_loads_an_export(runs):
    vllm = pytest.importorskip("vllm")
    trained = runs.run("train.steps=1")
    runs.only("task=export", f"ckpt={trained.path}/last", folder=False)
    model = vllm.LLM(str(trained.path / "export"), enforce_eager=True, max_model_len=64)
    assert model.generate("Why?", vllm.SamplingParams(max_tokens=4))[0].outputs[0].token_ids


def test_ask_needs_no_checkpoint_and_takes_any_characters(runs, capsys):
    question = 'Wer schrieb "Faust" [bold]? 東京, it\'s <search>x</search> {y} \\ 50%'
    runs.only("task=ask", "model=tiny", f"question={question}", "rollout.max_response_tokens=30", folder=False)
    said = capsys.readouterr().out
    assert "answer: none; 0 searches" in said and "truncated" in said


@pytest.mark.slow
def test_ask_writes_what_the_runs_policy_answers_in_its_own_prompt(runs, trained, capsys):
    for kept in read_rollouts(trained.path / "rollouts" / "test.bundled-2.jsonl.zst"):
        capsys.readouterr()
        runs.only("task=ask", f"question={kept['question']['text']}", f"ckpt={trained.path}", "trainer=cpu", folder=False)
        assert letters(capsys.readouterr().out).startswith(letters("".join(kept["tokens"]["text"])))


def letters(text):
    """What a terminal surely shows."""
    return "".join(character for character in text if character.isascii() and character.isalnum())


def test_the_rollouts_of_an_evaluation_are_kept(runs):
    folder = runs.only("task=eval", "model=tiny", "prompt.template='{question}'", "data.test.bundled.limit=2", "rollout.max_response_tokens=8", "eval.samples=0")
    assert len(list(read_rollouts(folder.path / "rollouts" / "test.bundled-0.jsonl.zst"))) == 2
