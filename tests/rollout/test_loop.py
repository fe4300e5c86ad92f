"""The episode loop with scripted policies, small engines of its own and the tiny model's real tokenizer and sampler."""

import pytest
import torch

from ssrl.engines.fullsim import FullSim
from ssrl.policy.sampler import TransformersSampler
from ssrl.rollout.loop import EpisodeLoop, Limits, Task
from ssrl.rollout.render import Renderer
from ssrl.text.format import ssrl_format
from ssrl.text.view import scoring_text, self_written_information
from ssrl.types import Block, Question, Sampling, SearchStatus, Source, Status
from tests.rollout.scripted import AFTER, BEFORE, END, Library, Scripted
from tests.rollout.test_tokens import merged_bpe


def question(name):
    return Question(id=name, text=name, answers=("42",))


@pytest.fixture
def play(tiny):
    """Rollouts of scripts {question: texts of its generations}, with the sampler and the engine that made them."""

    def run(scripts, engine=None, *, limits=None, stop_at_answer=False, mask="tokens", prefill="", thinking=None, template=None, run_seed=0,
            tokenizer=tiny.tokenizer):  # fmt: skip
        renderer = Renderer(tokenizer=tokenizer, template="Q: {question}" + (template or "\n"), chat=False, prefill=prefill, thinking=thinking)
        sampler = Scripted(tokenizer, scripts)
        limits = limits or Limits(context=4096, response=2000, turn=None, information=500)
        loop = EpisodeLoop(sampler, engine or FullSim(), renderer, limits, stop_at_answer=stop_at_answer, mask=mask)
        tasks = [
            Task(question=question(key), group=f"g-{key}", sample=0, prompt_ids=renderer.prompt_ids(question(key)), seed_parts=(key, 0))
            for key in scripts
        ]
        return loop.run(tasks, Sampling(), run_seed=run_seed, step=7), sampler

    return run


def text_where(rollout, flags):
    """The bytes of the flagged tokens: the tiny tokenizer has one token a byte."""
    return bytes(b for b, keep in zip(rollout_bytes(rollout), flags, strict=True) if keep is True).decode()


def rollout_bytes(rollout):
    from ssrl.policy.builtin import tiny_tokenizer
    from ssrl.rollout.tokens import TokenText

    return [piece[0] if piece else 0 for piece in TokenText(tiny_tokenizer()).pieces(rollout.ids)]


def of_source(rollout, source):
    return text_where(rollout, [s is source for s in rollout.sources])


def trained_text(rollout):
    return text_where(rollout, rollout.trained).replace("\0", "")


def in_turn(rollout, turn):
    return text_where(rollout, [t == turn for t in rollout.turns]).replace("\0", "")


THINK = "<think>hm</think>"
SELF = THINK + "<search>a</search>\n<information>\nA\n</information>\n<search>b</search><information>B</information><answer>42</answer>"


def test_full_sim_is_one_generation_without_a_stop_string(play):
    (rollout,), sampler = play({"x": [SELF]})
    assert [[request.stop for request in batch] for batch in sampler.requests] == [[()]]
    assert rollout.text == SELF and rollout.status is Status.ANSWERED
    assert trained_text(rollout) == THINK + "<search>a</search>\n\n<search>b</search><answer>42</answer>"
    assert [(s.query, s.result) for s in rollout.searches] == [("a", None), ("b", None)]
    assert set(rollout.turns) == {0}


def test_the_end_token_of_the_policy_stays_and_is_trained_though_it_is_the_pad_token(play, tiny):
    assert tiny.tokenizer.pad_token_id == tiny.tokenizer.eos_token_id == END
    (rollout,), _ = play({"x": ["<answer>42</answer>"]})
    assert rollout.ids[-1] == END and rollout.trained[-1] and rollout.sources[-1] is Source.POLICY
    assert rollout.text == "<answer>42</answer>"


