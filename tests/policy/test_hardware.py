"""The `auto` choices of arithmetic, and the explicit ones."""

import pytest
import torch

from ssrl.policy import hardware


@pytest.mark.parametrize("bf16", [True, False])
def test_auto_computes_in_bfloat16_where_the_processor_does(monkeypatch, bf16):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: bf16, raising=False)
    assert hardware.computes_bf16("cpu") is bf16
    assert hardware.sampler_dtype("auto", "cpu") is (torch.bfloat16 if bf16 else torch.float32)
    assert hardware.precision("auto", "cpu") == ("bf16-mixed" if bf16 else "32-true")


def test_a_choice_is_taken_as_it_is():
    assert hardware.sampler_dtype("bfloat16", "cpu") is torch.bfloat16
    assert hardware.sampler_dtype("float32", "cuda") is torch.float32
    assert hardware.precision("32-true", "cuda") == "32-true"


def test_an_unknown_device_computes_in_float32():
    assert hardware.sampler_dtype("auto", "mps") is torch.float32
