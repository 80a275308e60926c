"""REAL (Rewards as Labels) on OpenRLHF. See docs/method.md for the map from the paper's equations to this code."""

__version__ = "0.1.0"
OPENRLHF_VERSION = "0.11.2"
