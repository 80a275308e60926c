"""Names that changed, old to new. Records and run folders are read with them, and command lines may still use them."""

from collections.abc import Mapping
from typing import Any

METHODS = {"real_constant": "real_fixed_weights"}
FLAGS = {
    "--algo.real.sampler_clip": "--algo.real.tis_cap",
    "--algo.real.wave_depth": "--algo.real.max_live_micro_batches",
    "--ds.logit_free": "--ds.fused_logprobs",
    "--train.deal": "--train.batching",
    "--train.hung_minutes": "--train.watchdog_minutes",
    "--train.keep_groups": "--logger.rollout_groups",
    "--train.skip_weightless": "--train.skip_zero_gradient",
}
VALUES = {  # by the flag's new name
    "--algo.real.objective": {"constant": "fixed_weights"},
    "--algo.real.uniform_groups": {"drop": "zero_loss"},
    "--train.batching": {"groups": "whole_groups"},
}
METRICS = {
    "mismatch/factor": "sampling/is_ratio_mean",
    "mismatch/is_ratio": "sampling/is_ratio_mean",
    "mismatch/is_ratio_capped": "sampling/frac_is_ratio_capped",
    "mismatch/kl": "sampling/kl",
    "mismatch/max": "sampling/logprob_diff_max",
    "mismatch/mean": "sampling/logprob_diff_mean",
    "real/ignored": "real/frac_unlabelled",
    "real/mixed_groups": "rollout/frac_mixed",
    "real/wave_depth": "real/max_live_micro_batches",
    "rollout/ignored": "rollout/frac_ungraded",
    "rollout/response_length_right": "rollout/response_length_correct",
    "rollout/response_length_wrong": "rollout/response_length_incorrect",
    "rollout/solve_all": "rollout/frac_all_correct",
    "rollout/solve_none": "rollout/frac_all_wrong",
    "rollout/truncated_right": "rollout/frac_truncated_correct",
    "rollout/truncated_wrong": "rollout/frac_truncated_incorrect",
    "update/clipped_share": "update/frac_clipped",
    "update/signal_share": "update/frac_nonzero_weight",
    "update/trained_share": "update/frac_trained",
    "verifier/unread": "verifier/plain_text",
}


def current_flag(flag: str) -> str:
    return FLAGS.get(flag, flag)


def current_value(flag: str, value: Any) -> Any:
    """The value of a flag that has its new name."""
    return VALUES.get(flag, {}).get(value, value) if isinstance(value, str) else value


def current_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A run's record with today's names of its method and its flags."""
    record = dict(record)
    if isinstance(algo := record.get("algo"), str):
        record["algo"] = METHODS.get(algo, algo)
    if isinstance(flags := record.get("flags"), dict):
        named = {current_flag(flag): value for flag, value in flags.items()}
        record["flags"] = {flag: current_value(flag, value) for flag, value in named.items()}
    return record
