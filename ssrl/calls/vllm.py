"""Servers of vLLM that sample from a policy in training: sequences go to them by ids, new weights by a folder that they read.

They need vLLM's endpoints for tokens (`--enable-scale-out`) and for training (VLLM_SERVER_DEV_MODE=1); `VllmServers.command` starts one.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ssrl.calls.caller import Caller, CallFailed, Limits
from ssrl.calls.http import Http
from ssrl.calls.urls import Urls, shown
from ssrl.errors import UserError

_LARGEST_ANSWER = 256 * 2**20  # bytes: a long completion with the most likely tokens of each place


class VllmServers:
    """All `urls` serve one run and hold the same weights. `model`: folder or hub id that they were started with, `dtype` and `context` too."""

    def __init__(self, urls: Sequence[str], *, model: str, dtype: str, context: int, batch: int, timeout_s: float) -> None:
        self.urls = Urls(urls, key="rollout.urls", example="http://127.0.0.1:8000").all
        self._settings = {"model": model, "dtype": dtype, "max-model-len": str(context), "max-num-seqs": str(batch)}
        self._http = Http(max_bytes=_LARGEST_ANSWER)
        self._caller = Caller(Limits(timeout_s=timeout_s, retries=2, backoff_s=0.5, concurrency=batch * len(self.urls), section="rollout"))

    def command(self, url: str) -> str:
        """What starts the server of an address, to be typed on its machine."""
        settings = " ".join(f"--{name} {shlex.quote(value)}" for name, value in self._settings.items())
        return (
            f"VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server {settings} --host {urlsplit(url).hostname} "
            f"--port {urlsplit(url).port or 80} --enable-scale-out --load-format dummy --hf-overrides '{{\"tie_word_embeddings\": false}}' "
            "--logprobs-mode processed_logprobs --max-logprobs -1 --generation-config vllm"
        )

    def load(self, folder: str, version: str) -> None:
        """Let every server read the weights in `folder`, drop its cached prefixes and call itself `version`.

        Raises:
            UserError: one of them did not; it says which and how to start it.
        """
        self._each([(url, partial(self._load, url, folder, version)) for url in self.urls])

    def generate(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The one choice of each answer to `POST /inference/v1/generate`, in order.

        Sequences that begin alike go to one server, where what they share is computed once: in sorted order each gets an equal stretch.

        Raises:
            UserError: a server failed; it says which and how to start it.
        """
        order = sorted(range(len(bodies)), key=lambda i: bodies[i]["token_ids"])
        of = {i: self.urls[place * len(self.urls) // len(order)] for place, i in enumerate(order)}
        return self._each([(of[i], partial(self._continue, of[i], body)) for i, body in enumerate(bodies)])

    def _each(self, calls: Sequence[tuple[str, Callable[[float], Any]]]) -> list[Any]:
        outcomes = self._caller.run([attempt for _, attempt in calls])
        for (url, _), outcome in zip(calls, outcomes, strict=True):
            if outcome.status.failed:
                raise UserError(
                    f"the vLLM server at {shown(url)} failed: {outcome.error}. Start it on its machine, then repeat the command: {self.command(url)}"
                )
        return [outcome.value for outcome in outcomes]

    def _continue(self, url: str, body: dict[str, Any], left_s: float) -> dict[str, Any]:
        answer = self._http.post(f"{url}/inference/v1/generate", body, timeout_s=left_s)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or len(choices) != 1:
            raise CallFailed(f"POST {shown(url)}/inference/v1/generate answered without exactly one choice, as vLLM 0.32 has it")
        return choices[0]

    def _load(self, url: str, folder: str, version: str, left_s: float) -> bool:
        ask = partial(self._http.post, timeout_s=left_s)
        ask(f"{url}/pause?mode=abort", {})
        # a server that started without weights would otherwise refuse to read any
        ask(f"{url}/collective_rpc", {"method": "update_config", "kwargs": {"overrides": {"load_config": {"load_format": "auto"}}}})
        ask(f"{url}/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
        if ask(f"{url}/reset_prefix_cache", {}) != {"success": True}:
            raise CallFailed(f"{shown(url)} did not drop its prefix cache")
        ask(f"{url}/update_weight_version", {"new_version": version})
        ask(f"{url}/resume", {})
        named = self._http.get(f"{url}/weight_info", timeout_s=left_s)
        if named != {"weight_version": version}:
            raise CallFailed(f"{shown(url)} names its weights {named}, expected {version}")
        return True