def test_the_prefilled_text_is_of_the_template_and_the_log_probabilities_are_the_samplers(play):
    (rollout,), sampler = play({"x": ["hm</think><answer>42</answer>"]}, prefill="<think>")
    n = len("<think>")
    assert rollout.text == "<think>hm</think><answer>42</answer>"
    assert rollout.sources[:n] == (Source.TEMPLATE,) * n and set(rollout.sources[n:]) == {Source.POLICY}
    assert not any(rollout.trained[:n]) and all(rollout.trained[n:])
    assert all(p != p for p in rollout.logprobs[:n])
    assert rollout.logprobs[n:] == tuple(-0.01 * (i + 1) for i in range(len(rollout.ids) - n))
    assert sampler.requests[0][0].prompt_ids == rollout.prompt_ids + rollout.ids[:n]


def test_stop_at_answer_ends_full_sim_behind_the_tag(play):
    (rollout,), _ = play({"x": ["<answer>42</answer> and more"]}, stop_at_answer=True)
    assert rollout.text == "<answer>42</answer>" and rollout.status is Status.ANSWERED and rollout.ids[-1] != END


def test_a_response_without_an_answer_has_ended(play):
    (rollout,), _ = play({"x": [THINK + "<think><answer>42</answer>"]})
    assert rollout.status is Status.ENDED


def test_full_real_every_search_is_answered_inside_the_wrapper(play):
    engine = Library("about {query}")
    (rollout,), sampler = play({"x": [THINK + "<search> a </search>ignored", "<search>b</search>", "<answer>42</answer>x"]}, engine)
    first, second = (f"{BEFORE}about {q}{AFTER}" for q in "ab")
    assert rollout.text == f"{THINK}<search> a </search>{first}<search>b</search>{second}<answer>42</answer>"
    assert rollout.status is Status.ANSWERED
    assert of_source(rollout, Source.ENGINE) == first + second
    assert trained_text(rollout) == THINK + "<search> a </search><search>b</search><answer>42</answer>"
    # an engine's documents belong to the turn that asked for them
    assert [in_turn(rollout, k) for k in range(3)] == [THINK + "<search> a </search>" + first, "<search>b</search>" + second, "<answer>42</answer>"]
    assert all(b is Block.INFORMATION for b, s in zip(rollout.blocks, rollout.sources, strict=True) if s is Source.ENGINE)
    assert all((p != p) == (s is not Source.POLICY) for p, s in zip(rollout.logprobs, rollout.sources, strict=True))
    assert [(s.query, s.result.documents[0].text) for s in rollout.searches] == [("a", "about a"), ("b", "about b")]
    assert [(c.index, c.turn, c.step, c.group, c.sample) for c in engine.calls] == [(0, 0, 7, "g-x", 0), (1, 1, 7, "g-x", 0)]
    assert len({r.seed for batch in sampler.requests for r in batch} | {c.seed for c in engine.calls}) == 5


@pytest.mark.parametrize("wrapper", [("<information>", "</information>"), ("\n\n<information>", "</information>\n\n")])
def test_an_engine_goes_on_from_the_tag_that_a_merged_token_has_begun(play, wrapper):
    tokenizer, engine = merged_bpe(), Library("A")
    engine.wrapper = wrapper
    (rollout,), sampler = play({"x": [THINK + "<search>a</search><information>own", THINK + "<answer>42</answer>"]}, engine, tokenizer=tokenizer)
    assert rollout.text == f"{THINK}<search>a</search><information>A{wrapper[1]}{THINK}<answer>42</answer>"
    assert [call.query for call in engine.calls] == ["a"] == [s.query for s in rollout.searches]
    merged = tokenizer.convert_tokens_to_ids("><")
    (place,) = [t for t, i in enumerate(rollout.ids) if i == merged and rollout.sources[t + 1] is Source.ENGINE]
    assert (rollout.sources[place], rollout.blocks[place], rollout.trained[place]) == (Source.POLICY, Block.SEARCH, True)
    assert {b for b, s in zip(rollout.blocks, rollout.sources, strict=True) if s is Source.ENGINE} == {Block.INFORMATION}
    assert not any(t for t, s in zip(rollout.trained, rollout.sources, strict=True) if s is Source.ENGINE)
    assert not self_written_information(rollout.segments) and ssrl_format(scoring_text(rollout.segments)) == 1.0


