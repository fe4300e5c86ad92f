"""Small retrievers, chats and watches, and calls for them."""

from dataclasses import dataclass, field

from ssrl.errors import UserError
from ssrl.types import ChatReply, Document, Question, SearchCall, SearchResult, SearchStatus, Uncertainty


@dataclass
class Shelf:
    """A retriever over a dict of texts; what is not in it fails or is empty."""

    texts: dict[str, list[str]]
    missing: SearchStatus = SearchStatus.EMPTY
    identity: str = "shelf of tests"
    hint: str = "build a shelf"
    asked: list = field(default_factory=list)

    def retrieve(self, queries, topk):
        self.asked.append((list(queries), topk))
        return [self._one(query, topk) for query in queries]

    def _one(self, query, topk):
        if query not in self.texts:
            return SearchResult(status=self.missing, error="not there")
        return SearchResult(status=SearchStatus.OK, documents=tuple(Document(text=t) for t in self.texts[query][:topk]), latency_s=0.5)


@dataclass
class Echo:
    """A chat that replies with what the test says, and keeps the requests."""

    answer: str = "Doc 1: one.\nDoc 2: two."
    status: SearchStatus = SearchStatus.OK
    identity: str = "echo"
    hint: str = "start an echo"
    asked: list = field(default_factory=list)

    def reply(self, requests):
        self.asked += requests
        return [ChatReply(status=self.status, text=self.answer, latency_s=0.25, error="refused" * self.status.failed) for _ in requests]


@dataclass
class Watcher:
    """Notes the statuses, and complains about more failures than it may take."""

    patience: int = 10**9
    batches: list = field(default_factory=list)

    def note(self, statuses):
        self.batches.append(list(statuses))
        if sum(status.failed for status in self.batches[-1]) > self.patience:
            raise UserError("too many failed; start the shelf")


def call(query="q", *, seed=1, step=1, queries=(), question="Who?", answers=("gold", "second"), name="1"):
    return SearchCall(
        query=query, question=Question(id=name, text=question, answers=answers), group=f"g{name}", sample=0, index=max(len(queries) - 1, 0),
        turn=0, step=step, seed=seed, queries=tuple(queries))  # fmt: skip


def sure(*logprobs, entropies=None):
    return Uncertainty(logprobs=tuple(logprobs), entropies=entropies)

