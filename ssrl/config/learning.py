"""How the policy learns: the objective and the reward."""

from __future__ import annotations

from dataclasses import dataclass, field

from ssrl.config.fields import choice, content

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
    """With d = reference log-probability - log-probability: k1 = -d, k2 = d²/2, k3 = exp(d) - d - 1, at most 10 and without a gradient beyond. k1 and k2 have no limit."""
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
