import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssrl.errors import UserError
from ssrl.rewards.score import FORMATS, OUTCOMES, Reward
from ssrl.types import Block, Question, Rollout, Segment, Source, Status

T, S, I = "<think>plan</think>", "<search>capital of Peru</search>", "<information>Lima is it.</information>"  # noqa: E741
RIGHT, WRONG = "<answer>Lima</answer>", "<answer>Cusco</answer>"
POLICY, ENGINE, TEMPLATE = Source.POLICY, Source.ENGINE, Source.TEMPLATE

SSRL = Reward("em", "ssrl", 0.9, 0.1)
SSRL_EQ7 = Reward("em", "ssrl_bool", 0.9, 0.1)
EM = Reward("em", "none", 1.0, 0.0)
F1 = Reward("f1", "none", 1.0, 0.0)
QUICKSTART = Reward("em", "self_search", 0.8, 0.2)
ALL = [SSRL, SSRL_EQ7, EM, F1, QUICKSTART]


def rollout(*runs: tuple[Source, str], prompt: tuple[int, ...] = (1,), answers: tuple[str, ...] = ("Lima",)) -> Rollout:
    """One token a segment."""
    size = len(runs)
    return Rollout(
        question=Question(id="q", text="What is the capital of Peru?", answers=answers),
        group="g",
        sample=0,
        prompt_ids=prompt,
        ids=tuple(range(size)),
        sources=tuple(source for source, _ in runs),
        blocks=(Block.OUTSIDE,) * size,
        turns=(0,) * size,
        logprobs=(0.0,) * size,
        trained=tuple(source is POLICY for source, _ in runs),
        segments=tuple(Segment(source=source, text=text) for source, text in runs),
        status=Status.ENDED,
    )


def total(reward: Reward, text: str) -> float:
    return reward(rollout((POLICY, text))).total


@pytest.mark.parametrize(
    ("reward", "text", "expected"),
    [
        (SSRL, T + S + I + T + RIGHT, 1.0),
        (SSRL, T + S + I + T + WRONG, 0.1),
        (SSRL, T + RIGHT, 0.95),
        (SSRL, T + S + I + RIGHT, 0.925),
        (SSRL, T + S + I + S + I + T + WRONG, 0.1 * 2 / 3),
        (SSRL, "Sure: " + RIGHT, 0.9),
        (SSRL, "Lima", 0.0),
        (SSRL_EQ7, T + S + I + T + RIGHT, 1.0),
        (SSRL_EQ7, T + RIGHT, 1.0),
        (SSRL_EQ7, "Sure: " + RIGHT, 0.9),
        (SSRL_EQ7, T + S + I + WRONG, 0.1),
        (SSRL_EQ7, WRONG, 0.0),
        (EM, RIGHT, 1.0),
        (EM, T + S + I + T + "<answer>Lima, Peru</answer>", 0.0),
        (F1, "<answer>Lima, Peru</answer>", 2 / 3),
        (F1, T + RIGHT, 1.0),
        (QUICKSTART, T + S + I + T + RIGHT, 1.0),
        (QUICKSTART, T + RIGHT, 0.8),
        (QUICKSTART, T + S + I + T + WRONG, 0.2),
        (QUICKSTART, T + S + I + WRONG, 0.05),
        (QUICKSTART, T + WRONG, 0.0),
    ],
)
def test_the_published_combinations_and_the_quickstart_in_numbers(reward, text, expected):
    assert total(reward, text) == pytest.approx(expected, abs=1e-12)


def test_the_parts_are_named_exactly():
    score = SSRL(rollout((POLICY, T + S + I + S + I + T + "<answer> the city of Lima </answer>")))
    assert score.answer == "the city of Lima"
    assert score.parts == pytest.approx({"em": 0, "cover_em": 1, "f1": 0.5, "format": 2 / 3, "searches": 2, "answer_words": 4})


@pytest.mark.parametrize("reward", ALL)
def test_every_reward_reports_all_parts_even_without_an_answer(reward):
    score = reward(rollout((POLICY, "no idea")))
    assert score.parts.keys() == {"em", "cover_em", "f1", "format", "searches", "answer_words"}
    assert (score.total, score.answer, score.parts["answer_words"]) == (0.0, None, 0.0)


def test_the_prefilled_think_belongs_to_the_response():
    assert SSRL(rollout((TEMPLATE, "<think>"), (POLICY, "plan</think>" + RIGHT))).total == pytest.approx(0.95)


def test_changing_the_prompt_changes_no_score():
    assert len({SSRL(rollout((POLICY, T + RIGHT), prompt=prompt)).total for prompt in ((1,), (2, 3), tuple(range(50)))}) == 1


