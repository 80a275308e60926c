"""How flags are shown: one a line, with where each came from."""

from collections.abc import Mapping

from real_openrlhf.recipes.records import HIDDEN, SECRET
from real_openrlhf.recipes.setting import USER, Setting


def flag_lines(flags: Mapping[str, Setting]) -> list[str]:
    """One flag a line, in columns: the flag with its words, the origin, the note."""
    words = {flag: f"{flag} {_shown(flag, setting)}".strip() for flag, setting in flags.items()}
    left = min(max(map(len, words.values())), 60)
    middle = max(len(setting.origin) for setting in flags.values())
    return [
        f"{words[flag]:{left}}  {setting.origin:{middle}}  {setting.note}".rstrip() for flag, setting in flags.items()
    ]


def _shown(flag: str, setting: Setting) -> str:
    return HIDDEN if flag == SECRET else setting.text


def in_words(flag: str, setting: Setting | None) -> str:
    if setting is None:
        return "OpenRLHF's default"
    value = _shown(flag, setting) or "on"
    return value if setting.origin == USER else f"{value} ({setting.origin})"
