"""Documents on their way to the policy, against the published forms."""

import time
from collections import Counter

import pytest

from ssrl.engines.documents import MAX_CHARS, NOTHING, STYLES, Wrapper, clean_snippet, keep, take_in
from ssrl.errors import UserError
from ssrl.types import Document, SearchResult, SearchStatus

TWO = (Document(text="Paris is\nin  France. ", title='"Paris"'), Document(text="It is big"))


def found(*texts):
    return SearchResult(status=SearchStatus.OK, documents=tuple(Document(text=text) for text in texts))


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("titled", 'Doc 1(Title: "Paris") Paris is in France.\nDoc 2: It is big'),
        ("numbered", "1. Paris is in France.\n2. It is big"),
        ("bullets", "- Paris is in France.\n- It is big"),
        ("paragraph", "Paris is in France. It is big"),
        ("raw", "Paris is\nin  France. \nIt is big"),
    ],
)
def test_each_style_joins_documents_as_it_says(style, expected):
    assert Wrapper(style=style).render(TWO) == expected


@pytest.mark.parametrize("style", STYLES)
def test_where_nothing_was_found_the_policy_reads_so(style):
    assert Wrapper(style=style).render(()) == Wrapper(style=style).render([Document(text=" \n")]) == NOTHING


@pytest.mark.parametrize(
    ("snippet", "sentence"),
    [
        ("  ... the capital of Peru is Lima ...", "The capital of Peru is Lima."),
        ("It was lit in 1887. ... Visitors may climb it", "It was lit in 1887. Visitors may climb it."),
        ("the tower ... stands on a cliff!", "The tower stands on a cliff!"),
        ("the tower… stands …on a cliff?", "The tower stands on a cliff?"),
        ("First line\nsecond line.", "First line."),
        ("\n\n one  two\tthree.", "One two three."),
        ("élan", "Élan."),
        ("3 May 1887.", "3 May 1887."),
        ("...", ""),
        (" \n ", ""),
        ("", ""),
    ],
)
def test_a_snippet_becomes_a_sentence(snippet, sentence):
    assert clean_snippet(snippet) == sentence
    assert Wrapper(style="raw", clean=True).render([Document(text=snippet)]) == (sentence or NOTHING)


def test_one_to_all_documents_are_kept_uniformly_and_the_best_first():
    result = found("a", "b", "c")
    counts = Counter(len(keep(result, "random", seed).documents) for seed in range(3000))
    assert counts.keys() == {1, 2, 3} and all(abs(n - 1000) < 100 for n in counts.values())  # 4 standard deviations
    assert all(keep(result, "random", s).documents == result.documents[: len(keep(result, "random", s).documents)] for s in range(9))
    assert keep(result, "random", 5) == keep(result, "random", 5)
    assert keep(result, "all", 5) == result and keep(found(), "random", 5) == found()


def test_a_document_is_taken_in_without_invisible_characters_and_of_bounded_size():
    start = time.perf_counter()
    result = take_in(SearchResult(status=SearchStatus.OK, documents=(Document(text="\u202ea\ud800\x00" + "b" * 10**7, title="x\u200b\ny"),)))
    assert time.perf_counter() - start < 0.5  # of which milliseconds are ours: the machine may be busy
    (document,) = result.documents
    assert document.text == "a" + "b" * (MAX_CHARS - 4) and document.title == "x y"
    document.text.encode()


@pytest.mark.parametrize("options", [{"before": "<info>"}, {"after": "\n"}, {"before": "<information><answer>"}, {"style": "fancy"}])
def test_a_wrapper_without_its_tags_is_refused(options):
    with pytest.raises(UserError, match="wrapper"):
        Wrapper(**options)
