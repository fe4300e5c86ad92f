"""The `auto` choices of arithmetic, the explicit ones, and memory that a process keeps."""

import ctypes
import platform
import subprocess
import sys

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told")
def test_freed_memory_is_used_again_without_asking_the_system_for_pages():
    program = """
import resource, sys
import torch
from ssrl.policy.hardware import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)  # 64 MiB: 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    keep_freed_memory()
print(max([faults() for _ in range(60)][-10:]))  # the first ones find their places
"""
    found = {how: int(subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, check=True).stdout) for how in ("plain", "keep")}
    assert found["plain"] > 10_000 > 100 > found["keep"]


def test_a_glibc_that_refuses_a_gibibyte_is_told_less(monkeypatch):
    told = []

    class Older:
        def mallopt(self, option, value):
            told.append((option, value))
            return value <= 2**25

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Older())
    hardware.keep_freed_memory()
    assert told == [(-3, 2**30), (-3, 2**25), (-1, -1)]


@pytest.mark.parametrize(("wanted", "word"), [(True, "warn"), (False, False)])
def test_kernels_repeat_their_results_and_pytorchs_filling_of_new_tensors_is_off(monkeypatch, wanted, word):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    assert hardware.determinism(wanted) == word
    assert not torch.utils.deterministic.fill_uninitialized_memory


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    hardware.keep_freed_memory()
