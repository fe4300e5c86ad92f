"""Tables as data: which runs they have, and where those lie."""

import pytest
from omegaconf import DictConfig, OmegaConf

from ssrl.app import understand
from ssrl.compose import Composer
from ssrl.data.fingerprint import fingerprint
from ssrl.errors import UserError
from ssrl.runlog.identity import counted, eval_folder, run_folder
from ssrl.table import UNTRAINED, Cell, before_hash, cells

TABLE = """# @package _global_
defaults:
  - override /experiment: mini
table:
  name: mine
  rows: [experiment]
  columns:
    em: {metrics: [test/*/em]}
  published:
    quickstart: {em: 0.5}
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      experiment: quickstart,quickstart_none
"""


def cells_of(*words: str) -> list[Cell]:
    line = understand(words)
    return cells(line.composer, line.words, line.flags)[1]


def test_the_cells_are_rows_by_seeds_and_the_untrained_model():
    found = cells_of("+table=mini/algorithms", "algo=grpo,ppo", "seed=3,5", "train.steps=2")
    assert [(cell.row, cell.seed, cell.steps) for cell in found[:2]] == [(UNTRAINED, 3, 0), (UNTRAINED, 5, 0)]
    assert [(cell.row, cell.seed, cell.steps) for cell in found[2:]] == [("grpo", 3, 2), ("ppo", 3, 2), ("grpo", 5, 2), ("ppo", 5, 2)]


def test_a_cell_lies_where_its_command_alone_would_put_it():
    (untrained, cell) = cells_of("+table=mini/masks", "algo.mask=paper", "seed=1")
    (trained,) = Composer().jobs(["experiment=mini", "algo.mask=paper", "seed=1"], multirun=False)
    (evaluated,) = Composer().jobs(["experiment=mini", "seed=1"], multirun=False)
    assert cell.folder == run_folder(trained, fingerprint)
    assert untrained.folder == eval_folder(evaluated, fingerprint)
    assert untrained.before == cell.before
    assert cells_of(*cell.command.split()[3:])[-1] == cell
    assert cells_of(*untrained.command.split()[3:])[-1].folder == untrained.folder


def composed(*words: str) -> DictConfig:
    (tree,) = Composer().jobs(list(words), multirun=False)
    return tree


@pytest.mark.parametrize(
    ("word", "shared"),
    [
        ("algo=ppo", True), ("train.lr=1e-4", True), ("rollout.n=3", True), ("eval.every=4", True), ("reward.min_share=0.5", True),
        ("model.path=other", False), ("prompt.prefill=So", False), ("eval.engine.name=none", False), ("reward.outcome=f1", False),
        ("eval.temperature=1", False),
    ],
)  # fmt: skip
def test_figures_before_training_depend_on_what_the_untrained_model_is_asked_and_how_alone(word, shared):
    plain, changed = composed("experiment=quickstart"), composed("experiment=quickstart", word)
    assert (before_hash(plain) == before_hash(changed)) == shared


def test_an_engine_of_evaluation_is_the_one_before_training():
    assert before_hash(composed("engine@eval.engine=none")) == before_hash(composed("engine=none"))


def test_tables_share_the_runs_that_they_have_in_common():
    (of_masks, tokens) = cells_of("+table=mini/masks", "algo.mask=tokens", "seed=0")
    (of_algorithms, grpo) = cells_of("+table=mini/algorithms", "algo=grpo", "seed=0")
    assert (tokens.folder, of_masks.folder) == (grpo.folder, of_algorithms.folder)


def test_nothing_of_a_table_counts_towards_a_runs_identity():
    (plain,) = Composer().jobs([], multirun=False)
    found = counted(plain, fingerprint)
    assert "table" not in found and "before" not in found["eval"]
    OmegaConf.set_struct(plain, False)
    other = OmegaConf.merge(plain, {"table": {"name": "x", "rows": ["algo"], "published": {"a": {"b": 1.0}}}, "eval": {"before": False}, "task": "report"})
    assert counted(other, fingerprint) == found


def test_a_table_of_ones_own_may_have_experiments_as_rows(tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "mine.yaml").write_text(TABLE)
    line = understand(["--config-dir", str(tmp_path), "+table=mine"])
    table, found = cells(line.composer, line.words, line.flags)
    assert table.published == {"quickstart": {"em": 0.5}}
    assert [cell.row for cell in found] == ["quickstart", "quickstart_none"]
    assert [cell.folder.name for cell in found] == ["seed0", "seed0"] and "none-grpo" in str(found[1].folder)
    assert found[0].command == f"python -m ssrl --config-dir {tmp_path} table=mine experiment=quickstart"


def test_runs_that_differ_by_more_than_their_row_and_seed_are_refused():
    with pytest.raises(UserError, match="two runs of mini/masks would be row 'untrained' with seed 0: .*table.rows"):
        cells_of("+table=mini/masks", "algo.mask=tokens", "seed=0", "train.lr=1e-5,1e-6")


def test_a_row_key_that_nothing_gives_a_value_to_is_refused():
    with pytest.raises(UserError, match="table.rows of mini/masks names reward, but its sweep gives no value to it"):
        cells_of("+table=mini/masks", "table.rows=[reward]", "algo.mask=none", "seed=0")


def test_without_a_table_there_are_no_cells():
    with pytest.raises(UserError, match=r"type \+table=NAME; known: mini/algorithms"):
        cells_of("seed=0")
