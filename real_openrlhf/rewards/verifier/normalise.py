"""One spelling for one meaning: LaTeX and Unicode variants of an answer reduced to a common text. Pure, no maths."""

import re
import unicodedata

from real_openrlhf.rewards.verifier import numerals

# Unicode -> LaTeX. Superscripts are handled apart, because several in a row are one exponent.
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ",
    "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≃": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ",
    "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^{\circ}", "∘": r"\circ ", "√": r"\sqrt ", "′": "'",
    "’": "'", "″": "''", "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "⅕": r"\frac{1}{5}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}",
    "⅞": r"\frac{7}{8}", "⅙": r"\frac{1}{6}", "⅚": r"\frac{5}{6}", "∠": r"\angle ", "⌊": r"\lfloor ",
    "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle ", "⟩": r"\rangle ", "α": r"\alpha ",
    "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "θ": r"\theta ", "λ": r"\lambda ",
    "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ", "ω": r"\omega ", "ψ": r"\psi ",
    "Δ": r"\Delta ", "Ω": r"\Omega ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "，": ", ", "、": ", ", "；": "; ",
    "。": ".", "\u00a0": " ", "…": r"\ldots ", "⋯": r"\ldots ", "∖": r"\setminus ", "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "∼": r"\sim ", "≡": r"\equiv ", "∣": "|", "€": "", "£": "", "¥": "",
    "₹": "",
}  # fmt: skip
_SYMBOL_TABLE = str.maketrans(_SYMBOLS)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_LINED_DIGITS = re.compile("(?:\\d[\u0304\u0305])+")
_FULL_WIDTH = re.compile("[\uff01-\uff5e]")

