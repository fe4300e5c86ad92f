"""The simulator's prompts and replies."""

import pytest

from ssrl.text.simulator import simulator_prompt, split_reply
from ssrl.text.tags import scan


def test_the_tuned_prompt_is_the_published_one():
    assert simulator_prompt("tuned", "who founded X", "Who founded X?", "Ann", noisy=False, documents=5) == (
        "You are the Google search engine. Given a query, you need to generate five useful documents for the query. The user is trying to answer "
        'the question: "Who founded X?" whose answer is Ann. Each document should contain about 30 words, and these documents should contain '
        "useful information. Query: who founded X\nUseful Output:"
    )
    noisy = simulator_prompt("tuned", "q", "Q?", "A", noisy=True, documents=5)
    assert "five noisy documents" in noisy and noisy.endswith("\nNoisy Output:") and "useful" not in noisy


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize(("documents", "word"), [(1, "one"), (5, "five"), (12, "12")])
def test_the_prompted_prompt_shows_documents_of_about_the_length_that_it_asks_for(noisy, documents, word):
    text = simulator_prompt("prompted", "the {query}", "Q {x}?", "A", noisy=noisy, documents=documents)
    assert f"Write {word} documents" in text and text.endswith("Query: the {query}") and not scan(text)
    shown = split_reply(text.split("\n\n")[1], topk=99)
    assert len(shown) == min(documents, 5) and all(24 <= len(example.split()) <= 36 for example in shown)


def test_a_query_cannot_bring_characters_that_no_tokenizer_takes():
    simulator_prompt("tuned", "a\ud800b", "Q?", "A", noisy=False, documents=5).encode()


@pytest.mark.parametrize(
    ("reply", "documents"),
    [
        ("Doc 1: a\nDoc 2: b", ["a", "b"]),
        ("Sure, here you are:\n\nDoc 1: a\n\nmore of a\n\nDoc 2: b\n", ["a\nmore of a", "b"]),
        ("Doc 1: a Doc 2: b Document 3: c", ["a", "b", "c"]),
        ("Doc 1: a\nDoc 2: b\nDoc 3: c\nDoc 4: d\nDoc 5: e\nDoc 6: f", ["a", "b", "c"]),
        ("Lima is the capital.\n\nOf Peru.", ["Lima is the capital.\nOf Peru."]),
        ("Doc 1:\nDoc 2: b", ["b"]),
        (" \n\n ", []),
        ("", []),
    ],
)
def test_a_reply_is_split_into_its_documents(reply, documents):
    assert split_reply(reply, topk=3) == documents
