"""One spelling for one meaning: LaTeX and Unicode variants of an answer reduced to a common text. No maths."""

import re
import unicodedata
from fractions import Fraction

# Unicode -> LaTeX. Superscripts, subscripts and fractions are handled apart.
_SYMBOLS = str.maketrans({
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ",
    "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≃": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ",
    "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^{\circ}", "∘": r"\circ ", "√": r"\sqrt ", "′": "'",
    "’": "'", "″": "''", "∠": r"\angle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "θ": r"\theta ",
    "λ": r"\lambda ", "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ", "ω": r"\omega ",
    "Δ": r"\Delta ", "Ω": r"\Omega ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "\u00a0": " ", "…": r"\ldots ",
    "⟨": "(", "⟩": ")", "∖": r"\setminus ", "∣": "|", "€": "", "£": "",
    "（": "(", "）": ")", "，": ",", "、": ",", "。": ".", "－": "-", "／": "/", "：": ":", "；": ";",
    "＝": "=", "＋": "+",
})  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_FRACTION_CHARACTER = re.compile("[¼½¾⅐-⅞]")

_COMMANDS = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "dbinom": r"\binom", "tbinom": r"\binom",
    "geq": r"\ge", "geqslant": r"\ge", "leq": r"\le", "leqslant": r"\le", "neq": r"\ne", "lt": "<", "gt": ">",
    "times": r"\cdot", "ast": r"\cdot", "div": "/", "varnothing": r"\emptyset", "degree": r"^{\circ}",
    "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]", "langle": "(", "rangle": ")",
    "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "lVert": "|", "rVert": "|", "simeq": r"\approx",
    "varphi": r"\phi", "varepsilon": r"\epsilon", "land": r"\text{and}", "lor": r"\text{or}", "dots": r"\ldots",
    "cdots": r"\ldots", "colon": ":", "prime": r"\prime", "bmod": r"\mod", "backslash": r"\setminus",
    # layout only
    "left": "", "right": "", "middle": "", "big": "", "Big": "", "bigg": "", "Bigg": "", "bigl": "", "bigr": "",
    "Bigl": "", "Bigr": "", "displaystyle": "", "textstyle": "", "limits": "", "rm": "", "bf": "",
    "large": "", "Large": "", "LARGE": "", "huge": "", "Huge": "", "small": "",
    "quad": " ", "qquad": " ",
}  # fmt: skip
_COMMANDS |= {name: f"{one} " for name, one in _COMMANDS.items() if re.search(r"\\[a-zA-Z]+$", one)}
_COMMAND = re.compile(r"\\([a-zA-Z]+)[ \t]*")
_FONT = re.compile(
    r"\\(mathrm|mathbf|mathit|mathsf|mathtt|boldsymbol|bm|textrm|textbf|textit|textnormal|mbox|hbox"
    r"|operatorname\*?|text)\s*\{([^{}]*)\}"
)
_BOLD = re.compile(  # around a formula; what it holds has no braces but those of one level
    r"\\(?:mathbf|boldsymbol|bm|(?:text)?color\{[a-z]+\})\s*\{((?=[^{}]*[\d\\(])(?:[^{}]|\{[^{}]*\})*)\}"
)
_ENDING = r"\\(?:text|mathrm|textrm)\{\s*(?:st|nd|rd|th)\s*\}"
_ORDINAL = re.compile(
    rf"(?<=\d)\s*(?:\^\{{(?:{_ENDING}|st|nd|rd|th)\}}|\^?{_ENDING})"
)  # not bare: 2nd may be a product
_CHOOSE = re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}")
_SAID = re.compile(r"^\s*(?:\\text\{\s*(?:the )?(?:final )?answer(?: is)?:?\s*\}:?|(?:final )?answer:|=)\s*", re.I)
_UPRIGHT_UNITS = frozenset("msghLNJWKVAC")  # one-letter units where a variable would be in italics
_FUNCTIONS = (
    "arcsin arccos arctan sin cos tan cot sec csc sinh cosh tanh ln log exp gcd lcm max min det pi infty sqrt"
).split()
_BARE_FUNCTION = re.compile(rf"(?<![\\a-zA-Z])({'|'.join(_FUNCTIONS)})(?![a-zA-Z])")
_DOLLARS = re.compile(r"^[\s$]*\\\$\s*(\d[\d.,]*)[\s$]*$")
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_SPACE_COMMAND = re.compile(r"(?<!\\)\\[,;:> \n\t]|~")
_NEGATIVE_SPACE = re.compile(r"(?<!\\)\\!\s*")
_NOT_EQUAL = re.compile(r"(?<=[a-zA-Z\s])!=|\\not\s*=")  # 5!=120 is a factorial
_ALL_REALS = re.compile(
    r"^(?:[a-z]\s*\\in\s*)?(?:\\mathbb\s*\{?R\}?|\\text\{\s*(?:[aA]ll )?[rR]eal(?:s| numbers)\s*\})$"
)
_TEXT_LIST = re.compile(r"\\text\{([^{}]*,[^{}]*|\w+ and \w+)\}")
_SCIENTIFIC = re.compile(r"(?<![\w.\\}])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d+)(?!\w|\.\d)")
_BARE_POINT = re.compile(r"(?<![\d}])\.(?=\d)")
_END_POINT = re.compile(r"(?<=\d)\.(?!\d|\\(?:overline|bar|dot)|\(\d+\))")
_RECURRING = re.compile(
    r"(?<![\d}])(\d*)\.(\d*)(?:\\(?:overline|bar|dot) ?(?:\{(\d{1,40})\}|(\d))(?!\d*\\dot)|\((\d{1,40})\)(?![\d^!(]))"
)
_SCALES = {"thousand": 3, "million": 6, "billion": 9}
_SCALED = re.compile(rf"(?<=[\d}}]) ?(?:\\text\{{ *({'|'.join(_SCALES)})\b([^{{}}]*)\}}|({'|'.join(_SCALES)})\b)")
_PRIMES = re.compile(r"(?<=[a-zA-Z)}])('+)")
_AND_OR = re.compile(r"(?<![\\a-zA-Z{])(?:,\s*)?(and|or)(?![a-zA-Z])")
_AND_OR_TEXT = re.compile(r"(?:,\s*)?\\text\{\s*,?\s*(and|or)\s*\}")
_TOKEN = re.compile(r"\\text\{[^{}]*\}|\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
OPENING = ("(", "[", "{", r"\{", r"\lfloor", r"\lceil")
CLOSING = (")", "]", "}", r"\}", r"\rfloor", r"\rceil")
_SEPARATORS = (",", ";", r"\cup", r"\text{and}", r"\text{or}")
_THOUSANDS = re.compile(r"(?:[-$]|\\cdot ?|^)*\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)")
# The digits before a comma of thousands, with what may stand before them, and those after it.
_GROUP, _NEXT_GROUP = re.compile(r"(?:^|[\s=<>+\-($}])[1-9]\d{0,2}(?:,\d{3})*$"), re.compile(r"\d{3}(?!\d)")
PUNCTUATION = " \t\r\n.,;:"


def normalise(answer: str) -> str:
    """The canonical text of an answer. Bounded work: callers refuse over-long and over-nested texts first."""
    text = _from_unicode(answer)
    text = _BOLD.sub(r" \1 ", _SAID.sub("", text))
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", _ORDINAL.sub("", text))
    text = _DOLLARS.sub(r"\1\\text{ dollars}", text)
    text = _DELIMITER.sub(" ", text.replace(r"\$", "").replace("$", " "))
    text = _SPACE_COMMAND.sub(" ", _NEGATIVE_SPACE.sub("", text))
    text = text.replace("{,}", ",").replace("**", "^").replace("*", r"\cdot ").replace("...", r"\ldots ")
    text = _NOT_EQUAL.sub(r"\\ne ", text)
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("==", "=")
    text = _with_known_commands(text)
    text = _BARE_FUNCTION.sub(r"\\\1 ", text)
    text = _SCIENTIFIC.sub(r"\1\\cdot 10^{\2}", text)
    text = _BARE_POINT.sub("0.", text)
    text = _RECURRING.sub(_recurring, _END_POINT.sub("", text))
    text = _PRIMES.sub(lambda quotes: "^{" + r"\prime" * len(quotes[1]) + "}", text)
    text = _AND_OR_TEXT.sub(r" \\text{\1} ", text)
    text = _AND_OR.sub(r" \\text{\1} ", text)
    text = _SCALED.sub(
        lambda word: (
            f"\\cdot 10^{{{_SCALES[word[1] or word[3]]}}}" + rf"\text{{{word[2]}}}" * bool((word[2] or "").strip())
        ),
        text,
    )
    return _trimmed(_without_thousands(_braced(text)))


def tokens(text: str) -> list[str]:
    """LaTeX tokens: a command, a `\\text{...}`, a run of spaces or a single character."""
    return _TOKEN.findall(text)


def split(text: str, separators: tuple[str, ...] = _SEPARATORS, thousands: bool = True) -> list[str]:
    """The parts between top-level separators; the comma of 1,234 is none, but that of (1,234) is."""
    if thousands and _THOUSANDS.fullmatch(text):
        return [text]
    pieces: list[str] = [""]
    depth = 0
    for token in tokens(text):
        depth += (token in OPENING or token == r"\begin") - (token in CLOSING or token == r"\end")
        if depth == 0 and token in separators:
            pieces.append("")
        else:
            pieces[-1] += token
    return [piece.strip() for piece in pieces if piece.strip()] or [text]


def _without_thousands(text: str) -> str:
    """`x=1,234`, `1,250\\text{ m}`: no comma beside a name or unit, where each could only be one of thousands."""
    if "," not in text or _THOUSANDS.fullmatch(text):
        return text
    parts, depth, commas = tokens(text), 0, []
    for position, token in enumerate(parts):
        depth += (token in OPENING or token == r"\begin") - (token in CLOSING or token == r"\end")
        if token == "," and depth == 0:
            commas.append(position)
    around = [("".join(parts[:at]), "".join(parts[at + 1 :])) for at in commas]
    if not all(_GROUP.search(before) and _NEXT_GROUP.match(after) for before, after in around):
        return text
    return "".join(token for position, token in enumerate(parts) if position not in commas)


def denominators(text: str) -> list[str]:
    """What stands below the line of each fraction, also of those inside others."""
    parts, found = tokens(text), []
    for position, token in enumerate(parts):
        if token == r"\frac":
            start = _closing(parts, position + 1, "{", "}") + 1
            found.append("".join(parts[start + 1 : _closing(parts, start, "{", "}")]))
    return found


def _from_unicode(text: str) -> str:
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + run[0].translate(_SUBSCRIPTS) + "}", text)
    text = _FRACTION_CHARACTER.sub(
        lambda one: _fraction(*unicodedata.normalize("NFKC", one[0]).split("⁄")), text
    ).translate(_SYMBOLS)
    return "".join(letter for letter in text if unicodedata.category(letter) != "Cf")


