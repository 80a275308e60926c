"""Units: a factor and dimensions for those that convert, the words themselves for counted things."""

import contextlib
import re
from dataclasses import dataclass
from fractions import Fraction

from same_answer.reading.tex import CURRENCIES, Tokens, closing
from same_answer.reading.words import CHANGING

Dimensions = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Unit:
    """`factor` base units, such as 1/100 of a metre; an unknown unit and counted things have `words`."""

    factor: Fraction = Fraction(1)
    dimensions: Dimensions = ()
    words: str = ""


# symbol or words: factor, then dimensions. Months and years, Celsius and Fahrenheit do not convert.
_TABLE = """
m meter metre: 1 m | in inch inche: 0.0254 m | ft foot feet: 0.3048 m | yd yds yard: 0.9144 m | mi mile: 1609.344 m
angstrom Å: 1/10000000000 m | ly light-year: 1 ly | AU au: 1 au | pc parsec: 1 pc | g gram gm: 1 g
lb lbs pound: 453.59237 g | oz ounce: 28.349523125 g | ton tonne: 1 ton | s sec second: 1 s | min minute: 60 s
h hr hrs hour: 3600 s | day: 86400 s | week: 604800 s | month: 1 month | yr yrs year: 12 month
A amp ampere: 1 A | K kelvin: 1 K | mol mole: 1 mol | cd: 1 cd
J joule: 1000 g m^2 s^-2 | W watt: 1000 g m^2 s^-3 | N newton: 1000 g m s^-2 | Pa pascal: 1000 g m^-1 s^-2
V volt: 1000 g m^2 s^-3 A^-1 | C coulomb: 1 A s | F farad: 1/1000 g^-1 m^-2 s^4 A^2 | ohm Ω: 1000 g m^2 s^-3 A^-2
T tesla: 1000 g s^-2 A^-1 | G gauss: 1/10 g s^-2 A^-1 | H henry: 1000 g m^2 s^-2 A^-2 | Hz hertz: 1 s^-1
eV electronvolt: 1 eV | cal calorie: 4184/1000 cal | erg: 1/10000 g m^2 s^-2 | dyn dyne dynes: 1/100 g m s^-2
L l liter litre: 1/1000 m^3 | gal gallon: 1 gal | qt quart: 1 qt | pt pint: 1 pt | cup: 1 cup | M molar: 1000 mol m^-3
bar: 100000000 g m^-1 s^-2 | atm atmosphere: 101325000 g m^-1 s^-2 | rad radian: 1 rad | deg degree: 1 deg | ppm: 1 ppm
dollar USD usd buck: 100 cent | cent: 1 cent | euro EUR: 1 eur | sterling GBP: 1 gbp | yen JPY: 1 jpy
rupee INR: 1 inr | yuan RMB: 1 yuan | % percent pct percentage: 1 % | mph: 1397/3125 m s^-1
rpm: 1/60 rev s^-1 | rev revolution: 1 rev | Bq becquerel: 1 Bq | dB decibel: 1 dB | sr: 1 sr | byte: 8 bit
bit: 1 bit | mag magnitude: 1 mag | won: 1 krw | ruble rouble: 1 rub | Rs: 1 inr
"""
_PREFIXES = {"n": -9, "u": -6, "m": -3, "c": -2, "d": -1, "k": 3, "M": 6, "G": 9, "T": 12, "p": -12, "f": -15, "h": 2,
             "nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1, "kilo": 3, "mega": 6, "giga": 9,
             "tera": 12, "pico": -12, "hecto": 2}  # fmt: skip
_PREFIXED = frozenset(
    "m meter metre g gram gm s sec second A amp ampere K mol mole J joule W watt N newton Pa pascal V volt C coulomb "
    "F farad ohm Ω T tesla H henry Hz hertz eV electronvolt cal calorie L l liter litre M molar bar pc parsec byte "
    "bit Bq".split()
)
_DEGREES = ("C", "F", "Celsius", "Fahrenheit")
_POWERS = {"square": 2, "sq": 2, "cubic": 3}
_AFTER = {"squared": 2, "cubed": 3}
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# One letter in italics is a variable, and `mg` a product: these are units wherever they follow a number.
BARE = frozenset(
    "cm mm km kg ft mph inch inches feet foot yard yards mile miles hz Hz kJ eV keV MeV kW MW GHz MHz kHz nm mL ml hr "
    "hrs kPa".split()
)


def _table() -> dict[str, tuple[Fraction, dict[str, int]]]:
    units: dict[str, tuple[Fraction, dict[str, int]]] = {}
    currencies = [f"{code}: 1 {code.lower()}" for code in CURRENCIES]
    for line in (*re.split(r"[|\n]", _TABLE.strip()), *currencies):
        words, _, meaning = line.partition(":")
        factor, *parts = meaning.split()
        dimensions: dict[str, int] = {}
        for part in parts:
            name, _, power = part.partition("^")
            dimensions[name] = int(power or 1)
        units |= dict.fromkeys(words.split(), (Fraction(factor), dimensions))
    return units


_UNITS = _table()


