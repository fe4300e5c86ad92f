"""What the check refuses, what it only remarks on, and what it lets pass."""

import pytest
from omegaconf import OmegaConf

from ssrl.check import ERRORS, NOTES, RANGES, check
from ssrl.config import Config
from ssrl.errors import UserError
from ssrl.schema import keys

SOUND = """
model: {name: m, path: random:tiny, context: 8192}
data: {name: d, train: {a: {path: a.jsonl}}, test: {a: {path: a.jsonl}}}
prompt: {name: p, template: "Q: {question}"}
"""


def config(*words: str, text: str = SOUND):
    """A sound configuration, the published recipe on no particular data, with changes."""
    return OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(text), OmegaConf.from_dotlist(list(words)))


def test_the_published_recipe_passes_with_one_note_on_its_clip():
    (note,) = check(config())
    assert "the ratio is 1" in note


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (["rollout.n=1"], ["rollout.n=1", "group_zscore", "rollout.n=2"]),
        (["rollout.n=0"], ["rollout.n=0", "at least 1"]),
        (["rollout.n=-3"], ["rollout.n=-3", "at least 1"]),
        (["model.context=5119"], ["1024", "4096", "5120", "model.context=5119"]),
        (["algo.clip_low=-0.1"], ["algo.clip_low=-0.1", "between 0 and 1"]),
        (["rollout.top_p=0"], ["rollout.top_p=0"]),
        (["train.lr=-1e-6"], ["train.lr", "at least 0"]),
        (["train.lr=.nan"], ["train.lr=nan"]),
        (["train.lr=.inf"], ["train.lr=inf"]),
        (["train.questions=0"], ["train.questions=0"]),
        (["data.train.a.limit=0"], ["data.train.a.limit=0", "at least 1"]),
        (["algo.kl=los"], ["algo.kl=los", "none, reward, loss", "did you mean loss?"]),
        (["algo.kl_estimator=k4"], ["k1, k2, k3"]),
        (["algo.advantage=reinforce_pp_baseline", "rollout.n=1"], ["rollout.n=1", "reinforce_pp_baseline"]),
        (["algo.advantage=reward", "algo.dynamic_sampling=true", "rollout.n=1"], ["rollout.n=1", "algo.dynamic_sampling=false"]),
        (["algo.kl=reward"], ["group_zscore", "algo.kl=loss"]),
        (["algo.kl=none", "algo.kl_target=0.01"], ["algo.kl_target=0.01", "algo.kl=none", "algo.kl=reward"]),
        (["algo.kl_coef=0", "algo.kl_target=0.01"], ["algo.kl_coef=0", "algo.kl_target=null"]),
        (["algo.kl_target=0"], ["algo.kl_target=0"]),
        (["algo.correction=token", "algo.mask=none"], ["algo.correction=token", "algo.mask=tokens"]),
        (["algo.correction=sequence", "rollout.top_p=0.95"], ["rollout.top_p=0.95", "algo.correction=none"]),
        (["algo.correction=token", "rollout.top_k=50"], ["rollout.top_k=50"]),
        (["train.pipeline=true"], ["algo.correction=none", "algo.correction=token"]),
        (["train.pipeline=true", "algo.correction=token", "algo.dynamic_sampling=true"], ["several", "train.pipeline=false"]),
        (["algo.surrogate=sequence", "algo.advantage=gae"], ["algo.surrogate=sequence", "algo.advantage=gae"]),
        (["algo.surrogate=kl_cov", "algo.cov_ratio=0"], ["algo.cov_ratio=0", "algo.surrogate=clip"]),
        (["algo.cov_ratio=1.5"], ["algo.cov_ratio=1.5", "between 0 and 1"]),
        (["algo.surrogate=clip_cov", "algo.cov_low=5"], ["algo.cov_low=5", "algo.cov_high=5"]),
        (["algo.advantage=gae", "algo.critic.lr=0"], ["algo.critic.lr=0"]),
        (["algo.advantage=gae", "algo.critic.shared=true", "algo.critic.coef=0"], ["algo.critic.coef=0"]),
        (["algo.advantage=gae", "algo.critic.shared=true", "algo.critic.path=m"], ["algo.critic.path=m"]),
        (["algo.gamma=1.1"], ["algo.gamma=1.1", "between 0 and 1"]),
        (["task=ak"], ["did you mean ask?"]),
        (["task=ask"], ["question="]),
        (["ckpt=runs/x/seed0"], ["ckpt=runs/x/seed0", "model.path="]),
        (["task=ask", "question=' '"], ["question="]),
        (["task=export"], ["ckpt="]),
        (["rollout.temperature=0"], ["rollout.temperature=0"]),
        (["guard.action=rollback"], ["data=d", "guard.action=stop"]),
        (["guard.action=rollback", "data.val.a.path=a.jsonl", "eval.every=0"], ["eval.every=0", "guard.action=stop"]),
        (["algo.updates=300"], ["algo.updates=300", "train.questions=256"]),
        (["trainer.strategy=fsdp", "model.lora.rank=8"], ["trainer.strategy=fsdp", "model.lora.rank=8", "trainer.strategy=ddp"]),
        (["trainer.cpu_offload=true"], ["trainer.cpu_offload=true", "trainer.strategy=auto", "trainer.strategy=fsdp"]),
        (["trainer.strategy=fdsp"], ["did you mean fsdp?"]),
        (["trainer.accelerator=cpu", "model.attention=flex"], ["model.attention=flex", "model.attention=parts"]),
        (["trainer.devices=8", "train.questions=4"], ["8 processes", "train.questions=8"]),
        (["reward.format=self_search", "prompt.search=false", "engine.name=none"], ["self_search", "prompt=p"]),
        (["reward.outcome_weight=0", "reward.format=none"], ["every reward would be 0"]),
        (["prompt.template=Answer this"], ["{question}"]),
        (["prompt.system=Be brief", "prompt.chat=false"], ["prompt.chat=true"]),
        (["model.thinking=true", "prompt.chat=false"], ["prompt.chat=true"]),
        (["model.thinking=true", "prompt.prefill=<think>"], ["<think>", "model.thinking=false"]),
        (["engine.name=same"], ["engine=same", "engine@eval.engine"]),
        (["retriever.name=same"], ["retriever=same", "retriever@eval.retriever"]),
        (["engine.name=sim2real", "engine.k=0"], ["engine.k=0", "all", "engine.k=3"]),
        (["eval.engine.name=sim2real", "eval.engine.k=three"], ["engine.k=three"]),
        (["engine.name=fullreal", "engine.retry_message=use <search>"], ["use <search>", "in words"]),
        (["wrapper.before=<info>"], ["wrapper.before", "<information>"]),
        (["engine.name=fullreal", "retriever.name=http"], ["retriever.urls=["]),
        (["eval.retriever.name=searxng"], ["retriever.urls=["]),
        (["simulator.name=openai"], ["simulator.urls=["]),
        (["engine.name=none"], ["engine=none", "prompt=p", "prompt=r1"]),
        (["engine.name=fullreal", "prompt.search=false"], ["engine=fullreal", "prompt=p", "prompt=search_r1"]),
        (["engine.name=fullreal", "engine.max_turns=8"], ["5120", "8 answered searches", "500", "9120", "model.context=8192"]),
        (["prompt.search=false"], ["engine=fullsim", "engine=none"]),
        (["engine.name=fullreal", "retriever.name=http", "retriever.urls=[http://me:secret@host:8000]"], ["password"]),
        (["task=ask", "question=x", "engine.name=semireal"], ["engine=semireal", "gold answer"]),
        (["engine.topk=0"], ["engine.topk=0", "at least 1"]),
        (["eval.engine.window=0"], ["eval.engine.window=0"]),
        (["simulator.start=1.5"], ["simulator.start=1.5", "between 0 and 1"]),
        (["calls.max_error_frac=2"], ["calls.max_error_frac=2"]),
        (["reward.votes=8"], ["reward.votes=8", "reward.label=majority"]),
        (["reward.label=majority", "reward.votes=2"], ["reward.votes=2", "rollout.n=5"]),
        (["reward.label=majority", "engine.name=semireal"], ["engine=semireal", "gold answer"]),
        (["train.betas=[0.9]"], ["train.betas=[0.9]"]),
        (["train.betas=[0.9,1.0]"], ["train.betas"]),
        (["logger.names=[wandb,neptune]"], ["neptune", "wandb, tensorboard, csv"]),
        (["rollout.name=vlm"], ["rollout.name=vlm", "hf, vllm, vllm_server"]),
        (["rollout.name=vllm_server"], ["rollout.urls=["]),
        (["rollout.name=vllm_server", "rollout.urls=[http://me:secret@host:8000]"], ["password"]),
        (["rollout.cache_gb=0"], ["rollout.cache_gb=0"]),
        (["table.columns.em.digits=-1"], ["table.columns.em.digits=-1", "between 0 and 15"]),
        (
            ["rollout.name=vllm_server", "rollout.urls=[http://host:8000]", "train.pipeline=true", "algo.correction=token", "engine.name=entropy"],
            ["engine.signal=entropy", "train.pipeline=true", "engine.signal=topk_entropy"],
        ),
        (
            ["rollout.name=vllm_server", "rollout.urls=[http://host:8000]", "trainer.strategy=fsdp", "engine.name=entropy"],
            ["engine.signal=entropy", "trainer.strategy=fsdp", "engine.signal=topk_entropy"],
        ),
        (
            ["rollout.name=vllm_server", "rollout.urls=[http://host:8000]", "trainer.strategy=fsdp", "rollout.top_p=0.9"],
            ["rollout.top_p=0.9", "rollout.top_p=1"],
        ),
        (
            ["rollout.name=vllm_server", "rollout.urls=[http://host:8000]", "rollout.top_k=50", "engine.name=entropy", "engine.signal=topk_entropy"],
            ["engine.signal=topk_entropy", "rollout.top_k=50", "rollout.top_k=0"],
        ),
    ],
)
def test_an_impossible_value_or_pair_is_refused_in_one_sentence_that_names_it(words, phrases):
    with pytest.raises(UserError) as caught:
        check(config(*words))
    assert "\n" not in str(caught.value)
    for phrase in phrases:
        assert phrase in str(caught.value)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_task_without_its_questions_is_refused(part):
    text = SOUND.replace(f"{part}: {{a: {{path: a.jsonl}}}}", f"{part}: {{}}")
    task = {"train": "train", "test": "eval"}[part]
    with pytest.raises(UserError, match=f"data=d has no {part}"):
        check(config(f"task={task}", text=text))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("algo.clp", "algo.clip_low"),
        ("data.train.a.pth", "data.train.a.path"),
        ("data.train.a.columns.answer", "data.train.a.columns.answers"),
        ("model.lora.rnk", "model.lora.rank"),
        ("trainer.lr", "train.lr"),
        ("optimizer.warmup_steps", "train.warmup_steps"),
    ],
)
def test_an_unknown_key_anywhere_in_the_tree_is_answered_with_the_nearest_known_one(name, suggestion):
    cfg = config()
    OmegaConf.set_struct(cfg, False)
    plain = OmegaConf.create(OmegaConf.to_container(cfg))
    OmegaConf.update(plain, name, 1)
    with pytest.raises(UserError) as caught:
        check(plain)
    assert f"{name} is not a key" in str(caught.value) and suggestion in str(caught.value)