def _with_known_commands(text: str) -> str:
    """One command for one meaning; upright letters are text or units, letters in other fonts are themselves."""
    text = _FONT.sub(_font, _COMMAND.sub(lambda command: _COMMANDS.get(command[1], command[0]), text))
    if _ALL_REALS.match(text.strip()):
        return r"(-\infty,\infty)"
    listed = _TEXT_LIST.fullmatch(text.strip())
    if listed:
        return ",".join(f"\\text{{{word.strip()}}}" for word in re.split(r",|\band\b", listed[1]) if word.strip())
    return text


def _font(match: re.Match) -> str:
    """Upright text stays text, a letter or number in any font is itself; `5\\,\\mathrm{m}` keeps its unit."""
    font, content = match[1], match[2].strip()
    before = match.string[: match.start()].rstrip()[-1:]
    if content in _FUNCTIONS and not (content == "min" and before.isdigit()):
        return f"\\{content} "
    is_unit = content not in "eid" and before.isdigit()
    is_unit |= content in _UPRIGHT_UNITS and before in ("/", "}") and font in ("mathrm", "text", "textrm", "mbox")
    if (len(content) == 1 and not is_unit) or content.replace(".", "").replace(",", "").isdigit():
        return f" {content} "
    return f"\\text{{{content}}}"


