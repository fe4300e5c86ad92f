"""A corpus as a file: both kinds of lines, hostile ones, and what is kept in memory."""

import json
import tracemalloc

import pytest

from ssrl.errors import UserError
from ssrl.retrieval.corpus import contents, open_corpus, parse
from ssrl.types import Document


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_title_and_text_are_read_from_both_kinds_of_lines(tmp_path):
    rows = [
        {"id": "a", "title": "Rome", "contents": "A city."},
        {"id": 7, "contents": '"Oslo"\nA city by a fjord.'},
        {"id": "c", "contents": "No title,\njust two lines."},
        {"id": "d", "title": "Bern", "contents": '"Bern"\nA city with bears.'},
    ]
    corpus = open_corpus(write(tmp_path / "c.jsonl", rows), "one", tmp_path / "index")
    assert list(corpus) == [
        Document(id="a", title="Rome", text="A city."),
        Document(id="7", title="Oslo", text="A city by a fjord."),
        Document(id="c", title="", text="No title,\njust two lines."),
        Document(id="d", title="Bern", text="A city with bears."),
    ]


def test_contents_are_spelled_as_in_the_search_r1_corpora():
    line = json.dumps({"id": "1", "contents": '"Oslo"\nA city by a fjord.'})
    assert contents(parse(line.encode())) == '"Oslo"\nA city by a fjord.'
    assert contents(Document(text="no title")) == "no title"


def test_a_quotation_at_the_beginning_is_no_title_unless_it_is_the_whole_line():
    line = json.dumps({"id": "1", "contents": '"To be" is a quotation.\nIt is by Shakespeare.'})
    assert parse(line.encode()) == Document(id="1", text='"To be" is a quotation.\nIt is by Shakespeare.')


def test_empty_passages_are_left_out_and_duplicate_ids_are_kept_and_both_counted(tmp_path):
    rows = [{"id": "a", "contents": "x"}, {"id": "b", "contents": "  "}, {"id": "a", "contents": "y"}, {"id": "c", "contents": '"T"\n '}]
    path = write(tmp_path / "c.jsonl", rows)
    path.write_text("\n" + path.read_text() + "\n\n")
    corpus = open_corpus(path, "one", tmp_path / "index")
    assert ([document.text for document in corpus], corpus.empty, corpus.duplicates) == (["x", "y"], 2, 1)


def test_unicode_and_a_line_of_ten_megabytes_come_back_as_they_were(tmp_path):
    texts = ["Ünïcödé 東京 🗼\u2028\u202e \u200b", "long " * 2_000_000, "last"]
    path = write(tmp_path / "c.jsonl", [{"id": str(i), "contents": text} for i, text in enumerate(texts)])
    corpus = open_corpus(path, "one", tmp_path / "index")
    assert [corpus[i].text for i in (2, 0, 1)] == [texts[2], texts[0].strip(), texts[1].strip()]


def test_half_a_surrogate_pair_becomes_text_that_can_be_written():
    assert parse(b'{"id": "1", "contents": "bad \\ud800 half"}').text.encode()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"not json", "Expecting value"),
        (b"[1]", "list found"),
        (b'{"contents": "x"}', "id is missing"),
        (b'{"id": "1", "text": "x"}', "contents is missing"),
        (b'{"id": "1", "contents": null}', "contents is NoneType"),
        (b'{"id": "1", "contents": "\xff"}', "utf-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(tmp_path, line, says):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"id": "0", "contents": "good"}\n' + line + b"\n")
    with pytest.raises(UserError, match=f"c.jsonl line 2 is no passage.*{says}"):
        open_corpus(path, "one", tmp_path / "index")
    assert not list((tmp_path / "index").glob("passages-????????????????"))


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_missing_file_says_what_to_type(tmp_path, name):
    with pytest.raises(UserError, match="retriever.corpus="):
        open_corpus(tmp_path / name, "one", tmp_path / "index")


def test_a_corpus_without_a_passage_is_an_error(tmp_path):
    with pytest.raises(UserError, match="holds no passage"):
        open_corpus(write(tmp_path / "c.jsonl", []), "one", tmp_path / "index")


def test_a_file_that_changed_behind_its_fingerprint_is_noticed(tmp_path):
    path = write(tmp_path / "c.jsonl", [{"id": "a", "contents": "first"}, {"id": "b", "contents": "second"}])
    open_corpus(path, "one", tmp_path / "index")
    write(path, [{"id": "a", "contents": "something longer than before"}, {"id": "b", "contents": "second"}])
    with pytest.raises(UserError, match="has changed"):
        list(open_corpus(path, "one", tmp_path / "index"))


def test_counting_holds_no_more_than_a_few_bytes_a_passage(tmp_path):
    path = write(tmp_path / "c.jsonl", [{"id": str(i), "contents": "word " * 100} for i in range(5_000)])
    tracemalloc.start()
    open_corpus(path, "one", tmp_path / "index")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 5_000 < path.stat().st_size / 5
