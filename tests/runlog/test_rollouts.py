import json
import math
from dataclasses import replace

import pytest
import zstandard

from ssrl.runlog.rollouts import RolloutWriter, read_rollouts, record, rollout_files

TEXTS = ["<think>", "<search>", "Nairobi", "</answer>"]


def test_a_record_holds_the_rollout_token_by_token(make_rollout):
    item = record(make_rollout(), TEXTS, step=7, advantage=1.5)
    assert item["tokens"] == {
        "text": TEXTS,
        "source": ["template", "policy", "engine", "policy"],
        "block": ["think", "search", "information", "answer"],
        "turn": [0, 0, 0, 1],
        "trained": [False, True, False, True],
        "logprob": [None, -0.1235, None, -2.0],
    }
    assert (item["step"], item["group"], item["sample"], item["prompt_tokens"]) == (7, "q1-0", 3, 3)
    assert item["question"] == {"id": "q1", "text": "What is the capital of Kenya?", "source": "bundled"}
    assert (item["answers"], item["answer"], item["status"]) == (["Nairobi"], "Nairobi", "answered")
    assert (item["reward"], item["advantage"], item["parts"]) == (0.9, 1.5, {"em": 1.0, "format": 0.5})
    assert item["searches"][0]["result"]["documents"] == [{"id": "1", "title": "Kenya", "text": "Nairobi is the capital.", "score": 2.0}]
    assert item["searches"][1] == {"query": "own", "result": None}


def test_a_rollout_without_a_score_is_recorded(make_rollout):
    item = record(replace(make_rollout(), score=None), TEXTS, step=0)
    assert (item["reward"], item["answer"], item["parts"], item["advantage"]) == (None, None, {}, None)


def test_a_rollout_that_nothing_judged_is_recorded_without_a_reward(make_rollout):
    rollout = make_rollout()
    item = record(replace(rollout, score=replace(rollout.score, total=math.nan)), TEXTS, step=0)
    assert (item["reward"], item["answer"]) == (None, "Nairobi")


def test_as_many_texts_as_tokens_are_demanded(make_rollout):
    with pytest.raises(ValueError, match="3 token texts for 4 tokens"):
        record(make_rollout(), TEXTS[:3], step=0)


def test_records_written_at_several_times_come_back_in_order(tmp_path, make_rollout):
    writer = RolloutWriter(tmp_path)
    items = [record(make_rollout(document=f"zażółć {k}\u2028"), TEXTS, step=3) for k in range(5)]
    writer.append("val.bundled", 3, items[:2])
    path = writer.append("val.bundled", 3, items[2:])
    assert path == tmp_path / "rollouts" / "val.bundled-3.jsonl.zst"
    assert list(read_rollouts(path)) == items
    assert rollout_files(tmp_path / "rollouts") == [("val.bundled", 3, path)]
    assert "NaN" not in "".join(json.dumps(item) for item in read_rollouts(path))


@pytest.mark.parametrize("lost", [1, 40, 200])
def test_what_a_crash_left_half_written_is_left_out(tmp_path, make_rollout, lost):
    writer = RolloutWriter(tmp_path)
    items = [record(make_rollout(document=f"document {k}"), TEXTS, step=3) for k in range(4)]
    writer.append("train", 3, items[:2])
    path = writer.append("train", 3, items[2:])
    path.write_bytes(path.read_bytes()[:-lost])
    read = list(read_rollouts(path))
    assert read == items[: len(read)] and 2 <= len(read) < 4


def test_the_files_are_ordinary_zstandard_files(tmp_path):
    path = RolloutWriter(tmp_path).append("train", 1, [{"step": 1}])
    assert zstandard.decompress(path.read_bytes()) == b'{"step":1}\n'


def test_a_split_with_a_slash_is_refused(tmp_path):
    with pytest.raises(ValueError, match="val/bundled"):
        RolloutWriter(tmp_path).append("val/bundled", 1, [{"step": 1}])