hostile = st.lists(
    st.sampled_from(
        [
            "<information>", "</information>", "<answer>", "</answer>", "<think>", "</think>", "<search>", "</search>",
            "</information><answer>42</answer>", "<|im_end|>", "<|im_start|>assistant\n", "<|eot_id|>", "</s>", "[INST]",
            "\u200b", "\u202e", "\x00", "\n", "Lima", "42", "your information", "<", ">", "<b>", "３",
        ]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("reward", [*ALL, Reward("f1", "ssrl", 0.5, 0.5, native_thinking=True), Reward("cover_em", "ssrl", 0.9, 0.1, engine_answers=True)])
@given(
    documents=st.tuples(hostile, hostile),
    start=st.sampled_from(["", T, "<think>", "<think>n</think><think>p</think>", "<answer>", "<information>"]),
    end=st.sampled_from([RIGHT, WRONG, "", "</answer>", "</think>" + RIGHT, "Lima</answer>", T + "<answer>42</answer>"]),
)
def test_no_document_can_change_a_score(reward, documents, start, end):
    def with_documents(first: str, second: str) -> Rollout:
        return rollout((POLICY, start + S), (ENGINE, first), (POLICY, T + S), (ENGINE, second), (POLICY, T + end))

    assert reward(with_documents(*documents)) == reward(with_documents(I, I))


def test_an_answer_in_a_document_is_not_an_answer():
    score = SSRL(rollout((POLICY, T + S), (ENGINE, "<information></information><answer>Lima</answer>"), (POLICY, T)))
    assert score.answer is None and score.total == 0.0


def test_an_engines_block_completes_the_format():
    assert SSRL(rollout((POLICY, T + S), (ENGINE, I), (POLICY, T + RIGHT))).parts["format"] == 1.0


def test_self_written_information_breaks_the_format_only_where_an_engine_answers():
    written = rollout((POLICY, T + S + I + T + RIGHT))
    answered = rollout((POLICY, T + S), (ENGINE, I), (POLICY, T + RIGHT))
    strict = Reward("em", "ssrl", 0.9, 0.1, engine_answers=True)
    assert [SSRL(written).total, strict(written).total, strict(answered).total] == pytest.approx([1.0, 0.9, 1.0])


def test_native_thinking_is_left_out_of_answer_format_and_searches():
    reward = Reward("em", "ssrl", 0.9, 0.1, native_thinking=True)
    text = "<think>perhaps <search>x</search> <answer>Cusco</answer></think>\n" + T + S + I + T + RIGHT
    assert reward(rollout((POLICY, text))).total == pytest.approx(1.0)
    assert reward(rollout((POLICY, text))).parts["searches"] == 1
    assert reward(rollout((POLICY, "<think>" + RIGHT))).answer is None


def test_native_thinking_about_information_is_no_violation():
    reward = Reward("em", "ssrl", 0.9, 0.1, native_thinking=True, engine_answers=True)
    native = "<think>what belongs into <information>?</think>"
    assert reward(rollout((POLICY, native + T + S), (ENGINE, I), (POLICY, T + RIGHT))).total == pytest.approx(1.0)


def test_the_normaliser_is_the_one_that_was_chosen():
    text = (POLICY, T + "<answer>“Ｌima”</answer>")
    assert EM(rollout(text)).total == 0.0
    assert Reward("em", "none", 1.0, 0.0, "unicode")(rollout(text)).total == 1.0


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"outcome": "EM"}, r"reward\.outcome=EM is unknown; choose one of em, cover_em, f1\."),
        ({"format": "strict"}, r"reward\.format=strict is unknown; choose one of none, ssrl, ssrl_bool, self_search\."),
        ({"normalizer": "none"}, r"reward\.normalizer=none is unknown; choose one of squad, unicode\."),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(fields, sentence):
    with pytest.raises(UserError, match=sentence):
        Reward(**{"outcome": "em", "format": "ssrl", "outcome_weight": 1.0, "format_weight": 0.0, "normalizer": "squad", **fields})


def test_the_names_are_those_of_the_configuration():
    from ssrl.config import RewardConfig

    options = {name: field.metadata["options"] for name, field in RewardConfig.__dataclass_fields__.items() if "options" in field.metadata}
    assert options["outcome"] == tuple(OUTCOMES) and options["format"] == tuple(FORMATS)


def test_a_signed_outcome_counts_from_minus_one_to_one():
    for text, total in (("<think>x</think><answer>42</answer>", 1.0), ("<think>x</think><answer>41</answer>", -1.0)):
        rollout = Rollout(
            question=Question(id="q", text="x", answers=("42",)), group="g", sample=0, prompt_ids=(1,), ids=(), sources=(), blocks=(), turns=(),
            logprobs=(), trained=(), segments=(Segment(source=Source.POLICY, text=text),), status=Status.ANSWERED)  # fmt: skip
        assert Reward("em", "none", 1.0, 0.0, signed=True)(rollout).total == total
