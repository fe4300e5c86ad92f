"""The Lightning data module: each step's questions, shared out over the processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lightning as L
import torch
from torch.utils.data import DataLoader, IterableDataset

from ssrl.data.order import Draw, QuestionStream
from ssrl.training import ranks
from ssrl.types import Question


class QuestionBatches(IterableDataset):
    """`steps` batches of `size` questions from the stream's cursor on; a process gets every world-size-th question of each."""

    def __init__(self, questions: Sequence[Question], seed: int, cursor: int, steps: int, size: int) -> None:
        self.questions, self.seed, self.cursor, self.steps, self.size = questions, seed, cursor, steps, size

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[Draw]]:
        stream = QuestionStream(self.questions, self.seed, self.cursor)
        for _ in range(self.steps):
            yield share(stream, self.size)


def share(stream: QuestionStream, size: int) -> list[Draw]:
    """This process's part of the stream's next `size` questions."""
    return stream.take(size)[ranks.rank() :: ranks.world_size()]


class QuestionData(L.LightningDataModule):
    """Training questions. Where it begins is read from the module, which knows what a checkpoint had done."""

    def __init__(self, questions: Sequence[Question], *, seed: int, steps: int, size: int) -> None:
        super().__init__()
        self.questions, self.seed, self.steps, self.size = questions, seed, steps, size
        self._stream = QuestionStream(questions, seed)  # for `share`; it remembers the order of an epoch

    def train_dataloader(self) -> DataLoader:
        module = self.trainer.lightning_module
        remaining = max(self.steps - module.steps_done, 0)
        batches = QuestionBatches(self.questions, self.seed, module.cursor, remaining, self.size)
        return DataLoader(batches, batch_size=None, generator=torch.Generator())  # else it draws from the global one, once a resume

    def share(self, cursor: int) -> list[Draw]:
        """This process's part of the batch that begins at `cursor`."""
        self._stream.cursor = cursor
        return share(self._stream, self.size)
