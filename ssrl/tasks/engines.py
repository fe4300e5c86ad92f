"""Who answers a search, from the configuration: retrievers, simulators and the engines that ask them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ssrl.calls.cache import Cache
from ssrl.calls.caller import Caller, Limits
from ssrl.calls.health import Health
from ssrl.calls.openai import OpenAIChat
from ssrl.config import INDEXED, CallsConfig, Config, RetrieverConfig, SimulatorConfig, WrapperConfig
from ssrl.data.fingerprint import fingerprint
from ssrl.data.sources import bundled_file
from ssrl.engines.curriculum import Noise
from ssrl.engines.documents import Wrapper
from ssrl.engines.entropy import EntropyGuided
from ssrl.engines.fullsim import FullSim
from ssrl.engines.none import NoEngine
from ssrl.engines.real import FullReal, Sim2Real
from ssrl.engines.semireal import SemiReal
from ssrl.retrieval.bm25 import Bm25
from ssrl.retrieval.cached import CachedRetriever
from ssrl.retrieval.corpus import open_corpus
from ssrl.retrieval.dense import Dense, Encoder
from ssrl.retrieval.http import HttpRetriever
from ssrl.retrieval.rerank import Rerank
from ssrl.retrieval.web import SearxNG, SerpApi, Serper
from ssrl.types import Chat, Engine, Retriever


def evaluation(config: Config) -> Config:
    """The configuration with the engine and the retriever of evaluation in the place of those of training; itself where they are the same."""
    engine, retriever = config.eval.engine, config.eval.retriever
    if engine.name == "same" and retriever.name == "same":
        return config
    return replace(
        config,
        engine=config.engine if engine.name == "same" else engine,
        retriever=config.retriever if retriever.name == "same" else retriever,
    )


def build_engine(config: Config, device: str = "cpu") -> Engine:
    """Who answers the searches of `config.engine`, with what it asks behind it. `device`: where a simulator in this process lives.

    Raises:
        UserError: a corpus, an index, a model or a key that it needs is not there.
    """
    e, wrapper = config.engine, build_wrapper(config.wrapper)
    if e.name == "none":
        return NoEngine()
    if e.name == "fullsim":
        return FullSim()
    common: dict[str, Any] = {"topk": e.topk, "documents": e.documents, "retry_message": e.retry_message or ""}
    if e.name == "semireal":
        s = config.simulator
        chat = build_chat(s, config.calls, processes(config), device)
        noise = Noise(schedule=s.schedule, total=s.steps, base=s.base, start=s.start, end=s.end)
        return SemiReal(
            chat, health(config.calls, chat.hint), wrapper, noise, prompt=s.prompt, written=s.documents, max_turns=e.max_turns, **common)  # fmt: skip
    retriever = build_retriever(config.retriever, config.calls, processes(config))
    watch = health(config.calls, retriever.hint)
    if e.name == "fullreal":
        return FullReal(retriever, watch, wrapper, max_turns=e.max_turns, **common)
    if e.name == "sim2real":
        return Sim2Real(retriever, watch, wrapper, k=None if e.k == "all" else int(e.k), count=e.count, **common)
    return EntropyGuided(
        retriever, watch, wrapper, signal=e.signal, signal_topk=e.signal_topk, window=e.window, threshold=e.threshold,
        max_turns=e.max_turns, **common)  # fmt: skip


def build_retriever(r: RetrieverConfig, calls: CallsConfig, share: int = 1) -> Retriever:
    """`share`: processes that ask at the same time; each gets its part of `calls.rate`."""
    if r.name in INDEXED:
        return _indexed(r)
    caller = Caller(limits(calls, share))
    remote: Retriever
    if r.name == "http":
        remote = HttpRetriever(r.urls, caller)
    elif r.name == "searxng":
        remote = SearxNG(r.urls, caller)
    else:
        remote = {"serper": Serper, "serpapi": SerpApi}[r.name](caller)
    return CachedRetriever(remote, Cache(calls.cache, calls.cache_days)) if calls.cache else remote


def _indexed(r: RetrieverConfig) -> Retriever:
    corpus = open_corpus(bundled_file(r.corpus) or r.corpus, fingerprint(r.corpus), r.index)
    found: Retriever
    if r.name == "bm25":
        found = Bm25(corpus, r.index)
    else:
        encoder = Encoder(r.encoder, pooling=r.pooling, max_tokens=r.max_tokens, device=r.device)
        found = Dense(corpus, encoder, r.query_prefix, r.passage_prefix, search=r.search, index=r.index)
    return Rerank(found, r.rerank, candidates=r.rerank_from, device=r.device) if r.rerank else found


def build_chat(s: SimulatorConfig, calls: CallsConfig, share: int = 1, device: str = "cpu") -> Chat:
    """The language model that plays the engine."""
    if s.name == "openai":
        cache = Cache(calls.cache, calls.cache_days) if calls.cache and s.cache else None
        return OpenAIChat(s.urls, s.model, s.temperature, s.max_tokens, Caller(limits(calls, share)), cache=cache)
    from ssrl.policy.chat import LocalChat  # torch comes with it, which a server of BM25 does not need
    from ssrl.policy.hardware import sampler_dtype

    return LocalChat(s.model, temperature=s.temperature, max_tokens=s.max_tokens, device=device, dtype=sampler_dtype("auto", device.partition(":")[0]))


def build_wrapper(w: WrapperConfig) -> Wrapper:
    return Wrapper(before=w.before, after=w.after, style=w.style, clean=w.clean)


def limits(calls: CallsConfig, share: int) -> Limits:
    return Limits(
        timeout_s=calls.timeout_s, retries=calls.retries, backoff_s=calls.backoff_s, rate=calls.rate / share, concurrency=calls.concurrency)  # fmt: skip


def health(calls: CallsConfig, hint: str) -> Health:
    return Health(calls.max_error_frac, calls.window, hint)


def processes(config: Config) -> int:
    return config.trainer.devices * config.trainer.num_nodes