def test_a_missing_value_is_named_with_what_to_type():
    with pytest.raises(UserError, match="model.path has no value: type model.path="):
        check(config(text=SOUND.replace("path: random:tiny, ", "")))


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["algo.updates=4", "rollout.top_p=0.9"], "biases the update"),
        (["algo.updates=4", "rollout.top_k=50"], "biases the update"),
        (["algo.updates=4", "train.steps=20"], "train.warmup_steps=62"),
        (["algo.updates=4", "model.dtype=bfloat16"], "model.dtype=float32"),
        (["algo.surrogate=sequence"], "GSPO"),
        (["algo.surrogate=kl_cov"], "KL-Cov"),
        (["algo.surrogate=clip_cov"], "Clip-Cov"),
        (["algo.updates=4", "algo.kl_estimator=k1"], "algo.kl_estimator=k2"),
        (["algo.updates=4", "algo.gamma=0.9"], "algo.gamma=0.9 does nothing"),
    ],
)
def test_what_is_possible_but_hardly_meant_is_a_note(words, phrase):
    (note,) = check(config(*words))
    assert phrase in note


@pytest.mark.parametrize(
    "words",
    [
        ["algo.updates=4"],
        ["algo.updates=4", "algo.kl=none"],
        ["algo.epochs=2"],
        ["algo.surrogate=plain", "algo.advantage=reward", "rollout.n=1"],
        ["algo.surrogate=plain", "algo.advantage=leave_one_out", "algo.kl=reward", "algo.kl_target=0.01"],
        ["algo.updates=4", "algo.advantage=gae", "algo.gamma=0.9", "algo.kl=reward", "algo.critic.shared=true"],
        ["algo.updates=4", "algo.correction=token", "algo.mask=paper"],
        ["algo.updates=4", "train.pipeline=true", "algo.correction=sequence"],
        ["algo.updates=4", "model.dtype=bfloat16", "model.lora.rank=8"],
        ["algo.updates=4", "prompt.prefill=<think>", "model.thinking=false"],
        ["task=ask", "question=Who?", "rollout.n=1", "rollout.temperature=0"],
        ["task=eval", "rollout.n=1"],
        ["task=export", "ckpt=runs/a"],
        ["algo.updates=4", "guard.action=rollback", "data.val.a.path=a.jsonl"],
        ["task=ask", "question=Who?", "algo.updates=16", "train.questions=8"],  # the algorithm of a checkpoint's run, beside other training
    ],
)
def test_what_is_possible_passes_without_a_word(words):
    assert check(config(*words)) == []


