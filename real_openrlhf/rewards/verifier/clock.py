"""Times of day: `12:00` is no quotient. Two times are compared as times, a time and a number are not."""

import re
from typing import NamedTuple

_TIME = re.compile(
    r"^(\d{1,2}):(\d{2})(?::(\d{2}))? ?(?:\\text\{ *)?"
    r"(?:([aApP])\.? ?[mM]\.?|o(?:'|\^\{\\prime\})clock|hours?|h)? *\}?$"
)
_HOUR = re.compile(r"^(\d{1,2}) ?(?:\\text\{ *)?([aApP])\.? ?[mM]\.? *\}?$")
_HALF_DAY = 12 * 3600


class Time(NamedTuple):
    """Seconds since midnight, or since noon or midnight where the text does not say which."""

    seconds: int
    of_day: bool

    def same(self, other: "Time") -> bool:
        if self.of_day and other.of_day:
            return self.seconds == other.seconds
        return self.seconds % _HALF_DAY == other.seconds % _HALF_DAY


def time_of_day(text: str) -> Time | None:
    """The time that a normalised text says; None for anything else, `14:60` and `1:4` among it."""
    if text.startswith(r"\text{") and text.endswith("}") and text.count("{") == 1:
        text = text[6:-1].strip()
    match = _TIME.match(text)
    if match:
        hour, minute, second, half = int(match[1]), int(match[2]), int(match[3] or 0), match[4]
    else:
        match = _HOUR.match(text)
        if match is None:
            return None
        hour, minute, second, half = int(match[1]), 0, 0, match[2]
    if hour > 24 or minute > 59 or second > 59 or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half in "pP" else 0)
    seconds = 3600 * hour + 60 * minute + second
    return Time(seconds % (2 * _HALF_DAY), bool(half) or hour > 12 or hour == 0)
