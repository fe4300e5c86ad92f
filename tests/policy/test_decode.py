"""The cache with a shared prefix beside transformers' own, and the models that it serves."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
)

from ssrl.errors import UserError
from ssrl.policy.decode import ATTENTION, SharedPrefixCache, check_supported, step
from ssrl.policy.sampler import TransformersSampler

SIZES = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


def make(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("common", [0, 1, 4])
def test_hidden_states_over_prefix_padding_and_several_new_tokens_are_those_of_plain_sequences(common):
    model, shared = make(LlamaConfig(**SIZES, initializer_range=0.3)), None
    prefix, tails = list(range(common)), [[5, 6, 7], [8], [9, 10]]
    new = [[11, 12], [13, 14], [15, 16]]
    plain = [model.get_decoder()(input_ids=torch.tensor([prefix + tail + more])).last_hidden_state[0] for tail, more in zip(tails, new, strict=True)]
    model.config._attn_implementation = ATTENTION
    with torch.no_grad():
        shared = SharedPrefixCache()
        if common:
            step(model, shared, torch.tensor([prefix]), torch.arange(common)[None])
        pad = torch.tensor([0, 2, 1])
        shared.pad = pad
        positions = common + (torch.arange(3) - pad[:, None]).clamp(min=0)
        first = step(model, shared, torch.tensor([[0] * (3 - len(t)) + t for t in tails]), positions)
        assert first.isfinite().all()
        shared.select(torch.tensor([0, 2]))  # the second sequence leaves the batch
        second = [step(model, shared, torch.tensor([[new[i][k]] for i in (0, 2)]), positions[[0, 2], -1:] + 1 + k)[:, 0] for k in range(2)]
    assert shared.length == 5
    for i in range(3):
        assert torch.allclose(first[i, pad[i] :], plain[i][common : common + len(tails[i])], atol=1e-5)
    for row, i in enumerate((0, 2)):
        for k in range(2):
            assert torch.allclose(second[k][row], plain[i][common + len(tails[i]) + k], atol=1e-5)


def test_the_attention_function_needs_its_cache():
    model = make(LlamaConfig(**SIZES))
    model.config._attn_implementation = ATTENTION
    with pytest.raises(RuntimeError, match="ssrl.policy.decode.step"):
        model(input_ids=torch.tensor([[1, 2]]))


REFUSED = {
    "mistral": MistralConfig(**SIZES, sliding_window=8),
    "qwen2": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1),
    "gemma2": Gemma2Config(**SIZES, head_dim=4, sliding_window=8),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_with_sliding_windows_are_refused_in_a_sentence(name, tiny):
    model = make(REFUSED[name])
    with pytest.raises(UserError, match=f"{name}.*sliding_attention.*use a Llama, Qwen2 or Qwen3 model"):
        check_supported(model)
    with pytest.raises(UserError):
        TransformersSampler(model, tiny.tokenizer, frozenset(), dtype=torch.float32)


def test_models_without_windows_are_served():
    for config in (LlamaConfig(**SIZES), MistralConfig(**SIZES, sliding_window=None), Qwen2Config(**SIZES, sliding_window=8)):
        check_supported(make(config))


def test_a_model_whose_attention_cannot_be_exchanged_is_refused():
    model = make(BloomConfig(vocab_size=31, hidden_size=16, n_layer=1, n_head=2))
    with pytest.raises(UserError, match="bloom has an attention that cannot be exchanged"):
        check_supported(model)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (GraniteConfig(**SIZES, logits_scaling=8.0), r"granite changes them \(logits_scaling=8.0\)"),
        (CohereConfig(**SIZES, eos_token_id=1, bos_token_id=2), r"cohere changes them \(logit_scale=0.0625\)"),
        (LlamaConfig(**SIZES, final_logit_softcapping=30.0), r"llama changes them \(final_logit_softcapping=30.0\)"),
    ],
)
def test_a_model_that_scales_its_logits_is_refused(config, said):
    with pytest.raises(UserError, match=said):
        check_supported(make(config))


def test_a_model_whose_scales_are_one_is_served():
    check_supported(make(GraniteConfig(**SIZES, logits_scaling=1.0)))
    check_supported(make(CohereConfig(**SIZES, logit_scale=1.0, eos_token_id=1, bos_token_id=2)))
