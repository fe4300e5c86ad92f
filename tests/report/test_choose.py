import pytest

from ssrl.report.choose import choose, packed, spread
from ssrl.runlog.rollouts import read_rollouts


@pytest.mark.parametrize("count, most, expected", [(3, 5, [0, 1, 2]), (9, 3, [0, 4, 8]), (9, 1, [8]), (0, 3, [])])
def test_items_are_spread_with_first_and_last(count, most, expected):
    assert spread(list(range(count)), most) == expected


def test_rollouts_come_from_before_during_and_after_and_are_bounded(tmp_path, make_run):
    folder = make_run(tmp_path, steps=20)
    chosen = choose(folder.path, most=100)
    assert 80 <= len(chosen.records) <= 100
    steps = {split: sorted({item["step"] for item in chosen.records if item["split"] == split}) for split in ("train", "val")}
    assert steps["val"] == [0, 8, 16, 20]
    assert len(steps["train"]) == 7 and steps["train"][0] == 1 and steps["train"][-1] == 20
    asked = {step: [item["question"] for item in chosen.records if (item["split"], item["step"]) == ("val", step)] for step in steps["val"]}
    assert asked[0] == asked[8] == asked[20]
    assert (chosen.files_read, chosen.files) == (11, 24)


def test_the_bytes_are_bounded_too(tmp_path, make_run):
    folder = make_run(tmp_path, steps=4)
    whole = choose(folder.path)
    few = choose(folder.path, most_bytes=40_000)
    assert 0 < len(few.records) < len(whole.records)
    assert {item["step"] for item in few.records} >= {0, 4}


def test_an_empty_folder_has_none(tmp_path):
    assert choose(tmp_path).records == []


def test_packing_keeps_every_token(tmp_path, make_run):
    folder = make_run(tmp_path, steps=1, engine=True)
    item = next(item for item in read_rollouts(tmp_path / "rollouts" / "train-1.jsonl.zst") if item["searches"])
    small = packed(item, "train")
    names = {"source": ["policy", "engine", "template"], "block": ["outside", "think", "search", "information", "answer"]}
    for key, order in names.items():
        assert [order[int(digit)] for digit in small[key]] == item["tokens"][key]
    assert [digit == "1" for digit in small["trained"]] == item["tokens"]["trained"]
    assert [int(digit) for digit in small["turn"]] == item["tokens"]["turn"] and small["text"] == item["tokens"]["text"]
    assert folder.status().state == "done"
