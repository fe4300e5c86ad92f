"""Loading: every format gives the same questions, and every bad file one sentence."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
import pytest

from ssrl.data.columns import Columns, Place, answer_list
from ssrl.data.load import load_questions
from ssrl.errors import UserError

SHARED = Path(os.environ.get("SSRL_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data")
GOOD = [
    {"id": "a", "question": "Who wrote Emma?", "golden_answers": ["Jane Austen", "Austen"], "level": 1},
    {"id": "b", "question": "Où est Paris ?", "golden_answers": ["France"], "level": 2},
    {"id": "c", "question": "2 + 2?", "golden_answers": ["4", "four"], "level": 3},
]


def jsonl(folder, rows, name="q.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def load(path, **options):
    return load_questions("mine", path=path, key="data.train.mine", **options)


def sentence(path, **options):
    with pytest.raises(UserError) as caught:
        load(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def facts(loaded):
    return [(one.id, one.text, one.answers) for one in loaded.questions]


def test_jsonl_csv_and_parquet_give_the_same_questions(tmp_path):
    expected = [(row["id"], row["question"], tuple(row["golden_answers"])) for row in GOOD]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(GOOD), tmp_path / "q.parquet")
    cells = [f'{row["id"]},{row["question"]},"{json.dumps(row["golden_answers"])}"'.replace('"["', '"[""').replace('"]"', '""]"') for row in GOOD]
    cells = [cell.replace('", "', '"", ""') for cell in cells]
    (tmp_path / "q.csv").write_text("\n".join(["id,question,golden_answers", *cells]), encoding="utf-8-sig")
    for path in (jsonl(tmp_path, GOOD), str(tmp_path / "q.csv"), str(tmp_path / "q.parquet")):
        loaded = load(path)
        assert facts(loaded) == expected
        assert loaded.counts == {"rows": 3, "kept": 3, "duplicates": 0, "cleaned": 0, "limited": 0}
        assert {one.source for one in loaded.questions} == {"mine"}


def test_other_columns_pass_through(tmp_path):
    assert [one.extra for one in load(jsonl(tmp_path, GOOD)).questions] == [{"level": 1}, {"level": 2}, {"level": 3}]


def test_columns_are_mapped_and_reach_into_nested_ones(tmp_path):
    path = jsonl(tmp_path, [{"prompt": "Who?", "answer": {"value": "x", "aliases": ["Ann", "Anne"]}}])
    [question] = load(path, columns=Columns(id=None, question="prompt", answers="answer.aliases")).questions
    assert (question.id, question.text, question.answers) == ("1", "Who?", ("Ann", "Anne"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [("Paris", ("Paris",)), (["Paris", " Paris ", ""], ("Paris",)), (1969, ("1969",)), (numpy.array(["a b", "c"], dtype=object), ("a b", "c"))],
)
def test_answers_may_be_a_string_a_list_a_number_or_an_array(value, expected):
    assert answer_list(value, Place("q", "line 1", "data.train.mine")) == expected


def test_control_characters_go_and_are_counted_and_everything_else_stays(tmp_path):
    decomposed = "Cafe\u0301 \u200d\u4e2d?"
    rows = [
        {"id": 1, "question": "\ufeffWho\x00 is it?", "golden_answers": "A\ud800nn"},
        {"id": 2, "question": decomposed, "golden_answers": "x"},
        {"id": 3, "question": "one\u2028line?", "golden_answers": "y"},
    ]
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = load(str(path))
    assert facts(loaded)[:2] == [("1", "Who is it?", ("Ann",)), ("2", decomposed, ("x",))]
    assert loaded.counts["cleaned"] == 1


def test_a_repeated_question_is_merged_with_its_answers(tmp_path):
    rows = [
        {"id": 1, "question": "Who was first?", "golden_answers": ["Ann"]},
        {"id": 2, "question": "Who was second?", "golden_answers": ["Ben"]},
        {"id": 3, "question": "who  was FIRST", "golden_answers": ["Anne", "Ann"]},
    ]
    loaded = load(jsonl(tmp_path, rows))
    assert facts(loaded) == [("1", "Who was first?", ("Ann", "Anne")), ("2", "Who was second?", ("Ben",))]
    assert loaded.counts == {"rows": 3, "kept": 2, "duplicates": 1, "cleaned": 0, "limited": 0}


def test_a_limit_draws_by_id_and_keeps_the_order(tmp_path):
    rows = [{"id": f"q{k}", "question": f"What is {k}?", "golden_answers": [str(k)]} for k in range(200)]
    shuffled = random.Random(3).sample(rows, len(rows))
    first = load(jsonl(tmp_path, rows), limit=50)
    ids = [one.id for one in first.questions]
    assert first.counts["kept"] == 50 and first.counts["limited"] == 150
    assert ids == sorted(ids, key=lambda one: int(one[1:]))
    assert {one.id for one in load(jsonl(tmp_path, shuffled), limit=50).questions} == set(ids)
    assert {one.id for one in load(jsonl(tmp_path, rows), limit=50, limit_seed=1).questions} != set(ids)
    assert max(int(one[1:]) for one in ids) > 100, "the draw must not be the head of the file"


def test_the_local_copy_is_read_before_the_hub_is_asked(tmp_path):
    jsonl(tmp_path, GOOD, "nq_test.jsonl")
    loaded = load("hf:RUC-NLPIR/FlashRAG_datasets", subset="nq", split="test", local="nq_test.jsonl", root=str(tmp_path))
    assert [one.id for one in loaded.questions] == ["a", "b", "c"]


def test_a_hugging_face_data_set_is_read_by_subset_and_split(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set" / "nq").mkdir(parents=True)
    jsonl(tmp_path / "set" / "nq", GOOD, "test.jsonl")
    card = "---\nconfigs:\n- config_name: nq\n  data_files:\n  - split: test\n    path: nq/test.jsonl\n---\n"
    (tmp_path / "set" / "README.md").write_text(card)
    path = f"hf:{tmp_path / 'set'}"
    assert [one.id for one in load(path, subset="nq", split="test").questions] == ["a", "b", "c"]
    assert "data.train.mine.path=" in sentence(path, subset="nq", split="dev")
    assert "data.train.mine.split=" in sentence(path, subset="nq")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", ["is empty"]),
        (b"\n\n", ["is empty"]),
        (b'{"id": 1, "question": "Who?", "golden_answers": ["a"]}\n{"id": 2,\n', ["line 2 of", "not JSON"]),
        (b'["a"]\n', ["line 1 of", "holds a list"]),
        (b'{"id": 1, "query": "Who?", "golden_answers": ["a"]}\n', ["id, query, golden_answers", "data.train.mine.columns.question="]),
        (b'{"id": 1, "question": "Who?", "a": {"b": ["a"]}}\n', ["'golden_answers'", "a.b", "data.train.mine.columns.answers="]),
        (b'{"question": "Who?", "golden_answers": ["a"]}\n', ["data.train.mine.columns.id=null"]),
        (b'{"id": 1, "question": "Who?", "golden_answers": []}\n', ["line 1 of", "no answer"]),
        (b'{"id": 1, "question": "Who?", "golden_answers": [" ", null]}\n', ["line 1 of", "no answer"]),
        (b'{"id": 1, "question": "Who?", "golden_answers": [{"x": 1}]}\n', ["line 1 of", "type dict"]),
        (b'{"id": 1, "question": " ", "golden_answers": ["a"]}\n', ["line 1 of", "no question text"]),
        (b'{"id": "x", "question": "A?", "golden_answers": "a"}\n{"id": "x", "question": "B?", "golden_answers": "b"}\n', ["line 2", "'x'", "line 1"]),
        (b'{"id": null, "question": "A?", "golden_answers": "a"}\n', ["line 1 of", "empty id"]),
        (b'{"id": 1, "question": "A?", "golden_answers": "a"}\n{"id": 2, "question": "caf\xe9?"}\n', ["line 2 of", "UTF-8", "0xe9"]),
    ],
)
def test_a_bad_json_lines_file_is_answered_in_one_sentence(tmp_path, text, expected):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text)
    message = sentence(str(path))
    assert all(part in message for part in [*expected, str(path)]), message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,question,golden_answers\n1,Who, me?,x\n", ["line 2 of", "more cells"]),
        ("id,question,golden_answers\n1,Who?\n", ["line 2 of", "no answer"]),
        ("id,question,golden_answers\n1,Who?,\"['a', 'b']\"\n", ["line 2 of", "lists as JSON"]),
        ('id,question,golden_answers\n1,"Who?,a\n', ["not readable CSV"]),
        ("id,question,golden_answers\n", ["is empty"]),
    ],
)
def test_a_bad_csv_file_is_answered_in_one_sentence(tmp_path, text, expected):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    message = sentence(str(path))
    assert all(part in message for part in expected), message


def test_a_bad_parquet_file_is_answered_in_one_sentence(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    assert "not a readable Parquet file" in sentence(str(tmp_path / "bad.parquet"))
    raw = pyarrow.array([b"fine", b"caf\xe9"]).cast(pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, raw.buffers())
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2], "question": text, "golden_answers": ["a", "b"]}), tmp_path / "latin.parquet")
    assert "row 2 of" in sentence(str(tmp_path / "latin.parquet"))


def test_a_missing_or_unknown_file_is_answered_in_one_sentence(tmp_path):
    assert "does not exist" in sentence(str(tmp_path / "gone.jsonl")) and "data.train.mine.path=" in sentence(str(tmp_path / "gone.jsonl"))
    assert "is a folder" in sentence(str(tmp_path))
    assert "bundled:train, bundled:validation" in sentence("bundled:dev")
    (tmp_path / "q.xml").write_text("<q/>")
    assert "'.xml'" in sentence(str(tmp_path / "q.xml")) and ".jsonl, .parquet, .csv" in sentence(str(tmp_path / "q.xml"))
    assert "nq.jsonl into data.root" in sentence("nq.jsonl", local="nq.jsonl")
    assert "limit=0" in sentence(jsonl(tmp_path, GOOD), limit=0)


def test_the_bundled_sets_load_whole():
    sizes = [len(load(f"bundled:{split}").questions) for split in ("train", "validation", "test")]
    assert sum(sizes) >= 640 and load("bundled:test").counts["duplicates"] == 0


def test_loading_imports_no_torch():
    code = "import sys; from ssrl.data.load import load_questions; load_questions('x', path='bundled:test'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no copies of the benchmarks")
@pytest.mark.parametrize(
    ("name", "rows", "duplicates"), [("nq_test", 1000, 0), ("bamboogle_test", 125, 0), ("musique_dev", 800, 0), ("hotpotqa_dev", 1000, 0), ("popqa_test", 500, 7)]
)
def test_the_real_benchmarks_load(name, rows, duplicates):
    if not (SHARED / f"{name}.jsonl").is_file():
        pytest.skip(f"no {name}.jsonl")
    counts = load(f"hf:any/{name}", local=f"{name}.jsonl", root=str(SHARED)).counts
    assert (counts["rows"], counts["duplicates"], counts["kept"]) == (rows, duplicates, rows - duplicates)
