import pytest

from tests.engines.parts import Watcher


@pytest.fixture
def watcher():
    return Watcher()
