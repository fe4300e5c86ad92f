"""The real engines in the loop, over a shelf of texts and an echo, with a scripted policy."""

import math

import pytest

from ssrl.engines.curriculum import Noise
from ssrl.engines.documents import Wrapper
from ssrl.engines.entropy import EntropyGuided
from ssrl.engines.real import FullReal, Sim2Real
from ssrl.engines.semireal import SemiReal
from ssrl.rewards.score import Reward
from ssrl.rollout.loop import EpisodeLoop, Limits, Task
from ssrl.rollout.render import Renderer
from ssrl.types import Question, Sampling, Source, Status
from tests.engines.parts import Echo, Shelf, Watcher
from tests.rollout.scripted import Scripted

SHELF = {"a": ["A"], "b": ["B"], "c": ["C"]}
WRAPPER = Wrapper(before="<information>", after="</information>", style="raw")


def play(tiny, engine, scripts, sampler=None):
    renderer = Renderer(tokenizer=tiny.tokenizer, template="Q: {question}\n", chat=False)
    questions = {key: Question(id=key, text=key, answers=(f"gold {key}", "alias")) for key in scripts}
    tasks = [Task(question=q, group=key, sample=0, prompt_ids=renderer.prompt_ids(q), seed_parts=(key,)) for key, q in questions.items()]
    limits = Limits(context=4096, response=2000, turn=None, information=100)
    sampler = sampler or Scripted(tiny.tokenizer, scripts)
    return EpisodeLoop(sampler, engine, renderer, limits, stop_at_answer=False).run(tasks, Sampling(), run_seed=0, step=3)


def rows(rollout):
    """The response as (source, trained, text) runs; all tokens of the tiny model are bytes."""
    runs = []
    for segment in rollout.segments:
        size = len(segment.text)
        start = sum(len(text) for _, _, text in runs)
        for k in range(size):
            key = (segment.source.name[0], rollout.trained[start + k])
            if runs and runs[-1][:2] == key:
                runs[-1] = (*key, runs[-1][2] + segment.text[k])
            else:
                runs.append((*key, segment.text[k]))
    return runs


def test_full_real_token_by_token(tiny):
    (rollout,) = play(tiny, FullReal(Shelf(SHELF), Watcher(), WRAPPER), {"x": ["<think>need</think><search>a</search>", "<answer>Paris</answer>"]})
    assert rows(rollout)[:3] == [
        ("P", True, "<think>need</think><search>a</search>"), ("E", False, "<information>A</information>"), ("P", True, "<answer>Paris</answer>"),
    ]  # fmt: skip


def test_sim2real_with_k_1_token_by_token(tiny):
    shelf = Shelf(SHELF)
    scripts = {"x": ["<search>a</search>", "<search>b</search><information>own</information><search>c</search><answer>Paris</answer>"]}
    (rollout,) = play(tiny, Sim2Real(shelf, Watcher(), WRAPPER, k=1), scripts)
    assert rows(rollout) == [
        ("P", True, "<search>a</search>"), ("E", False, "<information>A</information>"), ("P", True, "<search>b</search>"),
        ("P", False, "<information>own</information>"), ("P", True, "<search>c</search><answer>Paris</answer>"),
    ]  # fmt: skip
    assert shelf.asked == [(["a"], 3)] and rollout.status is Status.ANSWERED
    assert [(s.query, s.result is None) for s in rollout.searches] == [("a", False), ("b", True), ("c", True)]


def test_sim2real_all_answers_every_search(tiny):
    shelf = Shelf(SHELF)
    scripts = {"x": [f"<search>{q}</search>" for q in "abcabcabc"] + ["<answer>1</answer>"]}
    (rollout,) = play(tiny, Sim2Real(shelf, Watcher(), WRAPPER, k=None), scripts)
    assert len(shelf.asked) == 9 and all(search.result for search in rollout.searches)


def test_the_simulator_hears_of_each_rows_own_question_when_another_row_has_finished(tiny):
    chat = Echo()
    engine = SemiReal(chat, Watcher(), WRAPPER, Noise(), prompt="tuned")
    scripts = {
        "x": ["<answer>1</answer>"],
        "y": ["<search>qy</search>", "<search>qy2</search>", "<answer>1</answer>"],
        "z": ["<think>a", "<search>q</search>"],
        "w": ["<search>qw</search>", "<answer>1</answer>"],
    }
    rollouts = play(tiny, engine, scripts)
    told = [asked.text for asked in chat.asked]
    assert [[key for key in scripts if f'"{key}" whose answer is gold {key}.' in text] for text in told] == [["y"], ["w"], ["y"]]
    assert all(f"Query: {query}\n" in text for query, text in zip(("qy", "qw", "qy2"), told, strict=True))
    assert [r.status for r in rollouts] == [Status.ANSWERED, Status.ANSWERED, Status.ENDED, Status.ANSWERED]
    assert "alias" not in "".join(told)


class Unsure(Scripted):
    """The scripted policy, less sure of a query the more often it says u in it."""

    def generate(self, requests):
        done = super().generate(requests)
        for request, completion in zip(requests, done, strict=True):
            assert request.entropy == 0 or completion.entropies is None
            if completion.entropies is not None:
                u = self.tokenizer("u").input_ids[0]
                object.__setattr__(completion, "entropies", tuple(float(token == u) for token in completion.ids))
        return done


def test_entropy_guided_search_takes_both_branches(tiny):
    shelf = Shelf({"start": ["S"], "sure": ["never"], "uuuu": ["U"]})
    engine = EntropyGuided(shelf, Watcher(), WRAPPER, max_turns=3)
    own = "<information>own</information>"
    scripts = {"x": ["<search>start</search>", "<search>start</search>", own + "<search>uuuu</search>", f"<search>start</search>{own}<answer>1</answer>"]}
    (rollout,) = play(tiny, engine, scripts, Unsure(tiny.tokenizer, scripts))
    assert [s.result and s.result.documents[0].text for s in rollout.searches] == ["S", None, "U", None]  # no rise, a rise, out of turns
    assert shelf.asked == [(["start"], 3), (["uuuu"], 3)] and rollout.status is Status.ANSWERED
    assert not any(t and s is Source.ENGINE for t, s in zip(rollout.trained, rollout.sources, strict=True))
    assert all(math.isnan(p) == (s is Source.ENGINE) for p, s in zip(rollout.logprobs, rollout.sources, strict=True))


@pytest.mark.parametrize(("engine", "score"), [(FullReal, 0.0), (Sim2Real, 2 / 3), (EntropyGuided, 2 / 3)])
def test_an_information_tag_of_the_policys_own_breaks_the_format_where_the_engine_always_answers(tiny, engine, score):
    engine = engine(Shelf(SHELF), Watcher(), WRAPPER)
    reward = Reward("em", "ssrl", 0.9, 0.1, engine_answers=engine.answers and not engine.may_decline)
    search = "<think>t</think><search>a</search>"
    (rollout,) = play(tiny, engine, {"x": [search, "<think>t</think></information><think>t</think><answer>1</answer>"]})
    assert reward(rollout).parts["format"] == pytest.approx(score)  # the published score tolerates the stray tag: 3 thinks to 1 search
    (proper,) = play(tiny, engine, {"x": [search, "<think>t</think><answer>1</answer>"]})
    assert reward(proper).parts["format"] == 1.0
