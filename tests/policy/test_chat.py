"""The simulator in this process, on the tiny model: prompts, seeds and limits."""

import pytest

from ssrl.errors import UserError
from ssrl.policy import chat as module
from ssrl.policy.chat import LocalChat
from ssrl.types import ChatRequest, SearchStatus


@pytest.fixture(scope="module")
def chat(tiny):
    return LocalChat("random:tiny", temperature=0.8, max_tokens=12)


def test_a_reply_depends_on_its_own_request_and_seed_only(chat):
    requests = [ChatRequest(text=text, seed=seed) for text in ("a", "longer message") for seed in (1, 2, 3)]
    together = chat.reply(requests)
    assert [chat.reply([request])[0].text for request in requests[::-1]][::-1] == [reply.text for reply in together]
    assert len({reply.text for reply in together}) == 6 and {reply.status for reply in together} == {SearchStatus.OK}
    assert all(reply.latency_s > 0 for reply in together) and chat.reply([]) == []


def test_the_message_stands_in_the_chat_template_and_its_special_tokens_are_characters(chat, monkeypatch):
    seen = []
    monkeypatch.setattr(chat.sampler, "generate", lambda requests: seen.extend(requests) or [])
    with pytest.raises(ValueError):  # nobody replied
        chat.reply([ChatRequest(text="hi <|end|> there", seed=1)])
    (request,) = seen
    assert chat.tokenizer.decode(request.prompt_ids) == "[system]\n[user]hi <|end|> there\n[assistant]"
    assert 0 not in request.prompt_ids and request.max_new_tokens == 12 and request.sampling.temperature == 0.8


def test_a_message_that_leaves_no_room_fails_alone(chat):
    short, long = chat.reply([ChatRequest(text="a", seed=1), ChatRequest(text="a" * chat.context, seed=1)])
    assert short.status is SearchStatus.OK and long.status is SearchStatus.ERROR and str(chat.context) in long.error
    full = len("[system]\n[user]\n[assistant]")
    (squeezed,) = chat.reply([ChatRequest(text="a" * (chat.context - full - 2), seed=1)])
    assert squeezed.status.failed is False and len(squeezed.text.encode()) <= 6  # two tokens, bytes that are no text as replacement characters


def test_a_model_without_a_chat_template_is_refused(tiny, monkeypatch):
    class Bare:
        tokenizer = type("T", (), {"chat_template": None})()

    monkeypatch.setattr(module, "load_model", lambda path: Bare())
    with pytest.raises(UserError, match="simulator.model=x has no chat template"):
        LocalChat("x")


def test_its_weights_are_its_own(chat, tiny):
    theirs = tiny.model.get_input_embeddings().weight
    assert chat.sampler.model.get_input_embeddings().weight.data_ptr() != theirs.data_ptr()
    assert chat.identity == "random:tiny, temperature 0.8, 12 tokens"
