"""Secrets that a user types: wandb's key, and user and password in a URL.

They travel as variables of the environment. No other command line, print, record or log has them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

WANDB_KEY, REWARD = "--logger.wandb.key", "--reward.remote_url"
KEY_VARIABLE, URL_VARIABLE = "WANDB_API_KEY", "REAL_REMOTE_URL"
BY_VARIABLE = "env"  # as value of WANDB_KEY: the key is in KEY_VARIABLE
HIDDEN = "***"
LOGIN = re.compile(r"(?<=://)[^/\s@'\"]+@")

TYPED = re.compile(rf"({re.escape(WANDB_KEY)}[= ]+)(?!{BY_VARIABLE}\b)\S+")

Flags = dict[str, tuple[str, ...]]


class Secret(str):
    """A text that OpenRLHF's print of all flags does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(without_login(str(self)))

    def split(self, *given: Any) -> list[str]:
        return [Secret(part) for part in super().split(*given)]


def without_login(text: str) -> str:
    """Hides user and password of each URL in the text."""
    return LOGIN.sub(f"{HIDDEN}@", text) if "://" in text else text


def hidden(text: str) -> str:
    """The text without secrets."""
    return TYPED.sub(rf"\1{HIDDEN}", without_login(text))


def taken_out(flags: Mapping[str, tuple[str, ...]]) -> tuple[Flags, dict[str, str]]:
    """The flags without secrets, and {variable: secret}."""
    found, secrets = dict(flags), {}
    if (key := " ".join(found.get(WANDB_KEY, ()))) not in ("", BY_VARIABLE):
        found[WANDB_KEY], secrets[KEY_VARIABLE] = (BY_VARIABLE,), key
    if (url := " ".join(found.get(REWARD, ()))) != without_login(url):
        found[REWARD], secrets[URL_VARIABLE] = (without_login(url),), url
    return found, secrets


def put_back(url: str | None, environment: Mapping[str, str]) -> str | None:
    """The value of REWARD with user and password, in a process of the run."""
    typed = Secret(environment.get(URL_VARIABLE, ""))
    return typed if url and url == without_login(typed) else url


def hide(words: Sequence[str]) -> list[str]:
    """The words of a command line without secrets."""
    pairs = zip(["", *words], words, strict=False)
    return [HIDDEN if before == WANDB_KEY and word != BY_VARIABLE else hidden(word) for before, word in pairs]


def has_one(words: Sequence[str]) -> bool:
    return hide(words) != [*words]
