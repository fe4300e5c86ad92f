"""What cannot be built is said in a sentence, before anything runs."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssrl.config import Config, RolloutConfig, TrainerConfig
from ssrl.errors import UserError
from ssrl.tasks.build import device_of
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
