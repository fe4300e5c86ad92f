"""Semi-real: another language model plays the search engine, useful or noisy by a curriculum. [ZeroSearch; FACTS 2]"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from ssrl.engines.answering import Answering, Watch
from ssrl.engines.curriculum import Noise
from ssrl.engines.documents import MAX_CHARS, Wrapper, keep, status_of, take_in
from ssrl.errors import UserError
from ssrl.text.simulator import PROMPTS, simulator_prompt, split_reply
from ssrl.types import Chat, ChatReply, ChatRequest, Document, SearchCall, SearchResult, seed_for


class SemiReal(Answering):
    """Every search is answered by a simulator with frozen weights. A call's own question and first accepted answer are what it is told.

    Args:
        noise: the probability that a reply is noisy, by training step; one draw a call, from the call's seed.
        prompt: `prompted` or `tuned`.
        written: documents that the simulator is asked to write; `topk` of them are kept.
    """

    name = "semireal"

    def __init__(
        self, chat: Chat, health: Watch, wrapper: Wrapper, noise: Noise, *, prompt: str = "prompted", written: int = 5,
        topk: int = 5, documents: str = "all", max_turns: int = 4, retry_message: str = "",
    ) -> None:  # fmt: skip
        super().__init__(health, wrapper, max_turns=max_turns, retry_message=retry_message)
        if prompt not in PROMPTS:
            raise UserError(f"simulator.prompt={prompt} is unknown; choose one of {', '.join(PROMPTS)}.")
        self.chat, self.noise, self.prompt, self.written, self.topk, self.documents = chat, noise, prompt, written, topk, documents

    @property
    def identity(self) -> dict[str, str]:
        return {
            "engine": self.name, "simulator": self.chat.identity, "prompt": self.prompt, "noise": str(self.noise), "written": str(self.written),
            "topk": str(self.topk), "max_turns": str(self.max_turns), "style": self._wrapper.style, "documents": self.documents,
        }  # fmt: skip

    def search(self, calls: Sequence[SearchCall]) -> list[SearchResult | None]:
        if not calls:
            return []
        replies = self.chat.reply([self.request(call) for call in calls])
        self.health.note(reply.status for reply in replies)
        return [keep(take_in(self._read(reply)), self.documents, call.seed) for call, reply in zip(calls, replies, strict=True)]

    def request(self, call: SearchCall) -> ChatRequest:
        noisy = random.Random(seed_for(call.seed, "noisy")).random() < self.noise(call.step)
        question = call.question
        text = simulator_prompt(self.prompt, call.query, question.text, question.answers[0], noisy=noisy, documents=self.written)
        return ChatRequest(text=text, seed=seed_for(call.seed, "reply"))

    def _read(self, reply: ChatReply) -> SearchResult:
        if reply.status.failed:
            return SearchResult(status=reply.status, latency_s=reply.latency_s, error=reply.error)
        documents = tuple(Document(text=text) for text in split_reply(reply.text[:MAX_CHARS], self.topk))
        return SearchResult(status=status_of(documents), documents=documents, latency_s=reply.latency_s, cached=reply.cached)

    def figures(self, step: int) -> dict[str, float]:
        return {"engine/noise": self.noise(step)}

    def ping(self) -> float:
        start = time.perf_counter()
        (reply,) = self.chat.reply([ChatRequest(text="Say yes.", seed=0)])
        if reply.status.failed:
            raise UserError(f"engine={self.name}: the simulator {self.chat.identity} does not answer ({reply.error or reply.status}); {self.chat.hint}")
        return time.perf_counter() - start
