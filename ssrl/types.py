"""The glossary of the package: what a question, a search and a rollout are, and the three protocols that meet in the episode loop.

Lists and numbers only, no tensors: every room of the package may import this module, and it imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol


class Source(IntEnum):
    """Who wrote a response token."""

    POLICY = 0
    ENGINE = 1
    TEMPLATE = 2


class Block(IntEnum):
    """The block of the grammar that a response token belongs to; a tag's tokens belong to the block that they open or close."""

    OUTSIDE = 0
    THINK = 1
    SEARCH = 2
    INFORMATION = 3
    ANSWER = 4


class Status(StrEnum):
    """How a rollout ended."""

    ANSWERED = "answered"  # its text closes an answer block outside of think
    ENDED = "ended"  # the policy stopped by itself without an answer
    TRUNCATED = "truncated"  # a token budget or the context ran out
    OUT_OF_TURNS = "out_of_turns"  # it wrote one more search than the engine answers
    FAILED = "failed"  # an engine call failed: kept out of the loss by default


class SearchStatus(StrEnum):
    """How an outside call ended."""

    OK = "ok"
    EMPTY = "empty"  # answered, with no document
    TIMEOUT = "timeout"
    ERROR = "error"

    @property
    def failed(self) -> bool:
        return self in (SearchStatus.TIMEOUT, SearchStatus.ERROR)


class Finish(StrEnum):
    """Why one generation stopped, as the sampler reports it (never recomputed from token values)."""

    STOP = "stop"  # a stop string; the tokens end with the shortest prefix that holds it
    EOS = "eos"  # an end token, which is part of the tokens
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question with all answers that count as right."""

    id: str  # unique in its set
    text: str
    answers: tuple[str, ...]  # never empty
    source: str = ""  # name of its set, e.g. "bundled" or "nq"
    extra: dict[str, object] = field(default_factory=dict)  # other columns of the row, passed through to rewards and pages

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError(f"question {self.id!r} has no text")
        if not self.answers or any(not isinstance(answer, str) or not answer.strip() for answer in self.answers):
            raise ValueError(f"question {self.id!r} has no usable answer: {self.answers!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One passage that an engine returned."""

    text: str
    title: str = ""
    id: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """How sure the policy was of the tokens of one query."""

    logprobs: tuple[float, ...]  # [Q] of the sampled tokens, by the sampler, at the sampling temperature
    entropies: tuple[float, ...] | None = None  # [Q] nats, of the kind that the engine asked for; None where it asked for none


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCall:
    """A search that the policy has just written. It carries its own question, so a batch of calls can never be paired with others' answers."""

    query: str
    question: Question
    group: str  # the rollout's group and sample: together they name the rollout
    sample: int
    index: int  # how many searches this rollout had written before
    turn: int  # how many generations this rollout had had before, invalid ones included
    step: int  # training step, for a curriculum
    seed: int  # for every random choice that the answer may depend on
    queries: tuple[Uncertainty, ...] = ()  # of every query of this rollout so far, this one last


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What came back from one call."""

    status: SearchStatus
    documents: tuple[Document, ...] = ()
    latency_s: float = 0.0
    cached: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One search of a rollout. `result` is None where the policy wrote the information itself."""

    query: str
    result: SearchResult | None = None
    truncated: bool = False  # the documents were cut by the token budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of response text with one source."""

    source: Source
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The reward of one rollout and the parts that it is made of."""

    total: float  # NaN where there was nothing to judge by: rollouts that were to label their question and gave it no label
    parts: dict[str, float]  # by exact name: em, cover_em, f1, format, …
    answer: str | None  # the extracted answer, None where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A prompt and the response tokens that followed it, T of them, each with its source, block, turn and two flags.

    `sampled` (source = policy) and `trained` (enters the loss) are never confused. By default trained = sampled and not inside
    `<information>…</information>`, tags included; a token that overlaps the span is inside. With one word a token:

    full-sim, the policy writes everything after the prefilled tag:

        text      <think> need  <search> capital </search> <information> Paris </information> <answer> Paris </answer>
        source    templ.  pol.  policy   policy  policy    policy        policy policy        policy   policy policy
        block     think   think search   search  search    information   inform. information   answer   answer answer
        sampled   -       x     x        x       x         x             x      x             x        x      x
        trained   -       x     x        x       x         -             -      -             x        x      x

    full-real, the engine writes the information (turn 0 ends with </search>, turn 1 begins after the documents):

        text      <think> need  <search> capital </search> <information> Paris </information> <answer> Paris </answer>
        source    templ.  pol.  policy   policy  policy    engine        engine engine        policy   policy policy
        turn      0       0     0        0       0         0             0      0             1        1      1
        sampled   -       x     x        x       x         -             -      -             x        x      x
        trained   -       x     x        x       x         -             -      -             x        x      x

    Sim2Real with K = 1, the first search answered by the engine and the second by the policy itself:

        text      <search> a    </search> <information> A   </information> <search> b    </search> <information> B   </information> …
        source    policy   pol. policy    engine        en. engine         policy   pol. policy    policy        po. policy
        sampled   x        x    x         -             -   -              x        x    x         x             x   x
        trained   x        x    x         -             -   -              x        x    x         -             -   -
    """

    question: Question
    group: str  # rollouts of one prompt in one batch share it; unique per batch even where a question occurs twice
    sample: int  # index in the group
    prompt_ids: tuple[int, ...]  # [P]
    ids: tuple[int, ...]  # [T] exactly the tokens that were sampled, inserted or prefilled; never re-encoded
    sources: tuple[Source, ...]  # [T]
    blocks: tuple[Block, ...]  # [T]
    turns: tuple[int, ...]  # [T]
    logprobs: tuple[float, ...]  # [T] the sampler's, at the sampling temperature before any truncation; NaN where not sampled
    trained: tuple[bool, ...]  # [T]
    segments: tuple[Segment, ...]  # the response's text by source, special tokens left out
    status: Status
    searches: tuple[Search, ...] = ()
    score: Score | None = None

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("ids", "sources", "blocks", "turns", "logprobs", "trained")}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"a rollout's per-token fields must have one length, found {lengths}")
        if not self.prompt_ids:
            raise ValueError("a rollout needs a prompt of at least one token")

    @property
    def sampled(self) -> tuple[bool, ...]:
        """[T] True where the policy wrote the token."""
        return tuple(source is Source.POLICY for source in self.sources)

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy, and log-probabilities are then those at temperature 1."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: off


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to continue."""

    prompt_ids: tuple[int, ...]  # everything so far, response tokens included
    max_new_tokens: int  # at least 1
    seed: int
    sampling: Sampling
    stop: tuple[str, ...] = ()
    entropy: int | None = None  # None: not wanted; 0: over the full vocabulary; k: over the k most likely tokens, renormalised


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the sampler wrote for one request."""

    ids: tuple[int, ...]  # [N] new tokens, an end token included
    logprobs: tuple[float, ...]  # [N] at the sampling temperature, before top-p and top-k
    finish: Finish
    entropies: tuple[float, ...] | None = None  # [N] nats, of the kind that was asked for, at the sampling temperature

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logprobs) or (self.entropies is not None and len(self.entropies) != len(self.ids)):
            raise ValueError("a sampler must return one log-probability (and entropy) a token")


