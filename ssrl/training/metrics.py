"""Figures of a set of scored rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, isnan
from statistics import fmean

from ssrl.types import Rollout, Source, Status

PARTS = ("em", "cover_em", "f1", "format", "searches")


def rollout_metrics(rollouts: Sequence[Rollout], prefix: str) -> dict[str, float]:
    """Means over rollouts: reward (of those that were judged), its parts, lengths in tokens, and how responses ended.

    response_tokens: without what an engine wrote; document_tokens: what it wrote, wrappers included. A metric without a value is absent.
    """
    if not rollouts:
        return {}
    judged = [r.score.total for r in rollouts if not isnan(r.score.total)]
    found = {"reward": fmean(judged)} if judged else {}
    found |= {part: fmean(r.score.parts[part] for r in rollouts) for part in PARTS}
    documents = [sum(source is Source.ENGINE for source in r.sources) for r in rollouts]
    found["response_tokens"] = fmean(len(r.ids) - read for r, read in zip(rollouts, documents, strict=True))
    if any(documents):
        found["document_tokens"] = fmean(documents)
    found["truncated"] = fmean(r.status is Status.TRUNCATED for r in rollouts)
    found["answered"] = fmean(r.score.answer is not None for r in rollouts)
    searching = [r.score.parts["em"] for r in rollouts if r.score.parts["searches"] > 0]
    if searching:
        found["em_with_search"] = fmean(searching)
    silent = [r.score.parts["em"] for r in rollouts if not r.score.parts["searches"]]
    if silent:
        found["em_without_search"] = fmean(silent)
    return {f"{prefix}/{name}": value for name, value in found.items()}


def engine_metrics(rollouts: Sequence[Rollout], prefix: str) -> dict[str, float]:
    """What was asked outside of the policy; empty where nothing was.

    calls and cached: counts; error_frac: failed calls, of all; latency_p50, latency_p95: seconds, of calls that were not cached;
    truncated_frac: answers that the token budget cut; real_searches: answered searches a rollout; saved_frac: searches that the engine
    left to the policy, of all (against an engine that answers all of them).
    """
    # the last search of a rollout that ran out of turns was not made, and nobody wrote information for it
    searches = [s for r in rollouts for s in (r.searches[:-1] if r.status is Status.OUT_OF_TURNS else r.searches)]
    asked = [s for s in searches if s.result is not None]
    if not asked:
        return {}
    results = [s.result for s in asked]
    found = {
        "calls": float(len(asked)),
        "cached": float(sum(result.cached for result in results)),
        "error_frac": fmean(result.status.failed for result in results),
        "truncated_frac": fmean(s.truncated for s in asked),
        "real_searches": sum(not result.status.failed for result in results) / len(rollouts),
        "saved_frac": 1 - len(asked) / len(searches),
    }
    latencies = sorted(result.latency_s for result in results if not result.cached)
    if latencies:
        found |= {"latency_p50": percentile(latencies, 0.5), "latency_p95": percentile(latencies, 0.95)}
    return {f"{prefix}/{name}": value for name, value in found.items()}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of sorted values: the smallest that at least `share` of them do not exceed."""
    return ordered[max(ceil(share * len(ordered)), 1) - 1]


def group_metrics(rollouts: Sequence[Rollout], prefix: str) -> dict[str, float]:
    """Sizes of the groups, and the share whose rewards are all equal: they carry no signal."""
    if not rollouts:
        return {}
    groups: dict[str, list[float]] = {}
    for r in rollouts:
        groups.setdefault(r.group, []).append(r.score.total)
    sizes = [len(rewards) for rewards in groups.values()]
    return {
        f"{prefix}/group_size_min": float(min(sizes)),
        f"{prefix}/group_size_max": float(max(sizes)),
        f"{prefix}/zero_std_frac": fmean(max(rewards) - min(rewards) < 1e-9 for rewards in groups.values()),
    }


def means(results: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of every metric over those results that have it: a mini-batch without a signal, or with a bad gradient, lacks some."""
    names = dict.fromkeys(name for result in results for name in result)
    return {name: fmean(result[name] for result in results if name in result) for name in names}
