"""Loading by name, and the sentences when that fails."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import AddedToken

from ssrl.errors import UserError
from ssrl.policy import builtin
from ssrl.policy.load import end_tokens, load_model, load_tokenizer, resolve


@pytest.fixture
def folder(tiny, tmp_path):
    """A copy of the tiny model's folder, to be spoilt."""
    return shutil.copytree(tiny.folder, tmp_path / "model")


def test_the_tiny_model_loads_with_its_end_tokens(tiny):
    assert tiny.end_ids == {0} and tiny.tokenizer.pad_token_id == tiny.tokenizer.eos_token_id == 0
    assert not tiny.model.training and tiny.model.dtype == torch.float32
    assert Path(tiny.folder, "config.json").exists()


def test_the_tiny_model_is_the_same_wherever_it_is_made(tiny):
    with torch.random.fork_rng():
        torch.manual_seed(123)
        before = torch.random.get_rng_state()
        made = builtin.tiny_model().state_dict()
        assert torch.equal(before, torch.random.get_rng_state()), "making it draws from nobody's stream"
    assert all(torch.equal(value, made[name]) for name, value in tiny.model.state_dict().items())


def test_any_text_can_be_written_with_the_tiny_tokenizer(tiny):
    text = "<search>日本 é\n\t\x00</search>🎉"
    ids = tiny.tokenizer(text).input_ids
    assert len(ids) == len(text.encode()) and tiny.tokenizer.decode(ids) == text


def test_a_local_folder_loads_in_the_type_that_is_asked_for(folder):
    loaded = load_model(str(folder), dtype="bfloat16", attention="eager")
    assert loaded.folder == str(folder)
    assert loaded.model.dtype == torch.bfloat16 and loaded.model.config._attn_implementation == "eager"


def test_names_are_resolved(folder, monkeypatch):
    assert resolve("owner/model") == "owner/model"
    assert resolve(str(folder)) == str(folder)
    monkeypatch.chdir(folder.parent)
    assert resolve("model") == "model" and resolve("./model") == "model"
    monkeypatch.setenv("HOME", str(folder.parent))
    assert resolve("~/model") == str(folder)


@pytest.mark.parametrize("path", ["random:huge", "package:smollm3"])
def test_an_unknown_built_in_model_is_answered_with_the_known_ones(path):
    with pytest.raises(UserError, match=rf"{path} is no built-in model.*package:smollm2-135m, random:tiny"):
        resolve(path)


@pytest.mark.parametrize("path", ["/no/such/folder", "./nothing", "~/nothing-there"])
def test_a_missing_folder_is_named(path):
    with pytest.raises(UserError, match="there is no such folder"):
        load_model(path)


def test_a_folder_without_a_tokenizer_or_model_is_answered_in_one_line(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as caught:
        load_tokenizer(str(tmp_path / "empty"))
    assert "no tokenizer could be loaded" in str(caught.value) and "\n" not in str(caught.value)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError) as caught:
        load_model(str(folder))
    assert "no model could be loaded" in str(caught.value) and "\n" not in str(caught.value)


def test_a_tokenizer_larger_than_the_embedding_is_refused(folder):
    tokenizer = load_tokenizer(str(folder))
    tokenizer.add_tokens([AddedToken("<search>")])
    tokenizer.save_pretrained(folder)
    with pytest.raises(UserError, match="258 tokens.*only 257"):
        load_model(str(folder))


@pytest.mark.parametrize(
    ("listed", "named", "expected"), [(2, 2, {2}), ([2, 5], 7, {2, 5, 7}), (None, 3, {3}), ([2], None, {2}), (None, None, set())]
)
def test_all_end_tokens_are_known(listed, named, expected):
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=listed))
    assert end_tokens(model, SimpleNamespace(eos_token_id=named)) == expected
    assert end_tokens(SimpleNamespace(generation_config=None), SimpleNamespace(eos_token_id=1)) == {1}
