"""From the text of an answer to its tokens; all Unicode and font variants of a sign give one token. No maths."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from same_answer.reading.words import MEANINGS, NUMERALS


class Token(NamedTuple):
    """`kind` is number, letters, word (upright), command or sign; `spaced` says that a space stood before it."""

    kind: str
    text: str
    spaced: bool = False


Tokens = tuple[Token, ...]

_SYMBOLS = str.maketrans({
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\cdot ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ",
    "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≃": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ",
    "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^{\circ}", "∘": r"\circ ", "√": r"\sqrt ", "′": "'",
    "’": "'", "″": "''", "∠": r"\angle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "θ": r"\theta ",
    "λ": r"\lambda ", "μ": r"\mu ", "µ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ",
    "ω": r"\omega ", "Δ": r"\Delta ", "Ω": r"\Omega ", "Å": r"\text{angstrom}", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "\u00a0": " ", "…": r"\ldots ", "⟨": "(", "⟩": ")", "∖": r"\setminus ", "∣": "|", "、": ",", "。": ".",
    "º": r"^{\circ}", "≡": r"\equiv ",
} | {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)})  # fmt: skip
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega Gamma "
    "Delta Theta Lambda Xi Pi Sigma Phi Psi Omega vartheta Upsilon upsilon iota pi"
).split()
# Codes of currencies that have no sign or word in the table of units.
CURRENCIES = "CHF CAD AUD NZD SGD HKD CNY KRW RUB SEK NOK DKK PLN CZK HUF BRL MXN ZAR TRY THB".split()
_CURRENCIES = {"$": "dollars", "€": "euros", "£": "sterling", "¥": "yen", "₹": "rupees", "₩": "won", "₽": "rubles"}
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "₀₁₂₃₄₅₆₇₈₉"
_PLAIN = str.maketrans(_RAISED + _LOWERED, "0123456789+-n0123456789")
_COMMANDS = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "dbinom": r"\binom", "tbinom": r"\binom",
    "geq": r"\ge", "geqslant": r"\ge", "leq": r"\le", "leqslant": r"\le", "neq": r"\ne", "lt": "<", "gt": ">",
    "times": r"\cdot", "ast": r"\cdot", "div": "/", "varnothing": r"\emptyset", "degree": r"^{\circ}",
    "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]", "langle": "(", "rangle": ")",
    "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "lVert": "|", "rVert": "|", "simeq": r"\approx",
    "varphi": r"\phi", "varepsilon": r"\epsilon", "wedge": r"\land", "vee": r"\lor",
    "dots": r"\ldots", "cdots": r"\ldots", "colon": ":", "pmod": r"\mod", "pod": r"\mod",
    "prime": "'", "bmod": r"\mod", "backslash": r"\setminus", "smallsetminus": r"\setminus", "infin": r"\infty",
    "ell": "l", "imath": "i", "jmath": "j", "textdegree": r"^{\circ}", "implies": r"\Rightarrow",
    "pounds": "£", "euro": "€", "yen": "¥", "textdollar": r"\$",
    "iff": r"\Rightarrow", "Leftrightarrow": r"\Rightarrow", "longrightarrow": r"\to", "rightarrow": r"\to",
    **dict.fromkeys("quad qquad square blacksquare hfill enspace thinspace".split(), " "),  # these are layout only
    **dict.fromkeys("""left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr displaystyle textstyle
        limits rm bf large Large LARGE huge Huge small normalsize nonumber sim mathopen mathclose""".split(), ""),
}  # fmt: skip
_UPRIGHT = ("mathrm", "textrm", "textbf", "textit", "textnormal", "textsf", "texttt", "mbox", "hbox", "operatorname",
            "text", "rm", "mathop", "textup")  # fmt: skip
_FONTS = ("mathbf", "boldsymbol", "bm", "mathit", "mathsf", "mathtt", "pmb", "color", "textcolor", "colorbox",
          "underline", "boxed", "fbox", "displaylines")  # fmt: skip
INVERTIBLE = ("sinh", "cosh", "tanh", "coth", "sech", "csch", "sin", "cos", "tan", "cot", "sec", "csc")
FUNCTIONS = (*(f"arc{name}" for name in INVERTIBLE), *INVERTIBLE, "ln", "log", "lg", "exp", "gcd", "lcm", "max", "min",
             "det", "deg", "sinc")  # fmt: skip
_ALIASES = {
    "tg": "tan", "ctg": "cot", "cotg": "cot", "cotan": "cot", "cosec": "csc", "cosech": "csch", "arctg": "arctan",
    "arcctg": "arccot",
} | {f"{prefix}{name}": f"arc{name}" for prefix in ("ar", "a") for name in INVERTIBLE if name[-1] == "h"}  # fmt: skip
_NAMED = (*FUNCTIONS, "pi", "infty", "sqrt", "cup", "cap")
_JOINED = re.compile(f"({'|'.join(sorted((*FUNCTIONS, *GREEK, 'lceil', 'lfloor'), key=len, reverse=True))})[a-zA-Z]")
_LAYOUT = re.compile(
    r"\\begin\s*\{(?:aligned|align\*?|gathered|split|equation\*?|center)\}|\\end\s*\{(?:aligned|align\*?|gathered|split|equation\*?|center)\}"
    r"|\\(?:phantom|hspace|vspace|hphantom)\*?\s*\{[^{}]*\}|\\(?:text)?color(?:box)?\s*\{[^{}]*\}|\\tag\*?\s*\{[^{}]*\}|\\renewcommand\s*\{[^{}]*\}\s*\{[^{}]*\}|^\s*\*\*|\*\*\s*\.?\s*$"
    r"|(?<=\\\\)\s*\[-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\]"
)
_SPACE = re.compile(r"(?<!\\)\\[,;:> \n\t]|~|\$|(?<!\\)\\[()\[\]]|\\(?:mathstrut|strut|relax)(?![a-zA-Z])")
_CODE = f"{'|'.join(('USD', 'EUR', 'GBP', 'JPY', 'INR', 'Rs', *CURRENCIES))}"
_MONEY = re.compile(
    rf"(?:(?<![a-zA-Z\\])(?:US|CA?|AU?|HK|NZ|S)(?=\\\$))?\\?(?:([$€£¥₹₩₽])|(?<![a-zA-Z])({_CODE})\.?(?![a-zA-Z]))[\s~]*"
    r"(\d[\d.,]*(?<=\d)(?:\s*\\text\{\s*(?:thousand|[mb]illion)\s*\})?)"
)
_SIGN_ALONE = re.compile(r"\\(?:text|mathrm)\s*\{\s*(\\\$|[€£¥₹₩₽])\s*\}")
_SIGN_BEHIND = re.compile(r"(?<=\d)\s*(?:\\(\$)|([€£¥₹₩₽]))")
_OPEN_ENDS = re.compile(  # ]0,1[ and [0,1[
    r"(?:(?<![^\s=,;(])|(?<=\\cup)|(?<=\\in))(\])([^][(),;]*[^][(),;\s][,;][^][(),;]+)([][])"
    r"|(\[)([^][(),;]*[^][(),;\s][,;][^][(),;]+)(?<!\\sqrt)(\[)(?=\s*(?:$|[.,;]|\\[a-z]))"
)
_CODED = re.compile(rf"\\(?:text|mathrm)\s*\{{\s*({_CODE})\.?\s*\}}(?=[\s~]*\\?[\d$])")
_GROUPED = re.compile(r"(?<=\d)(?:\{,\}|,\s*\\!|\\,)\s*(?=\d{3}(?!\d))")
_SCIENTIFIC = re.compile(
    r"(?<![\w.\\}])(\d+(?:\.\d*)?|\.\d+)\s*(?:\\text\{)?[eE]([+-]?)\}?\{?([+-]?\d+)\}?(?!\w|\.\d)"
    r"|(?<=\d) ?[xX] ?(?=10\s*\^)"
)
_PERIOD = re.compile(
    r"(?<![\d}])(\d*)\.(\d*)(?:\\(?:overline|bar|dot) ?(?:\{(\d{1,40})\}|(\d))(?!\d*\\dot)|\((\d{1,40})\)(?![\d^!(]))"
    r"|(?<![\d}])(\d*)\.(\d*?)(\d{2,6}?|\d(?=(\d)\9))\8+(?: ?\\ldots)"
)
_ORDINAL = re.compile(
    r"(?<=\d)\s*\^?\s*(?:\{?\s*\\(?:text|mathrm|textrm|textsuperscript)\{\s*(?:st|nd|rd|th)\s*\}\s*\}?|\{(?:st|nd|rd|th)\}|(?:st|rd|th)\b)"
)
_RAISED_O = re.compile(r"\^\s*\{?\s*(?:\\(?:text|mathrm|textrm)\s*\{\s*o\s*\}|(?<=[{])o|(?<=\d\^)o(?![a-z]))\s*\}?")
_COMBINATIONS = re.compile(r"\{\}\s*_\{?(\w+)\}?\s*(?:\\(?:mathrm|text)\{C\}|C)\s*_\{?(\w+)\}?")
_CHOOSE = re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}")
_OVER = re.compile(r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}")
_SLANTED = re.compile(r"\^\{?(\d+)\}?\s*/\s*_\{?(\d+)\}?")
_DOTS = re.compile(r"(?<=\d)\.(\d*)\\dot\s*\{?(\d)\}?(\d*)\\dot\s*\{?(\d)\}?")
_EXCEPT = re.compile(
    r"\\text\s*\{\s*(?:all )?real(?:s| numbers?) (?:except|but|other than)(?: for)?\s*\}(?:\s*[a-z]\s*=)?",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"\\text\s*\{\s*(\(?)\s*(?:or )?(?:approximately|approx\.?|about|roughly)\s*\}"
    r"|^\s*()(?:[aA]pproximately|[aA]pprox\.?|[aA]bout|[rR]oughly)(?=[\s~]*\\?[\d$])"
)
_EXCITED = re.compile(r"(?<=\s)([a-z]{3,}\}?)!+(?=\s*\}?\s*$)")  # 187 raspberries!
_MINUTES = re.compile(r"(?<=\d)\s*min(?:\.|(?![a-zA-Z({_\\]))")
_NOT = re.compile(r"(?<=[a-zA-Z\s])!=|\\not\s*=")  # 5!=120 is a factorial
_COMMAND = re.compile(r"\\([a-zA-Z]+)\*?[ \t]*")
_TOKEN = re.compile(
    r"(\s*)(?:\\(begin|end)\s*\{\s*([a-z]+)\*?\s*\}(\{[lcr| ]*\}|(?=))"
    r"|(\d+(?:\.\d+)?|\.\d+)|\\([a-zA-Z]+)|([a-zA-Z]+)|(\\.|\S))",
    re.DOTALL,
)
_WORD_SIGNS = "'-"


def clean(answer: str) -> str:
    """The text in one spelling of signs and commands, without layout. Callers refuse long texts first."""
    text = in_english(_from_unicode(answer))
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)  # backslashes that a program doubled
    for pattern, replacement in _REWRITINGS:
        text = pattern.sub(replacement, text)
    return text.strip().lstrip(",;:").rstrip(" \t\r\n.,;:")


def is_recurring(answer: str) -> bool:
    return _PERIOD.search(_from_unicode(answer)) is not None


def _scientific(match: re.Match) -> str:
    return rf"{match[1]}\cdot 10^{{{match[2]}{match[3]}}}" if match[1] else r"\cdot "


def _money(match: re.Match) -> str:
    """An amount with its currency as a unit; a dollar sign without a backslash stays: it begins a formula."""
    return match[0] if match[0].startswith("$") else f"{match[3]}\\text{{ {match[2] or _CURRENCIES[match[1]]}}}"


def _open_ends(match: re.Match) -> str:
    opening, ends, last = filter(None, match.groups())
    return f"{'(' if opening == ']' else '['}{ends}{')' if last == '[' else ']'}"


def _known_command(match: re.Match) -> str:
    """A command in one spelling; `\\pik`, which TeX never has, is `\\pi k`. `\\lnot` and `\\sinus` are no products."""
    if match[1] in _ALIASES:
        return f"\\{_ALIASES[match[1]]} "
    if match[1] not in (*FUNCTIONS, *_COMMANDS, *GREEK) and (joined := _JOINED.fullmatch(match[1])):
        return f"\\{joined[1]} {match[0][1 + joined.end(1) :]}"
    return _COMMANDS[match[1]] + " " if match[1] in _COMMANDS else match[0]


@lru_cache(maxsize=4096)
def tokens(text: str) -> Tokens:
    """The tokens of a cleaned text, commas of thousands taken out."""
    return tuple(_merged(_numerals(_scanned(text, False))))


def untokenize(parts: Tokens) -> str:
    """The tokens as text, without fonts; spaces only between two words, two numbers, or after a command."""
    out, last = "", ""
    for token in parts:
        if token.spaced and (last, token.kind) in (("number", "number"), ("word", "word")):
            out += " "
        name_follows = last == "command" and token.kind in ("letters", "word")
        out += " " * name_follows + token.text
        last = token.kind
    return out


def _scanned(text: str, upright: bool) -> list[Token]:
    out: list[Token] = []
    position, spaced = 0, False
    while match := _TOKEN.match(text, position):
        space, edge, name, _, number, command, letters, sign = match.groups()
        position, spaced = match.end(), spaced or bool(space)
        if edge:
            out.append(Token("command", f"\\{edge}{{{name}}}", spaced))
        elif number:
            out.append(Token("number", number.lstrip() if number[0] != "." else "0" + number, spaced))
        elif command in _UPRIGHT or command in _FONTS:
            inner, position = _group(text, position)
            if command in _UPRIGHT:
                piece = _scanned(inner, True)
            elif len(inner.strip()) == 1 and inner.strip() in "ijk" and command in ("mathbf", "boldsymbol", "bm"):
                piece = [Token("command", f"\\vec{{{inner.strip()}}}")]
            else:
                piece = _scanned(inner, False)
                if len(piece) > 1:
                    piece = [Token("sign", "{"), *piece, Token("sign", "}")]
            if piece:
                piece[0] = piece[0]._replace(spaced=spaced or inner[:1].isspace() or piece[0].spaced)
            out += piece
            spaced = inner[-1:].isspace()
            continue
        elif command in ("mathbb", "mathcal", "mathscr", "mathfrak"):
            inner, position = _group(text, position)
            out.append(Token("command", f"\\{command}{{{inner.strip()}}}", spaced))
        elif command:
            out.append(Token("command", "\\" + command, spaced))
        elif upright and letters in ("approximately", "approx", "roughly"):
            out.append(Token("command", r"\approx", spaced))
        elif letters and upright and letters not in ("i", "e"):
            while position < len(text) - 1 and text[position] in _WORD_SIGNS and text[position + 1].isalpha():
                rest = re.compile("[a-zA-Z]+").match(text, position + 1)
                letters, position = letters + text[position] + rest[0], rest.end()  # type: ignore[index,union-attr]
            letters = _ALIASES.get(letters, letters)
            known = letters in FUNCTIONS and letters not in ("min", "max", "deg", "sec")
            out.append(Token("command", "\\" + letters, spaced) if known else Token("word", letters, spaced))
        elif letters:  # italics; `sin` and `pi` without their backslash are commands
            out.append(Token(*("command", "\\" + letters) if letters in _NAMED else ("letters", letters), spaced))
        else:
            out.append(Token("sign", sign, spaced))
        spaced = False
    return out


def _group(text: str, position: int) -> tuple[str, int]:
    """The content of the braces at `position`, or the next character; and where it ends."""
    while position < len(text) and text[position].isspace():
        position += 1
    if text[position : position + 1] != "{":
        match = re.compile(r"\\[a-zA-Z]+|\d+|.|$", re.DOTALL).match(text, position)
        return match[0], match.end()  # type: ignore[index,union-attr]
    depths = accumulate((letter == "{") - (letter == "}") for letter in text[position:])
    end = next((at for at, depth in enumerate(depths, position) if depth == 0), len(text))
    return text[position + 1 : end], min(end + 1, len(text))


def texts_of(parts: Sequence[Token]) -> list[str]:
    return [token.text for token in parts]


OPENING = ("(", "[", "{", r"\{", r"\lfloor", r"\lceil")
CLOSING = (")", "]", "}", r"\}", r"\rfloor", r"\rceil")


def depth_change(token: Token) -> int:
    text = token.text
    return (text in OPENING or text.startswith(r"\begin{")) - (text in CLOSING or text.startswith(r"\end{"))


def closing(parts: Tokens, at: int) -> int:
    """The position of the bracket that closes the bracket at `at`; the end if none does."""
    depths = accumulate(map(depth_change, parts[at:]))
    return next((index for index, depth in enumerate(depths, at) if depth == 0), len(parts))


def _numerals(parts: list[Token]) -> list[Token]:
    """`three` as 3, unless it stands in a phrase."""
    phrases = [token.kind in ("word", "letters") and token.text.lower() not in ("and", "or") for token in parts]
    return [
        token._replace(kind="number", text=str(NUMERALS[token.text.lower()]))
        if token.text.lower() in NUMERALS and sum(phrases[max(at - 1, 0) : at + 2]) == 1
        else token
        for at, token in enumerate(parts)
    ]


def _merged(parts: list[Token]) -> list[Token]:
    """The tokens without commas of thousands; at the top level commas go only if all could be of thousands.

    In a list no number is padded with zeros: `(1,000)` is not (1,0).
    """
    at_top: list[int] = []
    inside: list[int] = []
    stack = [""]
    for at, token in enumerate(parts):
        change = depth_change(token)
        if change > 0:
            stack.append(token.text)
        elif change < 0 and len(stack) > 1:
            stack.pop()
        elif token.text == "," and set(stack) <= {"", "{"}:
            (at_top if len(stack) == 1 else inside).append(at)
    joints = [at for at in inside if _is_group(parts, at)]
    joints += at_top if all(_is_group(parts, at) for at in at_top) else _thousands(parts, at_top)
    out: list[Token] = []
    for at, token in enumerate(parts):
        if at in joints:
            continue
        grouped = token.spaced and token.kind == "number" and re.match(r"\d{3}(?!\d)", token.text)
        follows = at - 1 in joints or (grouped and out and re.fullmatch(r"[1-9]\d{0,2}(\d{3})*", out[-1].text))
        padded = re.fullmatch(r"0\d+", token.text) and "," in texts_of(parts[max(at - 1, 0) : at + 2])
        if follows and out[-1].kind == "number" and not (grouped and texts_of(parts[at + 1 : at + 2]) == ["/"]):
            out[-1] = out[-1]._replace(text=out[-1].text + token.text)
        else:
            out.append(token._replace(kind="word") if padded else token)
    return out


def _thousands(parts: list[Token], commas: list[int]) -> list[int]:
    """The commas of thousands in `1,000, 2,000`: each item has some, and a space stands behind every other comma."""
    apart = [at for at in commas if at + 1 < len(parts) and parts[at + 1].spaced]
    items = [(start + 1, end) for start, end in pairwise([-1, *apart, len(parts)])]
    inside = [[at for at in commas if start <= at < end] for start, end in items]
    alike = all(found and all(_is_group(parts[start:end], at - start) for at in found)
                for (start, end), found in zip(items, inside, strict=True))  # fmt: skip
    return sorted({*commas} - {*apart}) if alike else []


def _is_group(parts: list[Token], at: int) -> bool:
    if not 0 < at < len(parts) - 1 or parts[at].spaced or parts[at + 1].spaced:
        return False
    first = at - 1
    before, after = parts[at - 1], parts[at + 1]
    opens = first == 0 or parts[first - 1].text != "," or _is_group(parts, first - 1)
    leading = re.fullmatch(r"[1-9]\d{0,2}" if parts[first - 1].text != "," or first == 0 else r"\d{3}", before.text)
    return bool(opens and leading and re.fullmatch(r"\d{3}(\.\d+)?", after.text))


def _from_unicode(text: str) -> str:
    if text.isascii():
        return text
    for run, sign in ((_RAISED, "^"), (_LOWERED, "_")):
        text = re.sub(f"[{run}]+", lambda match, sign=sign: f"{sign}{{{match[0].translate(_PLAIN)}}}", text)  # type: ignore[misc]
    text = re.sub("[¼½¾⅐-⅞]", lambda match: _fraction(*unicodedata.normalize("NFKC", match[0]).split("⁄")), text)
    return "".join(letter for letter in text.translate(_SYMBOLS) if unicodedata.category(letter) != "Cf")


def _recurring(number: re.Match) -> str:
    a, b, c, d, e, f, g, h, *_ = (group or "" for group in number.groups())
    whole, fixed, period = a or f, b or g, c or d or e or h
    ends = 10 ** len(fixed) * (10 ** len(period) - 1)
    value = Fraction(int(whole + fixed + period) - int(whole + fixed or "0"), ends)
    return _fraction(value.numerator, value.denominator)


def _fraction(above: object, below: object) -> str:
    return f"\\frac{{{above}}}{{{below}}}"


_REWRITINGS: list[tuple[re.Pattern, str | Callable[[re.Match], str]]] = [
    (re.compile(pattern) if isinstance(pattern, str) else pattern, replacement)
    for pattern, replacement in (
        (r"\{\s*\\rm\s+([^{}]*)\}", r"\\mathrm{\1}"), (r"\\bigcup", r"\\cup"), (_SLANTED, r"\\frac{\1}{\2}"),
        (_DOTS, r".\1\\overline{\2\3\4}"), (_EXCEPT, r"\\mathbb{R} \\setminus "), (_ABOUT, r"\1\2\\approx "),
        (_EXCITED, r"\1"), (_MINUTES, r"\\text{ min}"), (_CODED, r"\1 "),
        (_LAYOUT, " "), (_COMMAND, _known_command), (_RAISED_O, r"^{\\circ}"), (_ORDINAL, ""),
        (_COMBINATIONS, r"\\binom{\1}{\2}"), (_CHOOSE, r"\\binom{\1}{\2}"), (_OVER, r"\\frac{\1}{\2}"),
        (_GROUPED, ""),
        (r"(?<!\\)\\!(?=[a-zA-Z])", " "), (_SIGN_ALONE, r"\1 "), (_MONEY, _money),
        (_SIGN_BEHIND, lambda match: rf"\text{{ {_CURRENCIES[match[1] or match[2]]}}}"), (_OPEN_ENDS, _open_ends),
        (r"(?<!\\)\\!\s*", ""), (r"\\\$|(?<!\\)\\(?=\d)", ""),
        (_SPACE, " "), (r"(?<!\\)&\s*(?=[=<>]|\\(?:le|ge|ne|approx|equiv)\b)", ""),
        (r"\{([,:])\}", r"\1"), (r"\\([%_])", r"\1"), (r"\\#", ""), (r"\*\*", "^"), (r"\*", r"\\cdot "),
        (r"\.\.\.", r"\\ldots "), (_NOT, r"\\ne "), ("<=", r"\\le "), (">=", r"\\ge "), ("==", "="),
        (_SCIENTIFIC, _scientific), (_PERIOD, _recurring),
    )
]  # fmt: skip


_FOREIGN = re.compile(f"[а-яё]+|{'|'.join(sorted(MEANINGS, key=len, reverse=True))}", re.IGNORECASE)
# In Latin letters only where they stand between two answers.
_BETWEEN = re.compile(r"\\text\s*\{\s+(?:(und|et|y)|oder|ou|o)\s+\}")


def in_english(text: str) -> str:
    text = _BETWEEN.sub(lambda match: r"\text{ and }" if match[1] else r"\text{ or }", text)
    return text if text.isascii() else _FOREIGN.sub(_translated, text)


def _translated(match: re.Match) -> str:
    english = MEANINGS.get(match[0].lower())
    return rf"\text{{ {english} }}" if english else match[0]