def _recurring(number: re.Match) -> str:
    whole, fixed, period = number[1], number[2], number[3] or number[4] or number[5]
    value = Fraction(
        int(whole + fixed + period) - int(whole + fixed or "0"), 10 ** len(fixed) * (10 ** len(period) - 1)
    )
    return _fraction(value.numerator, value.denominator)


def _fraction(above: object, below: object) -> str:
    return f"\\frac{{{above}}}{{{below}}}"


def _braced(text: str) -> str:
    """Braces around every argument of a fraction, root, binomial, exponent and index; no needless spaces."""
    parts = tokens(text)
    out: list[str] = []
    position = 0
    while position < len(parts):
        token = parts[position]
        position += 1
        if token in (r"\frac", r"\binom"):
            numerator, position = _argument(parts, position, digits=False)
            denominator, position = _argument(parts, position, digits=False)
            out.append(f"{token}{{{numerator}}}{{{denominator}}}")
        elif token == r"\sqrt":
            position = _skip_spaces(parts, position)
            index = ""
            if position < len(parts) and parts[position] == "[":
                closing = parts.index("]", position) if "]" in parts[position:] else position
                index = "".join(parts[position : closing + 1])
                position = closing + 1
            radicand, position = _argument(parts, position, digits=True)
            out.append(f"{token}{'' if index == '[2]' else index}{{{radicand}}}")
        elif token in "^_":
            script, position = _argument(parts, position, digits=True)
            out.append(f"{token}{{{script}}}")
        elif token.isspace():
            out.append(_kept_space(out, parts, position))
        else:
            out.append(token)
            if token[0] == "\\" and token[-1].isalpha() and position < len(parts) and parts[position].isalpha():
                out.append(" ")
    return "".join(out)