def test_the_ranges_speak_of_keys_that_exist_and_hold_their_defaults():
    for name, (low, high) in RANGES.items():
        default = keys()[name].default
        assert default is None or isinstance(default, str) or low <= default <= high, name


def test_every_number_of_the_configuration_has_a_range():
    numbers = {name for name, key in keys().items() if key.type in (int, float, int | None, float | None)}
    assert numbers - set(RANGES) == {f"data.{part}.*.limit_seed" for part in ("train", "val", "test")}


def test_no_rule_stands_in_both_tables_or_twice():
    assert len({*ERRORS, *NOTES}) == len(ERRORS) + len(NOTES)


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["retriever.name=dense"], "retriever=dense does nothing with engine=fullsim"),
        (["engine.name=entropy", "engine.k=1"], "engine.k does nothing with engine=entropy"),
        (["engine.name=fullreal", "retriever.encoder=my/encoder"], "retriever.encoder does nothing with engine=fullreal and retriever=bm25"),
        (["simulator.name=openai", "simulator.urls=[http://a/v1]"], "simulator=openai does nothing"),
    ],
)
def test_a_choice_that_does_nothing_with_the_engine_is_remarked_on(words, phrase):
    assert any(phrase in note for note in check(config(*words)))


def test_what_the_engine_uses_is_not_remarked_on():
    words = ["engine.name=fullreal", "engine.topk=2", "engine.max_turns=2", "retriever.name=dense", "retriever.encoder=my/encoder"]
    assert not any("nothing with engine" in note for note in check(config(*words)))
    assert not any("nothing with engine" in note for note in check(config("eval.engine.name=fullreal", "retriever.name=dense")))