def test_documents_are_cut_inside_their_wrapper(play):
    limits = Limits(context=4096, response=2000, turn=None, information=7)
    (rollout,), _ = play({"x": ["<search>a</search>", "<answer>42</answer>"]}, Library("0123456789"), limits=limits)
    assert rollout.text == f"<search>a</search>{BEFORE}0123456{AFTER}<answer>42</answer>" and rollout.searches[0].truncated
    (rollout,), _ = play({"x": ["<search>a</search>", "<answer>42</answer>"]}, Library("0123456"), limits=limits)
    assert not rollout.searches[0].truncated


def test_after_max_turns_a_policy_that_may_write_information_goes_on_by_itself(play):
    engine = Library(max_turns=1, may_decline=True)
    (rollout,), sampler = play({"x": ["<search>a</search>", "<search>b</search><answer>42</answer>"]}, engine)
    assert [batch[0].stop for batch in sampler.requests] == [("</search>", "</answer>"), ("</answer>",)]
    assert [call.query for call in engine.calls] == ["a"]
    assert rollout.text.endswith(f"{AFTER}<search>b</search><answer>42</answer>")
    assert [(s.query, s.result is None) for s in rollout.searches] == [("a", False), ("b", True)]


def test_sim2real_the_policy_goes_on_where_the_engine_declines(play):
    engine = Library("A", k=1)
    own = "<information>B</information>"
    (rollout,), _ = play({"x": ["<search>a</search>", "<search>b</search>", own + "<answer>42</answer>"]}, engine)
    assert rollout.text == f"<search>a</search>{BEFORE}A{AFTER}<search>b</search>{own}<answer>42</answer>"
    assert of_source(rollout, Source.ENGINE) == f"{BEFORE}A{AFTER}"
    assert trained_text(rollout) == "<search>a</search><search>b</search><answer>42</answer>"
    assert [call.index for call in engine.calls] == [0, 1]
    assert [s.result is None for s in rollout.searches] == [False, True]


@pytest.mark.parametrize("status", [SearchStatus.ERROR, SearchStatus.TIMEOUT])
def test_a_failed_call_fails_its_rollout_alone(play, status):
    engine = Library(status=status)
    (failed, fine), _ = play({"x": ["<search>a</search>"], "y": ["<answer>42</answer>"]}, engine)
    assert failed.status is Status.FAILED and failed.text == "<search>a</search>"
    assert failed.searches[0].result.status is status
    assert fine.status is Status.ANSWERED


def test_an_answer_without_documents_is_no_failure(play):
    (rollout,), _ = play({"x": ["<search>a</search>", "<answer>42</answer>"]}, Library("", status=SearchStatus.EMPTY))
    assert rollout.text == f"<search>a</search>{BEFORE}{AFTER}<answer>42</answer>" and rollout.status is Status.ANSWERED


def test_a_tag_inside_think_is_no_action_and_the_policy_goes_on(play):
    engine = Library()
    turns = ["<think>I could <search>a</search>", " or <answer>1</answer>", "</think><search>b</search>", "<answer>42</answer>"]
    (rollout,), _ = play({"x": turns}, engine)
    assert [(call.query, call.index, call.turn) for call in engine.calls] == [("b", 0, 2)]
    assert rollout.text == "".join(turns[:3]) + BEFORE + "Paris is in France." + AFTER + turns[3]
    assert rollout.status is Status.ANSWERED
    assert [(s.query, s.result is None) for s in rollout.searches] == [("b", False)]


def test_inside_a_thinking_block_that_the_prompt_opened_no_tag_is_an_action(play):
    engine = Library()
    turns = ["maybe <search>a</search>", "<answer>1</answer>", "</think><search>b</search>", "<answer>42</answer>"]
    (rollout,), _ = play({"x": turns}, engine, thinking=True, template="\n<think>\n")
    assert [call.query for call in engine.calls] == ["b"]
    assert rollout.status is Status.ANSWERED and rollout.text.endswith("<answer>42</answer>")
    assert rollout.blocks[0] is Block.THINK


