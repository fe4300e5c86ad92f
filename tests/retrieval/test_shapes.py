"""Whatever JSON a server answers is documents or a failed call, never another exception."""

from hypothesis import given
from hypothesis import strategies as st

from ssrl.calls.caller import CallFailed
from ssrl.retrieval import http, web
from ssrl.types import Document

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8)


def entries(*fields):
    """Objects with some of `fields`, each mostly a text."""
    return st.fixed_dictionaries({}, optional={field: st.text(max_size=20) | anything for field in fields})


plain = entries("id", "contents")
scored = st.fixed_dictionaries({}, optional={"document": plain | anything, "score": scalars})


@given(anything | st.fixed_dictionaries({"result": st.lists(st.lists(plain | scored | anything, max_size=4), min_size=1, max_size=3) | anything}))
def test_of_a_retrieval_server(answer):
    try:
        rows = http.documents_of(answer, queries=2, topk=3)
    except CallFailed as failure:
        assert "\n" not in str(failure) and not failure.retryable
    else:
        assert len(rows) == 2 and all(len(row) <= 3 for row in rows)
        assert all(type(document.text) is type(document.title) is type(document.id) is str for row in rows for document in row)


@given(anything | st.fixed_dictionaries({"organic": st.lists(entries("title", "snippet", "link") | anything, max_size=4) | anything}))
def test_of_a_web_service(answer):
    try:
        documents = web.documents_of("Serper", answer, "organic", 3, text="snippet", address="link")
    except CallFailed as failure:
        assert "\n" not in str(failure) and not failure.retryable
    else:
        assert len(documents) <= 3
        assert all(isinstance(document, Document) and (document.title or document.text) for document in documents)
