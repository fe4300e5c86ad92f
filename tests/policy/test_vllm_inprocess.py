"""rollout=vllm with the real engine (its CPU build), one process for each model: there can be one engine a process."""

import json
import subprocess

import pytest

from tests.policy.vllm_cases import CASES
from tests.policy.vllm_models import FAMILIES, save
from tests.vllm_python import ROOT, environment, python_with_vllm

NAMES = ["the_process_keeps_its_random_numbers_and_has_no_process_group", *(case.__name__ for case in CASES)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=FAMILIES)
def results(request, tmp_path_factory):
    folder = save(request.param, tmp_path_factory.mktemp("model") / request.param)
    command = [python_with_vllm(), "-m", "tests.policy.vllm_cases", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", NAMES)
def test_the_engine_in_process(results, case):
    assert results[case] == "", results[case]


def test_a_model_whose_heads_the_cpu_build_does_not_compute_is_refused_with_a_sentence(tiny):
    code = "from tests.policy.vllm_cases import in_process; import sys; in_process(sys.argv[1])"
    done = subprocess.run([python_with_vllm(), "-c", code, tiny.folder], capture_output=True, text=True, cwd=ROOT, env=environment())
    assert "UserError: vLLM's CPU build computes attention heads of 32, 64" in done.stderr and "those of this model have 16" in done.stderr
