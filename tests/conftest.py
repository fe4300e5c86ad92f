"""Fixtures that several rooms share: the tiny model, loaded once, and a cache of its own for it."""

import os

import pytest
from hypothesis import settings

settings.register_profile("ssrl", deadline=None)  # a deadline would measure how busy the machine is
settings.load_profile("ssrl")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Converted models go to a folder of this session, which its workers share, unless the caller has named one."""
    base = tmp_path_factory.getbasetemp()
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ.setdefault("SSRL_CACHE", str(session / "cache"))


@pytest.fixture(scope="session")
def tiny(cache):
    """The tiny random model with its byte tokenizer, whose pad token is its end token. Shared: do not change its weights."""
    import torch

    from ssrl.policy.load import load_model

    torch.set_num_threads(1)
    return load_model("random:tiny")