def _argument(parts: list[str], position: int, digits: bool) -> tuple[str, int]:
    """One argument: a group, a number where `digits` run together (`x^10`), else one token as TeX would."""
    position = _skip_spaces(parts, position)
    if position >= len(parts):
        return "", position
    if parts[position] == "{":
        end = _closing(parts, position, "{", "}")
        return _braced("".join(parts[position + 1 : end])).strip(), end + 1
    end = position + 1
    if digits:
        if parts[position] == "(":
            end = _closing(parts, position, "(", ")")
            return _braced("".join(parts[position + 1 : end])).strip(), end + 1
        if parts[position] in "+-":
            end += 1
        while end < len(parts) and parts[end].isdigit() and parts[end - 1] in "+-0123456789":
            end += 1
    if parts[position] in (r"\frac", r"\sqrt"):  # \sqrt\frac{1}{2}
        command, end = parts[position], position + 1
        for _ in range(1 + (command == r"\frac")):
            piece, end = _argument(parts, end, digits=False)
            command += f"{{{piece}}}"
        return command, end
    return "".join(parts[position:end]).strip(), end


def _skip_spaces(parts: list[str], position: int) -> int:
    while position < len(parts) and parts[position].isspace():
        position += 1
    return position


def _closing(parts: list[str], position: int, opening: str, closing: str) -> int:
    depth = 0
    for index in range(position, len(parts)):
        depth += (parts[index] == opening) - (parts[index] == closing)
        if depth == 0:
            return index
    return len(parts)


def _kept_space(out: list[str], parts: list[str], position: int) -> str:
    """A space counts after a command, between words, and before a digit (`1, 234` and `2 1/2`)."""
    before = out[-1][-1] if out and out[-1] else ""
    after = parts[position][0] if position < len(parts) else ""
    if out and out[-1][:1] == "\\" and before.isalpha() and after.isalpha():
        return " "
    if after.isdigit() and (before.isdigit() or before == ","):
        return " "
    return " " if before.isalpha() and after.isalpha() and out[-1][:1] != "\\" else ""


def _trimmed(text: str) -> str:
    """No punctuation, plus sign or needless braces around the whole."""
    while True:
        shorter = text.strip(PUNCTUATION).removesuffix("\\").removeprefix("+")
        if shorter.startswith("{") and _closing(list(shorter), 0, "{", "}") == len(shorter) - 1:
            shorter = shorter[1:-1]
        if shorter == text:
            return text
        text = shorter
