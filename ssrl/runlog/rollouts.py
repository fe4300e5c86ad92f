"""`rollouts/<split>-<step>.jsonl.zst`: what the policy wrote, token by token, with sources, searches and the parts of the reward."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

from ssrl.runlog.files import append_bytes, dumps
from ssrl.types import Rollout, Search

_FILE = re.compile(r"(?P<split>[\w.+-]+)-(?P<step>\d+)\.jsonl\.zst")


def record(rollout: Rollout, token_texts: Sequence[str], step: int, advantage: float | None = None) -> dict[str, Any]:
    """A rollout as one JSON object. `token_texts` [T] is each response token's own text, special tokens included.

    The lists under `tokens` are parallel and of length T; `logprob` is rounded to 4 digits and null where nothing was sampled;
    `reward` is null where nothing judged the rollout.
    """
    if len(token_texts) != len(rollout.ids):
        raise ValueError(f"{len(token_texts)} token texts for {len(rollout.ids)} tokens")
    score = rollout.score
    return {
        "step": step,
        "question": {"id": rollout.question.id, "text": rollout.question.text, "source": rollout.question.source},
        "answers": list(rollout.question.answers),
        "group": rollout.group,
        "sample": rollout.sample,
        "prompt_tokens": len(rollout.prompt_ids),
        "tokens": {
            "text": list(token_texts),
            "source": [source.name.lower() for source in rollout.sources],
            "block": [block.name.lower() for block in rollout.blocks],
            "turn": list(rollout.turns),
            "trained": list(rollout.trained),
            "logprob": [round(value, 4) if math.isfinite(value) else None for value in rollout.logprobs],
        },
        "status": rollout.status.value,
        "searches": [_search(search) for search in rollout.searches],
        "parts": dict(score.parts) if score else {},
        "reward": score.total if score and math.isfinite(score.total) else None,
        "answer": score.answer if score else None,
        "advantage": advantage,
    }


def _search(search: Search) -> dict[str, Any]:
    result = search.result
    if result is None:
        return {"query": search.query, "result": None}
    documents = [{"id": doc.id, "title": doc.title, "text": doc.text, "score": doc.score} for doc in result.documents]
    return {
        "query": search.query,
        "result": {
            "status": result.status.value,
            "documents": documents,
            "latency_s": round(result.latency_s, 4),
            "cached": result.cached,
            "truncated": search.truncated,
            "error": result.error,
        },
    }


class RolloutWriter:
    """Appends records to the files of one run folder."""

    def __init__(self, run_folder: Path) -> None:
        self.folder = run_folder / "rollouts"

    def append(self, split: str, step: int, records: Iterable[dict[str, Any]]) -> Path:
        """Adds records to the file of this split and step as one compressed frame. A split may be called "train" or "val.bundled"."""
        name = f"{split}-{step}.jsonl.zst"
        if not _FILE.fullmatch(name):
            raise ValueError(f"a split's name is made of letters, digits and . _ + -, found {split!r}")
        path = self.folder / name
        lines = "".join(dumps(item) + "\n" for item in records)
        if lines:
            append_bytes(path, zstandard.compress(lines.encode()))
        return path

    def replace(self, split: str, step: int, records: Iterable[dict[str, Any]]) -> Path:
        """`append` to a file that is begun anew: what an earlier, perhaps interrupted, attempt wrote of this split and step goes."""
        (self.folder / f"{split}-{step}.jsonl.zst").unlink(missing_ok=True)
        return self.append(split, step, records)

    def drop_after(self, step: int) -> None:
        """Removes the files of later steps, which a run that continues from `step` writes again."""
        for _, later, path in rollout_files(self.folder):
            if later > step:
                path.unlink()


def rollout_files(folder: Path) -> list[tuple[str, int, Path]]:
    """(split, step, path) of every rollout file in a folder, by split and step."""
    found = []
    for path in folder.glob("*.jsonl.zst"):
        if match := _FILE.fullmatch(path.name):
            found.append((match["split"], int(match["step"]), path))
    return sorted(found)


def read_rollouts(path: Path) -> Iterator[dict[str, Any]]:
    """The records of one file, one after the other; what a crash left half written at the end is left out."""
    with open(path, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream:
        lines = io.BufferedReader(stream)
        while True:
            try:
                line = lines.readline()
            except zstandard.ZstdError:
                return
            if not line.endswith(b"\n"):
                return
            yield json.loads(line)
