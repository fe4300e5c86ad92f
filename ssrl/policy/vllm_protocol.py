"""What vLLM is asked for a request and what its answer means: the same for an engine in this process and for servers, and without either."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ssrl.errors import UserError
from ssrl.policy.stop import shortest_holding
from ssrl.types import Finish, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sequence to continue, in vLLM's words."""

    ids: tuple[int, ...]  # everything so far
    parameters: dict[str, Any]  # fields of vLLM's SamplingParams, fit for JSON
    seed: int  # of the request, also where vLLM is not to give it a generator of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What vLLM wrote for one job."""

    ids: tuple[int, ...]  # [N]
    logprobs: tuple[float, ...]  # [N] of the sampled tokens, as `--logprobs-mode processed_logprobs` gives them
    top: tuple[tuple[float, ...], ...]  # [N] those of the most likely tokens in any order, the sampled one among them
    finish: str  # vLLM's finish reason: stop, length, abort
    versions: tuple[str, ...]  # of the weights that wrote it: one, unless they changed meanwhile


class Backend(Protocol):
    """An engine, or several, that continue sequences with weights that they are given."""

    def generate(self, jobs: Sequence[Job], version: str) -> list[Written]:
        """One result a job, in order. `version`: of the weights that are meant, also the salt of every cached prefix."""
        ...

    def load(self, weights: Iterable[tuple[str, Tensor]], version: str) -> str:
        """Take these weights (Hugging Face names), drop every cached prefix, and from then on answer with the version that is returned."""
        ...

    def rest(self) -> None:
        """Give back memory until the next `load`, where the device can."""
        ...


def job(request: Request, end_ids: frozenset[int], *, vocabulary: int, seeded: bool) -> Job:
    """The request for vLLM. Each has one continuation: children of one request with n > 1 would be given consecutive seeds.

    End tokens are ours alone (`ignore_eos` and `stop_token_ids`), and a matched stop string stays in the text, so that all its ids are there.
    """
    s = request.sampling
    most_likely = min(request.entropy + 1, vocabulary) if request.entropy else 0  # vLLM may count the sampled token as one of them
    parameters: dict[str, Any] = {
        "temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k, "max_tokens": request.max_new_tokens, "logprobs": most_likely,
        "stop": list(request.stop), "include_stop_str_in_output": True, "detokenize": bool(request.stop), "skip_special_tokens": False,
        "spaces_between_special_tokens": False, "ignore_eos": True, "stop_token_ids": sorted(end_ids),
    }  # fmt: skip
    return Job(ids=request.prompt_ids, parameters=parameters | ({"seed": request.seed} if seeded else {}), seed=request.seed)


def ending(request: Request, written: Written, end_ids: frozenset[int], tokenizer: PreTrainedTokenizerBase) -> tuple[int, Finish]:
    """How many of the ids belong to the completion, and why it ends there: as the base sampler would have stopped.

    vLLM looks for stop strings in text that it decodes piece by piece; where it stopped at one that the ids as a whole do not hold, the
    completion ends there all the same, and the episode loop goes on behind it.

    Raises:
        UserError: vLLM's longest sequence is too short for the request, which it tells only by ending early.
    """
    end = next((i + 1 for i, token in enumerate(written.ids) if token in end_ids), None)
    held = shortest_holding(tokenizer, written.ids[:end], request.stop)
    if held is not None and (end is None or held < end):
        return held, Finish.STOP
    if end is not None:
        return end, Finish.EOS
    if len(written.ids) >= request.max_new_tokens:
        return len(written.ids), Finish.LENGTH
    if written.finish == "length":
        raise UserError(
            f"vLLM stopped after {len(written.ids)} of {request.max_new_tokens} tokens, where sequences end for it: start its server with "
            f"--max-model-len {len(request.prompt_ids) + request.max_new_tokens} or more"
        )
    if written.finish != "stop":
        raise RuntimeError(f"vLLM ended a request with finish reason {written.finish!r}, expected stop or length")
    return len(written.ids), Finish.STOP


def top_entropy(logprobs: Sequence[float], k: int) -> float:
    """Nats: the entropy of the k most likely tokens, renormalised."""
    top = sorted(logprobs, reverse=True)[:k]
    weights = [math.exp(x - top[0]) for x in top]
    total = sum(weights)
    return -sum(w / total * math.log(w / total) for w in weights if w > 0)
