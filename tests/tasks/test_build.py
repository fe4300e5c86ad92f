"""What cannot be built is said in a sentence, before anything runs."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssrl.check_engine import longest
from ssrl.config import Config, EngineConfig, LoraConfig, ModelConfig, RolloutConfig, TrainerConfig
from ssrl.errors import UserError
from ssrl.tasks.build import build_policy, device_of
from ssrl.tasks.samplers import build_sampler


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="trainer.accelerator=gpu.*no GPU.*trainer=cpu"):
        device_of(Config(trainer=TrainerConfig(accelerator="gpu")))


@pytest.mark.parametrize("name", ["hf", "vllm", "vllm_server"])
def test_a_model_with_sliding_windows_is_no_policy_whatever_samples(name):
    sizes = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, use_sliding_window=True, sliding_window=8, max_window_layers=1))
    loaded = SimpleNamespace(model=model, tokenizer=None, end_ids=frozenset(), folder="m")
    config = Config(rollout=RolloutConfig(name=name, urls=["http://127.0.0.1:9"]))
    with pytest.raises(UserError, match="qwen2 has .*sliding_attention"):
        build_sampler(config, loaded, torch.device("cpu"))


@pytest.mark.parametrize(
    ("engine", "tokens"),
    [
        (EngineConfig(name="fullsim"), 100 + 50),
        (EngineConfig(name="fullreal", max_turns=2), 100 + 50 + 2 * (30 + 31)),  # documents and what is around them
        (EngineConfig(name="sim2real", k="3"), 100 + 50 + 3 * (30 + 31)),
        (EngineConfig(name="sim2real", k="all"), 8192),  # searches without an end
    ],
)
def test_an_engine_that_samples_is_made_for_the_longest_sequence_of_the_run_and_not_of_the_model(engine, tokens):
    rollout = RolloutConfig(max_prompt_tokens=100, max_response_tokens=50, max_information_tokens=30)
    config = Config(engine=engine, rollout=rollout, model=ModelConfig(context=8192))
    assert longest(config) == tokens
    assert longest(replace(config, task="ask")) == 8192  # a question may be longer than those of the data
    assert longest(replace(config, model=ModelConfig(context=120))) == 120


def test_adapters_on_an_embedding_that_the_output_shares_are_refused():
    config = Config(model=ModelConfig(path="random:tiny", lora=LoraConfig(rank=2, targets=["q_proj", "lm_head"])))
    with pytest.raises(UserError, match=r"model.lora.targets=.*lm_head.*type model.lora.targets=\[all-linear\]"):
        build_policy(config)
    build_policy(replace(config, model=replace(config.model, lora=LoraConfig(rank=2, targets=["q_proj"]))))
