"""REAL (Rewards as Labels) on OpenRLHF. See docs/method.md for the map from the paper's equations to this code."""

__version__ = "0.1.0"
OPENRLHF_VERSION = "0.11.2"

__all__ = ["OPENRLHF_VERSION", "__version__", "real_policy_loss"]


def __getattr__(name: str) -> object:
    if name == "real_policy_loss":  # on first use, so that importing the package does not import torch
        from real_openrlhf.algorithm.policy_loss import real_policy_loss

        return real_policy_loss
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
