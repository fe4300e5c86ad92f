"""`docs/config.md` is current and complete."""

from pathlib import Path

from ssrl.reference import page
from ssrl.schema import keys

DOCS = Path(__file__).parents[1] / "docs" / "config.md"


def test_every_key_has_a_docstring():
    assert [name for name, key in keys().items() if not key.doc] == []


def test_the_page_is_current():
    assert DOCS.read_text() == page(), "type: python -m ssrl.reference > docs/config.md"


def test_the_page_names_every_key():
    text = page()
    assert [name for name in keys() if f"`{name}`" not in text and not name.startswith(("data.val", "data.test"))] == []