def test_an_empty_search_is_no_action_and_later_results_stay_with_their_queries(play):
    engine = Library()
    (rollout,), _ = play({"x": ["<search> </search>", "<search>b</search>", "<answer>42</answer>"]}, engine)
    assert [(call.query, call.index) for call in engine.calls] == [("b", 1)]
    assert [(s.query, s.result is None) for s in rollout.searches] == [("", True), ("b", False)]


@pytest.mark.parametrize("query", ["voilà", "Å", "日本 🎉"])
def test_queries_keep_their_characters(play, query):
    engine = Library(entropy=0)
    (rollout,), _ = play({"x": [f"<search>\n{query} </search>", "<answer>42</answer>"]}, engine)
    (call,) = engine.calls
    assert call.query == query and rollout.searches[0].query == query
    inside = len(f"\n{query} ".encode())  # all tokens between the tags
    first = len("<search>")
    (own,) = call.queries
    assert own.logprobs == rollout.logprobs[first : first + inside]
    assert own.entropies == tuple(float(i) for i in range(first, first + inside))


def test_a_call_carries_the_uncertainty_of_every_query_so_far_and_of_no_other_token(play):
    engine = Library("<search>zzz</search>", entropy=5)
    (rollout,), sampler = play({"x": ["<search>abc</search>", "<search></search>", "hm <search>de</search>", "<answer>42</answer>"]}, engine)
    first, last = engine.calls
    assert [len(q.logprobs) for q in first.queries] == [3] and [len(q.logprobs) for q in last.queries] == [3, 0, 2]
    assert last.queries[0] == first.queries[0] and last.index == 2
    own = len("hm <search>")  # of its own generation
    assert last.queries[2].entropies == (own, own + 1)
    assert last.queries[2].logprobs == pytest.approx((-0.01 * (own + 1), -0.01 * (own + 2)))
    assert {request.entropy for batch in sampler.requests for request in batch} == {5}


def test_entropies_are_asked_for_only_where_the_engine_wants_them(play):
    engine = Library(max_turns=1)
    _, sampler = play({"x": ["<search>a</search>", "<answer>42</answer>"]}, engine)
    assert engine.calls[0].queries[0].entropies is None
    assert {request.entropy for batch in sampler.requests for request in batch} == {None}
    _, sampler = play({"x": ["<search>a</search>", "<answer>42</answer>"]}, Library(max_turns=1, entropy=0))
    assert [batch[0].entropy for batch in sampler.requests] == [0, None]  # nobody asks in the final generation


def test_a_policy_that_does_nothing_but_close_tags_is_ended_before_its_budget(play):
    (rollout,), sampler = play({"x": ["</search>"] * 300}, Library())
    assert rollout.status is Status.ENDED and len(sampler.requests) == 65


# turns


def test_an_engine_that_always_answers_ends_the_rollout_at_a_search_in_the_final_generation(play):
    engine = Library(max_turns=1)
    (rollout,), sampler = play({"x": ["<search>a</search>", "<search>b</search><answer>42</answer>"]}, engine)
    assert [batch[0].stop for batch in sampler.requests] == [("</search>", "</answer>")] * 2
    assert rollout.status is Status.OUT_OF_TURNS and rollout.text == f"<search>a</search>{BEFORE}Paris is in France.{AFTER}<search>b</search>"
    assert [call.query for call in engine.calls] == ["a"]
    assert [(s.query, s.result is None) for s in rollout.searches] == [("a", False), ("b", True)]


def test_an_empty_or_a_mentioned_search_in_the_final_generation_ends_nothing(play):
    texts = ["<search>a</search>", "<search> </search>", "<think>a <search>b</search>", "</think><answer>42</answer>"]
    (rollout,), _ = play({"x": texts}, Library(max_turns=1))
    assert rollout.status is Status.ANSWERED


def test_a_declined_search_uses_up_a_turn_as_an_answered_one_does(play):
    engine = Library("A", k=1, max_turns=2, may_decline=True)
    own = "<information>B</information>"
    texts = ["<search>a</search>", "<search>b</search>", own + f"<search>c</search>{own}<answer>42</answer>"]
    (rollout,), sampler = play({"x": texts}, engine)
    assert [call.query for call in engine.calls] == ["a", "b"] and rollout.status is Status.ANSWERED
    assert [batch[0].stop for batch in sampler.requests] == [("</search>", "</answer>")] * 2 + [("</answer>",)]
    assert [s.query for s in rollout.searches] == ["a", "b", "c"]


