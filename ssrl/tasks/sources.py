"""Questions by name, with the counts and fingerprints that the manifest keeps. Runs before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ssrl.config import Config, QuestionsConfig
from ssrl.data.fingerprint import fingerprint
from ssrl.data.load import load_questions
from ssrl.errors import UserError
from ssrl.types import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All sets of a configuration."""

    train: list[Question]
    val: dict[str, list[Question]]
    test: dict[str, list[Question]]
    manifest: dict[str, Any]  # counts and fingerprint of each set


def load_sources(config: Config, parts: tuple[str, ...] = ("train", "val", "test")) -> Sources:
    """Load the sets of these parts; UserError names the key of the first that is wrong."""
    sets: dict[str, dict[str, list[Question]]] = {"train": {}, "val": {}, "test": {}}
    manifest: dict[str, Any] = {}
    for part in parts:
        for name, source in getattr(config.data, part).items():
            key = f"data.{part}.{name}"
            sets[part][name], manifest[f"{part}/{name}"] = _load(name, source, config.data.root, key)
    if "train" in parts and not sets["train"]:
        raise UserError(f"data={config.data.name} has no training questions; choose data=bundled, data=nq_hotpotqa or data=files")
    train = [question for questions in sets["train"].values() for question in questions]
    return Sources(train=train, val=sets["val"], test=sets["test"], manifest=manifest)


def _load(name: str, source: QuestionsConfig, root: str | None, key: str) -> tuple[list[Question], dict[str, Any]]:
    loaded = load_questions(
        name, path=source.path, subset=source.subset, split=source.split, local=source.local, root=root, columns=source.columns,
        limit=source.limit, limit_seed=source.limit_seed, key=key)  # fmt: skip
    return loaded.questions, {**loaded.counts, "fingerprint": fingerprint(str(loaded.file or source.path))}


def refuse_other_content(run: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """A run that goes on must find the questions with which it began.

    Args:
        run: the manifest of the run so far.
        now: counts and fingerprints of the sets as they are.

    Raises:
        UserError: a set has other content.
    """
    for name, found in now.items():
        then = (run or {}).get("data", {}).get(name, {}).get("fingerprint", "")
        both = (then, found["fingerprint"])
        # the name of a hub data set stands for no content, and in older manifests also where a local copy was read
        if then != found["fingerprint"] and all(one.startswith("sha256:") for one in both):
            raise UserError(
                f"data.{name.replace('/', '.')} has other content than when this run began ({' then, '.join(one[:15] for one in both)} now): "
                "put the former file back to continue, or type runs= with another folder to begin a run of its own"
            )
