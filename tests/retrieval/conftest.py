"""The bundled corpus, opened once."""

import json

import pytest

from ssrl.data.fingerprint import fingerprint
from ssrl.data.sources import bundled_file
from ssrl.retrieval.corpus import open_corpus


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture(scope="session")
def bundled(index):
    return open_corpus(bundled_file("bundled:passages"), fingerprint("bundled:passages"), index)


@pytest.fixture
def corpus_of(tmp_path):
    """A corpus of the given texts, without titles."""

    def make(*texts):
        path = tmp_path / f"corpus-{abs(hash(texts))}.jsonl"
        path.write_text("".join(json.dumps({"id": str(i), "contents": text}) + "\n" for i, text in enumerate(texts)))
        return open_corpus(path, fingerprint(str(path)), tmp_path / "index")

    return make
