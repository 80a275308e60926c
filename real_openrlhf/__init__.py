"""REAL (Rewards as Labels) on OpenRLHF. docs/change/method.md maps the paper's equations to this code."""

import importlib

__version__ = "0.3.0"
OPENRLHF_VERSION = "0.11.2"

__all__ = [
    "OPENRLHF_VERSION",
    "__version__",
    "check_whole_groups",
    "group_weights",
    "real_policy_loss",
    "token_log_probs",
]

PUBLIC = {
    "check_whole_groups": "real_openrlhf.algorithm.policy_loss",
    "group_weights": "real_openrlhf.algorithm.policy_loss",
    "real_policy_loss": "real_openrlhf.algorithm.policy_loss",
    "token_log_probs": "real_openrlhf.algorithm.token_log_probs",
}


def __getattr__(name: str) -> object:
    if name in PUBLIC:  # on first use, so that importing the package does not import torch
        return getattr(importlib.import_module(PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