def known(word: str) -> tuple[Fraction, dict[str, int]] | None:
    """The meaning of one unit, with its prefix; words may be plural and in capitals, symbols are as they are."""
    for spelled in (word, word.lower(), word.lower().removesuffix("s"), word.removesuffix("s")):
        if spelled in _UNITS and (len(spelled) > 2 or spelled == word or word.lower() in ("hz", "sec", "ml")):
            return _UNITS[spelled]
    for prefix, power in _PREFIXES.items():
        named = len(prefix) > 1  # kilo, before the name of a unit
        for spelled in (word, word.lower() if named else word):
            stem = spelled.removeprefix(prefix)
            stem = stem.removesuffix("s") if len(stem) > 3 else stem
            if stem != spelled and stem in _PREFIXED and named == (len(stem) > 3 or stem == "ohm" and named):
                factor, dimensions = _UNITS[stem]
                return factor * Fraction(10) ** power, dimensions
    return None


def unit(parts: Tokens) -> Unit | None:
    """The unit that the tokens after a value name; None if they are no unit and no counted thing."""
    text = "".join(token.text for token in parts)
    # "A m" is ampere metres, and "pm" picometres too, which `compare` knows
    if (len(parts) == 1 or "." in text) and text != "pm" and re.fullmatch(r"[ap]\.?m\.?|[AP]\.?M\.?", text):
        return Unit(words=text.lower().replace(".", ""))
    with contextlib.suppress(_NoUnit):
        return _Units(parts).read()
    return None


class _NoUnit(Exception):
    """These tokens are no unit."""


class _Units:
    def __init__(self, parts: Tokens):
        self.parts, self.at = parts, 0
        self.factor, self.dimensions = Fraction(1), dict[str, int]()
        self.words: list[str] = []

    def peek(self, ahead: int = 0) -> str:
        return self.parts[self.at + ahead].text if self.at + ahead < len(self.parts) else ""

    def read(self) -> Unit:
        sign, waiting = 1, 0
        while self.at < len(self.parts):
            kind, text, _ = self.parts[self.at]
            self.at += 1
            if text in (r"\cdot", ".", "(", ")", "[", "]", "{", "}", "-", "of", "the"):
                continue
            if text == "/" or text.lower() == "per":
                sign = -1
            elif text == r"\frac":
                middle = closing(self.parts, self.at)
                end = closing(self.parts, middle + 1)
                if self.peek() != "{" or end == middle + 1:  # 2\frac12 kg
                    raise _NoUnit
                for piece, power in ((self.parts[self.at + 1 : middle], 1), (self.parts[middle + 2 : end], -1)):
                    inner = _Units(piece)
                    inner.read()
                    self.multiply(inner.factor, inner.dimensions, power * sign)
                    self.words += inner.words
                self.at = end + 1
            elif text == r"\mu" and self.at < len(self.parts) and self.parts[self.at].kind in ("word", "letters"):
                self.word("u" + self.parts[self.at].text, sign * self.power(1))
            elif text == r"\Omega":
                self.word("ohm", sign * self.power(1, here=True))
            elif text == "%":
                self.multiply(Fraction(1), {"%": 1}, sign)
            elif text == "^" and r"\circ" in (self.peek(), self.peek(1)):
                self.at = closing(self.parts, self.at) + 1
                scale = self.peek()[0] if self.peek() in _DEGREES else ""
                self.at += bool(scale)
                self.multiply(Fraction(1), {"deg" + scale: 1}, sign)
            elif text.lower() in _POWERS:
                waiting = _POWERS[text.lower()]
            elif kind in ("word", "letters"):
                self.at -= 1
                self.word(text, sign * self.power(waiting or 1))
                waiting = 0
            else:
                raise _NoUnit
        if waiting:
            raise _NoUnit
        dimensions = tuple(sorted(item for item in self.dimensions.items() if item[1]))
        return Unit(self.factor, dimensions, " ".join(self.words))  # people per day has both

    def power(self, default: int, here: bool = False) -> int:
        """Pass the next token and an exponent after it, such as `^2` or `squared`; return the exponent."""
        self.at += not here
        texts = [token.text for token in self.parts[self.at : self.at + 5]]
        if texts[:1] == ["^"]:
            exponent = re.match(r"\{-?\d\}|-?\d", "".join(texts[1:]))
            if not exponent:
                raise _NoUnit
            self.at += 1 + len(exponent[0])  # a token for each character
            return int(exponent[0].strip("{}"))
        if texts[:1] and texts[0] in _AFTER and known(self.parts[self.at - 1].text):
            self.at += 1
            return _AFTER[texts[0]]
        return default

    def word(self, text: str, power: int) -> None:
        if text.lower() in CHANGING:
            raise _NoUnit
        meaning = known(text)
        if text in ("degrees", "degree") and self.peek() in _DEGREES:
            meaning = (Fraction(1), {"deg" + self.peek()[0]: 1})
            self.at += 1
        if meaning is None:
            self.words.append(text.lower().removesuffix("s"))
        else:
            self.multiply(*meaning, power)

    def multiply(self, factor: Fraction, dimensions: dict[str, int], power: int) -> None:
        self.factor *= factor**power
        for name, exponent in dimensions.items():
            self.dimensions[name] = self.dimensions.get(name, 0) + exponent * power