_COMMANDS = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "sfrac": r"\frac", "nicefrac": r"\frac",
    "dbinom": r"\binom", "tbinom": r"\binom", "geq": r"\ge", "geqslant": r"\ge", "leq": r"\le", "leqslant": r"\le",
    "neq": r"\ne", "lt": "<", "gt": ">", "times": r"\cdot", "ast": r"\cdot", "div": "/", "infin": r"\infty",
    "varnothing": r"\emptyset", "degree": r"^{\circ}", "textdegree": r"^{\circ}", "lbrace": r"\{", "rbrace": r"\}",
    "lbrack": "[", "rbrack": "]", "langle": "(", "rangle": ")", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|",
    "lparen": "(", "rparen": ")", "simeq": r"\approx", "thickapprox": r"\approx", "doteq": r"\approx",
    "varphi": r"\phi", "varepsilon": r"\epsilon", "vartheta": r"\theta", "arctg": r"\arctan", "tg": r"\tan",
    "ctg": r"\cot", "cosec": r"\csc", "land": r"\text{and}", "lor": r"\text{or}", "vee": r"\text{or}",
    "wedge": r"\text{and}", "dots": r"\ldots", "cdots": r"\ldots", "colon": ":", "prime": r"\prime",
    "dotsc": r"\ldots", "dotsb": r"\ldots", "dotsm": r"\ldots", "lg": r"\log_{10}", "R": r"\mathbb{R}",
    "Reals": r"\mathbb{R}", "Z": r"\mathbb{Z}", "N": r"\mathbb{N}", "Q": r"\mathbb{Q}", "smallsetminus": r"\setminus",
    "backslash": r"\setminus", "bigcup": r"\cup", "bigcap": r"\cap", "lVert": "|", "rVert": "|",
    "imath": "i", "jmath": "j", "pounds": "", "euro": "", "textdollar": "",
    # layout only
    "left": "", "right": "", "middle": "", "big": "", "Big": "", "bigg": "", "Bigg": "", "bigl": "", "bigr": "",
    "Bigl": "", "Bigr": "", "biggl": "", "biggr": "", "Biggl": "", "Biggr": "", "displaystyle": "", "textstyle": "",
    "scriptstyle": "", "limits": "", "nolimits": "", "rm": "", "bf": "", "it": "", "quad": " ", "qquad": " ",
    "space": " ", "thinspace": " ", "enspace": " ", "negthinspace": "", "nobreak": "", "strut": "", "mathstrut": "",
    "underline": "",
    "ensuremath": "", "hline": "",
}  # fmt: skip
_COMMAND = re.compile(r"\\([a-zA-Z]+)[ \t]*")
_FONT = re.compile(
    r"\\(mathrm|mathbf|mathit|mathsf|mathtt|mathnormal|boldsymbol|bm|textrm|textbf|textit|textsf|texttt|textnormal"
    r"|textup|mbox|hbox|operatorname\*?|text)\s*\{([^{}]*)\}"
)
_UPRIGHT_UNITS = frozenset("msghLNJWKVAC")  # one-letter units where a variable would be in italics
_FUNCTIONS = (
    "arcsin arccos arctan sin cos tan cot sec csc sinh cosh tanh ln log exp gcd lcm max min det pi infty sqrt"
).split()
_BARE_FUNCTION = re.compile(rf"(?<![\\a-zA-Z])({'|'.join(_FUNCTIONS)}|infinity)(?![a-zA-Z])")
_ROOT_OF_PARENTHESES = re.compile(r"\\sqrt\s*\(([^()]*)\)")
_DOLLARS = re.compile(r"^[\s$]*\\\$\s*(\d[\d.,]*)[\s$]*$")
_DOLLAR_LIST = re.compile(r"\$\s*(,|;|and|or)\s*\$")
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_SPACE_COMMAND = re.compile(r"(?<!\\)\\[,;:> \n\t]|~")
_NEGATIVE_SPACE = re.compile(r"(?<!\\)\\!\s*")
_LINE_SPACING = re.compile(r"\\\\\s*\[[\d.]+\s*[a-z]{2}\]")  # the [4pt] of a new line
_LAYOUT = re.compile(r"\\(?:[hv]space\*?|color|textcolor)\s*\{[^{}]*\}")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z]{2}|[{}()\[\]%,;!])")
_NULL_DELIMITER = re.compile(r"\\(?:left|right)\s*\.(?!\d)")
_NOT_EQUAL = re.compile(r"(?<=[a-zA-Z\s])!=|\\not\s*=|=/=|<>")  # 5!=120 is a factorial
_FRACTION_OF_UNITS = re.compile(
    r"\\d?frac\{\s*\\(?:text|mathrm)\{([^{}]*)\}\s*\}\{\s*\\(?:text|mathrm)\{([^{}]*)\}\s*\}"
)
_UNIT_VECTOR = re.compile(
    r"\\(?:mathbf|boldsymbol|bm|hat|vec|overrightarrow)\s*\{?\s*\\?([ijk])(?:math)?(?![a-zA-Z])\s*\}?"
)
_ALL_REALS = re.compile(r"\\text\{\s*(?:all )?real(?:s| numbers)\s*\}")
_NUMBER_SET = re.compile(r"\\math(?:bb|bf)\s*\{?([RZNQC])\}?(?![a-zA-Z])")
_MODULUS = re.compile(r"\(?\s*\\(?:pmod|mod|text\{\s*mod\s*\})\s*\{?\s*(\w+)\s*\}?\s*\)?")
_EQUIVALENT = re.compile(r"\\equiv(?![a-zA-Z])")
_ABOUT = re.compile(r"^[\s{]*\\sim(?![a-zA-Z])")
_REVERSED_BRACKETS = re.compile(r"(?<![^\s])([\[\]])([^\[\](){},;]*[,;][^\[\](){},;]*)([\[\]])(?=\s*(?:\\cup|$))")
_TEXT_LIST = re.compile(r"\\text\{([^{}]*,[^{}]*|\w+ and \w+)\}")
_CHOOSE = re.compile(r"\{([^{}]*)\\choose([^{}]*)\}")
_SCIENTIFIC = re.compile(r"(?<![\w.\\}])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d+)(?!\w|\.\d)")
_BARE_POINT = re.compile(r"(?<![\d}])\.(?=\d)")
_END_POINT = re.compile(r"(?<=\d)\.(?!\d|\\(?:overline|bar|dot)|\(\d+\))")
_PRIMES = re.compile(r"(?<=[a-zA-Z)}])('+)")
_NUMBER_TO_NUMBER = re.compile(r"(?<=\d)\s*(?:\\text\{\s*to\s*\}|to)\s*(?=\d)")
_AND_OR = re.compile(r"(?<![\\a-zA-Z{])(?:,\s*)?(and|or)(?![a-zA-Z])")
_AND_OR_TEXT = re.compile(r"(?:,\s*)?\\text\{\s*,?\s*(and|or)\s*\}")
_TOKEN = re.compile(r"\\text\{[^{}]*\}|\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
_PUNCTUATION = " \t\r\n.,;:"


def normalise(answer: str) -> str:
    """The canonical text of an answer. Bounded work: callers refuse over-long and over-nested texts first."""
    text = _without_layout(_from_unicode(answer))
    text = text.replace("{,}", ",").replace("**", "^").replace("*", r"\cdot ").replace("...", r"\ldots ")
    text = _NOT_EQUAL.sub(r"\\ne ", text)
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("==", "=")
    text = _with_known_commands(text)
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    text = _BARE_FUNCTION.sub(lambda word: "\\" + word[1].replace("infinity", "infty") + " ", text)
    text = _ROOT_OF_PARENTHESES.sub(r"\\sqrt{\1}", text)
    text = _SCIENTIFIC.sub(r"\1\\cdot 10^{\2}", text)
    text = _BARE_POINT.sub("0.", text)
    text = _END_POINT.sub("", text)
    text = _PRIMES.sub(lambda quotes: "^{" + r"\prime" * len(quotes[1]) + "}", text)
    text = _NUMBER_TO_NUMBER.sub(":", text)
    text = _AND_OR_TEXT.sub(r" \\text{\1} ", text)
    text = _AND_OR.sub(r" \\text{\1} ", text)
    text = _congruence(text)
    text = _REVERSED_BRACKETS.sub(_interval_brackets, _ABOUT.sub("", text))
    return _trimmed(numerals.plain(_braced(text)))


def _without_layout(text: str) -> str:
    """No doubled backslashes, dollars, delimiters of formulas and spaces of LaTeX."""
    if r"\\begin" in text:
        text = text.replace("\\\\", "\\")
    elif r"\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    text = _DOLLARS.sub(r"\1\\text{ dollars}", text)
    text = text.replace(r"\$", "").replace(r"\#", "")
    text = _DOLLAR_LIST.sub(r" \1 ", text).replace("$", "")
    text = _LINE_SPACING.sub(r"\\\\", text)
    text = _DELIMITER.sub(" ", text)
    text = _NEGATIVE_SPACE.sub("", text)
    return _SPACE_COMMAND.sub(" ", _LAYOUT.sub("", text))


def _with_known_commands(text: str) -> str:
    """One command for one meaning; upright letters are text or units, letters in other fonts are themselves."""
    text = _NULL_DELIMITER.sub("", text)
    if len(set(_UNIT_VECTOR.findall(text))) > 1:
        text = _UNIT_VECTOR.sub(r"\\hat{\1}", text)
    text = _FRACTION_OF_UNITS.sub(r"\\text{\1/\2}", text)
    text = _COMMAND.sub(_command, text)
    text = _NUMBER_SET.sub(r"\\mathbb{\1}", text)
    text = _ALL_REALS.sub(r"\\mathbb{R}", _FONT.sub(_font, text))
    listed = _TEXT_LIST.fullmatch(text.strip())
    if listed:
        words = (
            word.strip().removeprefix("and ").removeprefix("or ").strip() for word in re.split(",| and ", listed[1])
        )
        text = ",".join(f"\\text{{{word}}}" for word in words if word)
    return text


def _congruence(text: str) -> str:
    r"""`1 \mod 4` as `1\pmod{4}`; without a modulus `\equiv` is an equals sign."""
    if r"\equiv" in text:
        text = text.replace(r"\bmod", r"\mod")
    changed = _MODULUS.sub(r"\\pmod{\1}", text)
    return changed if r"\pmod" in changed else _EQUIVALENT.sub("=", changed)


def _interval_brackets(interval: re.Match) -> str:
    return {"]": "(", "[": "["}[interval[1]] + interval[2] + {"[": ")", "]": "]"}[interval[3]]


def tokens(text: str) -> list[str]:
    """LaTeX tokens: a command, a `\\text{...}`, a run of spaces or a single character."""
    return _TOKEN.findall(text)


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
    text = _LINED_DIGITS.sub(lambda run: "\\overline{" + "".join(filter(str.isdigit, run[0])) + "}", text)
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + run[0].translate(_SUBSCRIPTS) + "}", text)
    text = _FULL_WIDTH.sub(lambda wide: unicodedata.normalize("NFKC", wide[0]), text.translate(_SYMBOL_TABLE))
    return "".join(letter for letter in text if unicodedata.category(letter) != "Cf")