class Sampler(Protocol):
    """Continues sequences with the current policy. Results come in the order of the requests and depend on no other request of the batch."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]: ...

    def publish(self) -> None:
        """Take over the policy's weights as they are now, and drop every cache that depends on them."""
        ...

    def rest(self) -> None:
        """Nothing is generated before the next `publish`: give back memory that the update can use."""
        ...


class Engine(Protocol):
    """Answers one question: this search has just been written; do you answer it? Declining (None) lets the policy write the information itself."""

    name: str
    identity: dict[str, str]  # what its answers depend on (corpus, index, model, top-k), for manifests and tables
    answers: bool  # False: it always declines, so one generation without a stop string at </search> is the whole rollout
    may_decline: bool  # True: information that the policy writes itself is no violation, and after the last turn it goes on by itself
    max_turns: int  # generations that may end in an answered search; then comes one final generation
    count_invalid: bool  # whether a generation that ended in neither a search nor an answer uses up a turn
    retry_message: str  # put behind such a generation, so that the policy tries again; empty: the rollout ends there
    entropy: int | None  # the kind of entropy that calls carry, see `Request.entropy`
    wrapper: tuple[str, str]  # text before and after the documents, tags included

    def search(self, calls: Sequence[SearchCall]) -> list[SearchResult | None]:
        """One result a call, in order; None declines. Failures come back as results, never as exceptions.

        Raises:
            UserError: too many calls have failed; it says how to start what answers them.
        """
        ...

    def render(self, result: SearchResult) -> str:
        """The documents as text, without the wrapper; cut by the loop's token budget inside the wrapper."""
        ...

    def figures(self, step: int) -> dict[str, float]:
        """What to log of a training step, by full metric name: the state of a curriculum."""
        ...

    def ping(self) -> float:
        """Ask once before anything starts; seconds that the answer took (0 where nothing outside is asked).

        Raises:
            UserError: nobody answers; it says how to start who should.
        """
        ...


class Retriever(Protocol):
    """Documents for queries, with a stable identity that caches and manifests can key on."""

    identity: str
    hint: str  # how to start or repair it, for errors: a command to type or a variable to set

    def retrieve(self, queries: Sequence[str], topk: int) -> list[SearchResult]:
        """One result a query, in order, of at most `topk` documents, the best first. Failures are results."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One message to a language model that plays a part, such as a search engine."""

    text: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What it wrote, or how the call failed."""

    status: SearchStatus
    text: str = ""
    latency_s: float = 0.0
    cached: bool = False
    error: str = ""


class Chat(Protocol):
    """A language model behind a chat template, with frozen weights: never the live policy."""

    identity: str  # model, temperature and length of its replies
    hint: str  # how to start or repair it, for errors

    def reply(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply a request, in order. Failures are replies."""
        ...


def seed_for(run_seed: int, purpose: str, *parts: object) -> int:
    """A 63-bit seed for one random choice: hash(run seed, purpose, step, question, sample, turn, …).

    No two choices share a stream, so the order of threads, the composition of batches and a resume change nothing.
    """
    text = "\x1f".join([str(run_seed), purpose, *map(str, parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
