"""Passwords in a command line: a server's, and wandb's key, which travels as a variable of the environment.

No record, print or command line of ours has them.
"""

import re
from collections.abc import Sequence

WANDB_KEY, REWARD = "--logger.wandb.key", "--reward.remote_url"
KEY_VARIABLE = "WANDB_API_KEY"
BY_VARIABLE = "env"  # as value of WANDB_KEY: wandb reads KEY_VARIABLE
HIDDEN = "***"
LOGIN = re.compile(r"(?<=://)[^/\s@'\"]+@")  # user and password in a URL
TYPED = re.compile(rf"({re.escape(WANDB_KEY)}[= ]+)(?!{BY_VARIABLE}\b)\S+")


def hidden(text: str) -> str:
    return TYPED.sub(rf"\1{HIDDEN}", LOGIN.sub(f"{HIDDEN}@", text) if "://" in text else text)


def hide(words: Sequence[str]) -> list[str]:
    """The words of a command line without secrets."""
    pairs = zip(["", *words], words, strict=False)
    return [HIDDEN if before == WANDB_KEY and word != BY_VARIABLE else hidden(word) for before, word in pairs]