def _command(match: re.Match) -> str:
    known = _COMMANDS.get(match[1])
    if known is None:
        return match[0]
    return known + " " if known.startswith("\\") and known[-1].isalpha() else known


def _font(match: re.Match) -> str:
    """Upright text stays text, a letter or number in any font is itself; `5\\,\\mathrm{m}` keeps its unit."""
    font, content = match[1], match[2].strip()
    before = match.string[: match.start()].rstrip()[-1:]
    if content in _FUNCTIONS and not (content == "min" and before.isdigit()):
        return f"\\{content} "
    is_unit = content not in "eid" and before.isdigit()
    if match.string[: match.start()].rstrip().endswith(r"}\cdot"):
        before = "}"
    is_unit |= content in _UPRIGHT_UNITS and before in ("/", "}") and font in ("mathrm", "text", "textrm", "mbox")
    if (len(content) == 1 and not is_unit) or content.replace(".", "").isdigit():
        return f" {content} "
    return f"\\text{{{content}}}"


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
        whole, end = _argument(parts, position + 1, digits=False)
        pieces = [whole]
        if parts[position] == r"\frac":
            other, end = _argument(parts, end, digits=False)
            pieces.append(other)
        return parts[position] + "".join(f"{{{piece}}}" for piece in pieces), end
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
        shorter = text.strip(_PUNCTUATION).removesuffix("\\").removeprefix("+")
        if shorter.startswith("{") and _closing(list(shorter), 0, "{", "}") == len(shorter) - 1:
            shorter = shorter[1:-1]
        if shorter == text:
            return text
        text = shorter