RETRY = "\nThat was no action. Let me try again.\n"


def test_a_generation_that_is_no_action_is_tried_again_behind_the_message(play):
    engine = Library("A", retry_message=RETRY)
    (rollout,), _ = play({"x": ["dunno", "<search>b</search>", "<answer>42</answer>"]}, engine)
    assert rollout.text == f"dunno{RETRY}<search>b</search>{BEFORE}A{AFTER}<answer>42</answer>" and rollout.status is Status.ANSWERED
    assert of_source(rollout, Source.TEMPLATE) == RETRY and trained_text(rollout) == "dunno<search>b</search><answer>42</answer>"
    assert rollout.ids[len("dunno")] == END and rollout.trained[len("dunno")]  # the policy did draw its end token
    assert in_turn(rollout, 0) == "dunno" + RETRY and [(c.turn, c.index) for c in engine.calls] == [(1, 0)]
    (template,) = [segment for segment in rollout.segments if segment.source is Source.TEMPLATE]
    assert template.text == RETRY


@pytest.mark.parametrize(("count_invalid", "answered"), [(True, 0), (False, 1)])
def test_an_invalid_generation_uses_up_a_turn_where_the_engine_counts_it(play, count_invalid, answered):
    engine = Library("A", retry_message=RETRY, max_turns=1, count_invalid=count_invalid)
    (rollout,), _ = play({"x": ["dunno", "<search>b</search>", "<answer>42</answer>"]}, engine)
    assert len(engine.calls) == answered
    assert rollout.status is (Status.ANSWERED if answered else Status.OUT_OF_TURNS)


@pytest.mark.parametrize("count_invalid", [True, False])
def test_the_message_comes_at_most_max_turns_times_and_not_after_the_final_generation(play, count_invalid):
    engine = Library(retry_message=RETRY, max_turns=2, count_invalid=count_invalid)
    (rollout,), sampler = play({"x": ["dunno"] * 9}, engine)
    assert rollout.text == f"dunno{RETRY}" * 2 + "dunno" and rollout.status is Status.ENDED
    (rollout,), _ = play({"x": ["<search>a</search>", "<search>a</search>", "dunno"]}, engine)
    assert rollout.text.endswith("dunno") and rollout.status is Status.ENDED


def test_a_message_without_room_truncates(play):
    limits = Limits(context=4096, response=len("dunno") + 1 + len(RETRY) - 1, turn=None, information=9)
    (rollout,), _ = play({"x": ["dunno"]}, Library(retry_message=RETRY), limits=limits)
    assert rollout.status is Status.TRUNCATED and rollout.text == "dunno"


def test_a_call_carries_its_own_question_when_another_row_has_finished(play):
    engine = Library("about {query}")
    rollouts, _ = play(
        {"x": ["<answer>42</answer>"], "y": ["<search>qy</search>", "<answer>42</answer>"], "z": ["<search></search>", "<search>qz</search>", "no"]}, engine
    )
    assert [(call.query, call.question.id, call.group) for call in engine.calls] == [("qy", "y", "g-y"), ("qz", "z", "g-z")]
    assert [rollout.question.id for rollout in rollouts] == ["x", "y", "z"]
    assert ["about" in rollout.text for rollout in rollouts] == [False, True, True]


def test_budgets_end_in_truncation(play):
    long = {"x": ["a" * 50, "b" * 50]}
    for limits in (
        Limits(context=4096, response=10, turn=None, information=5),
        Limits(context=len("Q: x?\n") + 10, response=100, turn=None, information=5),
        Limits(context=4096, response=100, turn=10, information=5),
    ):
        (rollout,), _ = play(long, limits=limits)
        assert rollout.status is Status.TRUNCATED and rollout.text == "a" * 10


