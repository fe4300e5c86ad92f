"""`task=ask`: one question, the rollout written in colours as it is sampled."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from ssrl.config import Config
from ssrl.rollout.label import label
from ssrl.tasks.build import build_agent, build_trained, ping
from ssrl.tasks.checkpoint import with_run_config
from ssrl.tasks.engines import evaluation
from ssrl.training.agent import Agent
from ssrl.types import Block, Question, Sampling, Source

STYLES = {Block.OUTSIDE: "", Block.THINK: "bright_black", Block.SEARCH: "blue", Block.INFORMATION: "yellow", Block.ANSWER: "bold green"}
_LONGEST_TAG = len("</information>")


def main(config: Config, overrides: list[str]) -> None:
    """Ask greedily. The colours: think grey, search blue, information yellow, answer green."""
    config = with_run_config(config, overrides)
    console = Console()
    agent = build_agent(evaluation(config), build_trained(config))
    ping(agent)
    writer = Writer(console, agent)
    agent.sampler.listener, agent.loop.listener = writer.token, writer.documents
    question = Question(id="asked", text=config.question, answers=("unknown",))
    rollout = agent.rollouts(
        [question], [("ask",)], n=1, run_seed=config.seed, step=0, sampling=Sampling(temperature=config.eval.temperature))[0]  # fmt: skip
    writer.finish()
    console.print(f"answer: [bold]{escape(rollout.score.answer or 'none')}[/bold]; {len(rollout.searches)} searches, {len(rollout.ids)} tokens, {rollout.status}")


class Writer:
    """Prints tokens as they come. Text that may still become a tag is held back until it is clear, so that tags are coloured whole."""

    def __init__(self, console: Console, agent: Agent) -> None:
        self.console, self.agent = console, agent
        self.ids = list(agent.loop.renderer.prefill_ids())
        self.sources = [Source.POLICY] * len(self.ids)
        self.shown = 0  # bytes printed

    def token(self, index: int, token: int) -> None:
        self.ids.append(token)
        self.sources.append(Source.POLICY)
        self._write(final=False)

    def documents(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.sources += [Source.ENGINE] * len(ids)
        self._write(final=False)

    def finish(self) -> None:
        self._write(final=True)
        self.console.print()

    def _write(self, *, final: bool) -> None:
        pieces = self.agent.loop.token_text.pieces(self.ids)
        raw = b"".join(pieces)
        opening = raw.rfind(b"<")
        held = not final and opening >= self.shown and b">" not in raw[opening:] and len(raw) - opening < _LONGEST_TAG
        end = opening if held else len(raw)
        blocks, _ = label(pieces, self.sources, "tokens")
        style_of = [STYLES[block] for piece, block in zip(pieces, blocks, strict=True) for _ in piece]
        while self.shown < end:
            style = style_of[self.shown]
            stop = next((i for i in range(self.shown, end) if style_of[i] != style), end)
            try:
                text = raw[self.shown : stop].decode()
            except UnicodeDecodeError:
                if not final:
                    return  # the rest of a character is still to come
                text = raw[self.shown : stop].decode(errors="replace")
            self.console.print(Text(text, style=style), end="", soft_wrap=True)
            self.shown = stop
