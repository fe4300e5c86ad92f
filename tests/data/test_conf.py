"""Every data configuration composes, holds known keys only, and names local copies that load."""

import os
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import ssrl
from ssrl.config import DataConfig
from ssrl.data.load import load_questions

CONF = Path(ssrl.__file__).parent / "conf"
NAMES = sorted(file.stem for file in (CONF / "data").glob("*.yaml"))
SHARED = Path(os.environ.get("SSRL_DATA") or Path(__file__).parents[2] / ".." / "shared" / "data")


def data_config(name):
    with initialize_config_dir(str(CONF), version_base=None):
        composed = compose(overrides=[f"+data={name}"])
    return OmegaConf.merge(OmegaConf.structured(DataConfig), composed.data)


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_the_schema_and_bears_its_name(name):
    config = data_config(name)
    assert config.name == name and (config.test or config.train)


@pytest.mark.parametrize("name", NAMES)
def test_its_command_is_in_its_header(name):
    assert f"data={name}" in (CONF / "data" / f"{name}.yaml").read_text().split("name:")[0]


def test_the_papers_mixture_trains_on_two_sets_and_tests_on_six():
    config = data_config("nq_hotpotqa")
    assert set(config.train) == {"nq", "hotpotqa"}
    assert {one.subset for one in config.test.values()} == {"nq", "triviaqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"}
    assert {one.subset: one.limit for one in config.test.values()}["bamboogle"] is None
    assert all(one.limit == 500 for one in config.test.values() if one.subset != "bamboogle")
    assert all(one.limit is None for one in config.train.values())


def test_what_is_validated_on_is_neither_trained_on_nor_reported():
    config = data_config("nq_hotpotqa")
    used = [(one.subset, one.split) for sets in (config.train, config.test) for one in sets.values()]
    assert not {(one.subset, one.split) for one in config.val.values()} & set(used)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no copies of the benchmarks")
@pytest.mark.parametrize("name", ["nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"])
def test_a_benchmark_loads_from_its_local_copy(name):
    [(source, one)] = data_config(name).test.items()
    if not (SHARED / one.local).is_file():
        pytest.skip(f"no {one.local}")
    options = {key: one[key] for key in ("path", "subset", "split", "local", "columns", "limit", "limit_seed")}
    loaded = load_questions(source, root=str(SHARED), **options)
    assert len(loaded.questions) == (125 if name == "bamboogle" else loaded.counts["rows"] - loaded.counts["duplicates"] - loaded.counts["limited"])
    assert len(loaded.questions) in (125, 493, 500)