def test_an_answer_that_fills_the_budget_is_cut_and_one_that_stops_there_is_not(play):
    limits = Limits(context=4096, response=len("<answer>42</answer>"), turn=None, information=5)
    assert play({"x": ["<answer>42</answer>"]}, limits=limits)[0][0].status is Status.TRUNCATED
    assert play({"x": ["<answer>42</answer>"]}, limits=limits, stop_at_answer=True)[0][0].status is Status.ANSWERED


@pytest.mark.parametrize("spare", range(-3, 24))
def test_documents_that_do_not_fit_the_context_are_cut_inside_their_wrapper_or_left_out_with_it(play, spare):
    document, prompt, searched = "Paris is in France.", "Q: x?\n", "<search>a</search>"
    room = len(searched + BEFORE + AFTER) + spare
    limits = Limits(context=len(prompt) + room, response=4096, turn=None, information=500)
    (rollout,), sampler = play({"x": [searched, "go on and on"]}, Library(document), limits=limits)
    assert rollout.status is Status.TRUNCATED
    assert rollout.text.startswith(searched + (BEFORE + document[:spare] + AFTER if spare >= 0 else ""))
    assert len(rollout.ids) == (room if spare >= 0 else len(searched))
    assert rollout.searches[0].truncated is (spare < len(document))
    assert len(sampler.requests) == 1 + (spare > len(document))  # with no room left nobody is asked to go on


def test_documents_do_not_use_up_what_the_policy_may_write(play):
    limits = Limits(context=4096, response=len("<search>a</search>") + 7, turn=None, information=500)
    (rollout,), sampler = play({"x": ["<search>a</search>", "go on and on"]}, Library("Paris is in France."), limits=limits)
    assert rollout.status is Status.TRUNCATED and rollout.text.endswith("Paris is in France." + AFTER + "go on a")
    assert sampler.requests[-1][0].max_new_tokens == 7


@pytest.mark.parametrize("prefill", ["", "<think>"])
def test_a_prompt_that_fills_the_context_is_truncated_at_once(play, prefill):
    limits = Limits(context=6 + len(prefill), response=100, turn=None, information=5)
    (rollout,), sampler = play({"x": ["a"]}, limits=limits, prefill=prefill)
    assert rollout.status is Status.TRUNCATED and rollout.text == prefill and sampler.requests == []


def test_mask_none_trains_all_tokens_of_the_response(play):
    (rollout,), _ = play({"x": ["<search>a</search>", "<answer>42</answer>"]}, Library(), mask="none", prefill="\n")
    assert all(rollout.trained) and len(set(rollout.sources)) == 3


# the real sampler


def real_tasks(renderer, names, n=2):
    return [
        Task(question=question(name), group=name, sample=k, prompt_ids=renderer.prompt_ids(question(name)), seed_parts=(name, k))
        for name in names
        for k in range(n)
    ]


def test_rollouts_do_not_depend_on_order_or_batch(tiny):
    renderer = Renderer(tokenizer=tiny.tokenizer, template="Q: {question}", prefill="<think>")
    limits = Limits(context=512, response=24, turn=9, information=5)
    tasks = real_tasks(renderer, ["a", "bb", "much longer a question"])

    def run(tasks, batch, seed=3):
        sampler = TransformersSampler(tiny.model, tiny.tokenizer, tiny.end_ids, batch=batch, dtype=torch.float32)
        loop = EpisodeLoop(sampler, FullSim(), renderer, limits, stop_at_answer=False)
        return {(r.group, r.sample): r for r in loop.run(tasks, Sampling(temperature=1.0), run_seed=seed)}

    whole = run(tasks, 64)
    for other in (run(tasks[::-1], 64), run(tasks, 1), run(tasks, 4), run(tasks[2:4], 64)):
        for name, rollout in other.items():
            assert rollout.ids == whole[name].ids
            assert rollout.logprobs[7:] == pytest.approx(whole[name].logprobs[7:], abs=1e-5)
    assert len({rollout.ids for rollout in whole.values()}) == len(tasks)  # nobody shares a stream
    assert all(rollout.ids != whole[name].ids for name, rollout in run(tasks, 64, seed=4).items())
