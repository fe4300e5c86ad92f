"""What `algo=` cannot mean: the rules about the objective that `ssrl/check.py` asks, one sentence or None each."""

from __future__ import annotations

from ssrl.config import GROUP_RELATIVE, Config

TOKEN_ADVANTAGES = ("reinforce_pp", "reinforce_pp_baseline", "gae")  # differ from token to token
RATIO_SURROGATES = {  # surrogates that only act where the policy has moved since it sampled, and what of them does nothing otherwise
    "clip": "algo.clip_low, algo.clip_high and algo.dual_clip do",
    "sequence": "GSPO's ratio of a rollout does",
    "kl_cov": "KL-Cov's penalty does",
    "clip_cov": "the clip of Clip-Cov does",
}


def group_needs_two(config: Config) -> str | None:
    if config.task == "train" and config.algo.advantage in GROUP_RELATIVE and config.rollout.n < 2:
        return (
            f"rollout.n={config.rollout.n} leaves nothing to compare: algo.advantage={config.algo.advantage} sets a rollout against "
            "the others of its question, so type rollout.n=2 or more"
        )
    return None


def mixed_groups_need_two(config: Config) -> str | None:
    if config.task == "train" and config.algo.dynamic_sampling and config.rollout.n < 2:
        return (
            f"rollout.n={config.rollout.n} can give no question both a right and a wrong rollout, which algo.dynamic_sampling waits for: "
            "type rollout.n=2 or more, or algo.dynamic_sampling=false"
        )
    return None


def kl_in_reward_is_not_rescaled(config: Config) -> str | None:
    if config.algo.kl == "reward" and config.algo.advantage == "group_zscore":
        return (
            "algo.kl=reward with algo.advantage=group_zscore would divide the KL term by the group's deviation: where all rollouts earn "
            "the same, its noise alone would make the advantages; type algo.kl=loss, or algo.advantage=leave_one_out"
        )
    return None


def kl_target_needs_kl(config: Config) -> str | None:
    algo = config.algo
    if algo.kl_target is not None and (algo.kl == "none" or algo.kl_coef == 0):
        return (
            f"algo.kl_target={algo.kl_target:g} has no KL term to adapt (algo.kl={algo.kl}, algo.kl_coef={algo.kl_coef:g}): "
            "type algo.kl=reward algo.kl_coef=0.001, or algo.kl_target=null"
        )
    return None


def correction_needs_sampled_tokens(config: Config) -> str | None:
    algo, rollout = config.algo, config.rollout
    if config.task != "train" or algo.correction == "none":
        return None
    if algo.mask == "none":
        return (
            f"algo.correction={algo.correction} compares with the sampler's log-probabilities, which tokens of an engine do not have, and "
            "algo.mask=none trains those too: type algo.mask=tokens or algo.correction=none"
        )
    if rollout.top_p < 1 or rollout.top_k > 0:
        return (
            f"algo.correction={algo.correction} needs the probabilities that tokens were drawn with, but rollout.top_p={rollout.top_p:g} and "
            f"rollout.top_k={rollout.top_k} cut the distribution after they were noted: type rollout.top_p=1 rollout.top_k=0 or algo.correction=none"
        )
    return None


def pipelining_corrects_what_is_late(config: Config) -> str | None:
    algo = config.algo
    if config.task != "train" or not config.train.pipeline:
        return None
    if algo.correction == "none":
        return (
            "train.pipeline=true trains on rollouts of the weights before the last update, but algo.correction=none takes them for the policy's "
            "own: type algo.correction=token, or train.pipeline=false"
        )
    if algo.dynamic_sampling:
        return (
            "train.pipeline=true has one batch sampled ahead, but algo.dynamic_sampling=true may need several: "
            "type train.pipeline=false, or algo.dynamic_sampling=false"
        )
    return None


def rollout_ratio_needs_rollout_advantage(config: Config) -> str | None:
    algo = config.algo
    if algo.surrogate == "sequence" and algo.advantage in TOKEN_ADVANTAGES:
        return (
            f"algo.surrogate=sequence weighs whole rollouts, but algo.advantage={algo.advantage} differs from token to token: "
            "type algo.surrogate=clip, or algo.advantage=group_zscore"
        )
    return None


def covariance_bounds_are_ordered(config: Config) -> str | None:
    algo = config.algo
    if algo.surrogate in ("kl_cov", "clip_cov") and algo.cov_ratio == 0:
        return f"algo.cov_ratio=0 selects no token for algo.surrogate={algo.surrogate}: type algo.cov_ratio=0.002, or algo.surrogate=clip"
    if algo.surrogate == "clip_cov" and algo.cov_low >= algo.cov_high:
        return f"algo.cov_low={algo.cov_low:g} must be below algo.cov_high={algo.cov_high:g}: no token can lie between them"
    return None


def critic_learns(config: Config) -> str | None:
    critic = config.algo.critic
    if config.task != "train" or config.algo.advantage != "gae":
        return None
    if critic.shared and critic.path is not None:
        return f"algo.critic.path={critic.path} is not used where algo.critic.shared=true puts the critic on the policy: leave one of the two out"
    if critic.shared and critic.coef == 0:
        return "algo.critic.coef=0 gives a critic on the policy nothing to learn from: type algo.critic.coef=1"
    if critic.lr == 0:
        return "algo.critic.lr=0 leaves the critic as it starts, so algo.advantage=gae has no values: type algo.critic.lr=1e-5"
    return None


def surrogate_cannot_act(config: Config) -> str | None:
    algo = config.algo
    if config.task == "train" and algo.surrogate in RATIO_SURROGATES and algo.updates == algo.epochs == 1:
        return f"one update per batch: the ratio is 1, so {RATIO_SURROGATES[algo.surrogate]} nothing (algo.updates=4 makes it act)"
    return None


def k1_loss_pulls_nowhere(config: Config) -> str | None:
    if config.task == "train" and config.algo.kl == "loss" and config.algo.kl_estimator == "k1" and config.algo.kl_coef:
        return "algo.kl_estimator=k1 in the loss has a gradient of zero on average, so it holds nothing: algo.kl_estimator=k2 or k3 does, or algo.kl=reward"
    return None


def discount_is_not_read(config: Config) -> str | None:
    algo = config.algo
    if config.task == "train" and algo.advantage not in TOKEN_ADVANTAGES and algo.gamma != 1:
        return f"algo.gamma={algo.gamma:g} does nothing: algo.advantage={algo.advantage} gives all tokens of a rollout the same advantage"
    return None


ERRORS = (
    group_needs_two,
    mixed_groups_need_two,
    kl_in_reward_is_not_rescaled,
    kl_target_needs_kl,
    correction_needs_sampled_tokens,
    pipelining_corrects_what_is_late,
    rollout_ratio_needs_rollout_advantage,
    covariance_bounds_are_ordered,
    critic_learns,
)
NOTES = (surrogate_cannot_act, k1_loss_pulls_nowhere, discount_is_not_read)
