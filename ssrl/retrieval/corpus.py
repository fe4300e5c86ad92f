"""A corpus of passages: a JSONL file that is read as a stream once, and by byte offset ever after.

A line is {id, title, contents} or {id, contents}. Contents that begin with a quoted title and a newline, as in the Search-R1 corpora, are
split into title and text (FACTS 3.4). However large the file, only the two numbers a passage that say where its line lies are kept, and
those memory-mapped.
"""

from __future__ import annotations

import json
import mmap
import re
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ssrl.errors import UserError
from ssrl.retrieval.store import built
from ssrl.types import Document


class Corpus:
    """Passages by number. Two processes share the pages of the file; threads may read at the same time.

    `content` is the fingerprint of the file, `empty` counts lines left out because their passage has no text, `duplicates` the passages whose
    id an earlier one had; these stay.
    """

    def __init__(self, path: Path, content: str, spans: np.ndarray, empty: int, duplicates: int) -> None:
        self.path, self.content, self.empty, self.duplicates = path, content, empty, duplicates
        self._spans = spans  # [N, 2] first byte of a line, and the byte behind it
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> Document:
        start, end = self._spans[index]
        try:
            return parse(self._bytes[start:end])
        except ValueError as error:
            raise UserError(
                f"{self.path} has changed since its passages were counted ({error}): delete the retriever.index folder"
            ) from error

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))

    def documents(self, indices: np.ndarray, scores: np.ndarray) -> tuple[Document, ...]:
        """The passages of these numbers, each with its score."""
        return tuple(replace(self[int(index)], score=float(score)) for index, score in zip(indices, scores, strict=True))


def open_corpus(path: str | Path, content: str, index: str | Path | None = None) -> Corpus:
    """The corpus in a file; its lines are counted on the first opening and kept in the folder `index` (None: the user's cache folder).

    `content` is the file's fingerprint (`ssrl.data.fingerprint`), by which everything built from it is keyed.

    Raises:
        UserError: the file is missing, holds no passage, or a line is no passage; it names the line.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"corpus {path} {'is a folder' if file.is_dir() else 'does not exist'}: name a .jsonl file with retriever.corpus=…")
    folder = built(index, "passages", {"corpus": content, "format": 1}, lambda folder: _scan(file, folder))
    counts = json.loads((folder / "counts.json").read_text())
    return Corpus(file, content, np.load(folder / "spans.npy", mmap_mode="r"), counts["empty"], counts["duplicates"])


def _scan(file: Path, folder: Path) -> None:
    spans, ids, empty, position = array("q"), array("q"), 0, 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            start, position = position, position + len(line)
            if not line.strip():
                continue
            try:
                document = parse(line)
            except ValueError as error:
                raise UserError(
                    f"{file} line {number} is no passage: {error}; expected {{id, title, contents}} or {{id, contents}}"
                ) from error
            if document.text:
                spans.extend((start, position))
                ids.append(hash(document.id))
            else:
                empty += 1
    if not spans:
        raise UserError(f"{file} holds no passage with text: name another file with retriever.corpus=…")
    duplicates = len(ids) - len(np.unique(np.frombuffer(ids, dtype=np.int64)))
    np.save(folder / "spans.npy", np.frombuffer(spans, dtype=np.int64).reshape(-1, 2))
    (folder / "counts.json").write_text(json.dumps({"empty": empty, "duplicates": duplicates}))


def parse(line: bytes) -> Document:
    """One line of a corpus as a document. ValueError: it is not a passage; the message says why."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError(f"{type(row).__name__} found where an object should be")
    for name, kinds in (("id", (str, int)), ("contents", str), ("title", str)):
        if not isinstance(row.get(name, "" if name == "title" else None), kinds):
            raise ValueError(f"{name} is {'missing' if name not in row else type(row[name]).__name__}")
    text, title = _encodable(row["contents"]), _encodable(row.get("title", "")).strip()
    head, newline, rest = text.partition("\n")
    if newline and re.fullmatch('".+"', head.strip()):
        title, text = title or head.strip()[1:-1].strip(), rest
    return Document(id=str(row["id"]), title=title, text=text.strip())


def contents(document: Document) -> str:
    """Title and text as an encoder reads them: `titled` where there is a title, else the text alone."""
    return titled(document) if document.title else document.text


def titled(document: Document) -> str:
    """The form of the Search-R1 corpora and API: the quoted title, a newline, the text (FACTS 3.4). The title stays on its line, and is
    there even where it is empty, because clients take the first line for it."""
    return f'"{" ".join(document.title.split())}"\n{document.text}'


def _encodable(text: str) -> str:
    """JSON can spell half a surrogate pair, which no UTF-8 output and no tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
