"""Answers and responses made to hang, crash or swamp a verifier. Each is (name, response, gold)."""


def _boxed(answer: str) -> str:
    return f"Therefore \\boxed{{{answer}}}"


def _nested(opening: str, closing: str, depth: int, core: str = "1") -> str:
    return opening * depth + core + closing * depth


_GOLDS = {"number": "7", "root": "\\sqrt{2}", "formula": "x^2+1"}

COMPUTATIONS = {
    "tower of nines": "9^{9^{9^9}}", "tower of tens": "10^{10^{10}}", "tower of twos": "2^{2^{2^{2^{2^{2}}}}}",
    "tower with roots": "\\sqrt{2}^{9^{9^{9}}}", "tower in Python": "9**9**9**9", "tower of e": "e^{e^{e^{e^{e}}}}",
    "tower of pi": "\\pi^{\\pi^{\\pi^{\\pi^{\\pi}}}}", "sine of a tower": "\\sin(e^{e^{20}})",
    "cosine of a power": "\\cos(e^{9999\\cdot 999})", "floor of a tower": "\\lfloor e^{e^{e^{6}}} \\rfloor",
    "logarithm of a tower": "\\ln(e^{e^{e^{9}}})", "power of a letter by a tower": "x^{e^{e^{e^{e}}}}",
    "factorial of a tower": r"(\pi^{\pi^\pi})!", "inverse of a tower": "e^{-e^{e^{e^{3}}}}",
    "divisor of a tower": r"\gcd(e^{e^{e^e}}, 4)", "tower of hyperbolic sines": r"\sinh(\sinh(\sinh(\sinh(5))))",
    "huge exponent": "1.5\\times10^{99999999}", "huge float": "1e999999999", "huge negative exponent": "7^{-99999999}",
    "huge factorial": "99999999!", "factorial of factorials": "((9!)!)!", "factorial of a power": "(10^{9})!",
    "huge binomial": "\\binom{10^9}{5\\cdot10^8}", "binomial of powers": "\\binom{2^{60}}{2^{59}}",
    "long sum": "\\sum_{k=1}^{10^9} \\frac{1}{k^2}", "long product": "\\prod_{k=1}^{10^7} k",
    "infinite sum": "\\sum_{n=1}^{\\infty} \\frac{\\sin n}{n^{3}}",
    "hard integral": "\\int_0^1 \\frac{x^{x}\\sin(x^{7})}{\\ln(1+x)} dx",
    "nested integrals": "\\int\\int\\int e^{x^2y^2z^2} dx dy dz",
    "limit": "\\lim_{n\\to\\infty} \\left(1+\\frac{1}{n}\\right)^{n^{n}}", "huge expansion": "(x+1)^{9999}",
    "expansion of many variables": "(a+b+c+d+f+g+h+j+k+l+m+n)^{50}",
    "power of a sum of roots": "(\\sqrt{2}+\\sqrt{3}+\\sqrt{5}+\\sqrt{7}+\\sqrt{11}+\\sqrt{13})^{800}",
    "nearly equal function": "x=\\frac{e^{t}}{3}+ce^{-2t}+\\sin^2 t+\\cos^2 t-1.0000001",
    "trigonometric sum": "+".join(f"\\sin^{{{k}}}({k}x)" for k in range(1, 40)),
    "continued fraction": "".join(f"{k}+\\frac{{1}}{{" for k in range(1, 18)) + "x" + "}" * 17,
    "division by zero": "\\frac{1}{0}", "zero to the zero": "0^{0}/0", "log of zero": "\\log(0)\\cdot\\infty",
    "list of 200": ",".join(map(str, range(200))), "modulus": "7 \\bmod 10^{10^{10}}",
    "Python code": "__import__('os').system('sleep 30')", "Python lambda": "(lambda f: f(f))(lambda f: f(f))",
    "zero matrix": "\\begin{pmatrix}" + "0&" * 200 + "0\\end{pmatrix}",
}  # fmt: skip
_SHAPES = {
    "parentheses, 3,000 deep": _nested("(", ")", 3_000), "braces, 20,000 deep": _nested("{", "}", 20_000),
    "fractions, 200 deep": _nested("\\frac{1}{1+", "}", 200), "roots, 500 deep": _nested("\\sqrt{", "}", 500),
    "exponents, 400 deep": _nested("x^{", "}", 400), "sets, 22 deep": _nested("\\{1,", "\\}", 22),
    "parentheses, 22 deep": _nested("(1+", ")", 22), "signs": "-" * 900 + "7", "plus-minus signs": "\\pm" * 300 + "7",
    "pairs of plus-minus": "(" + ",".join(["\\pm 1"] * 60) + ")", "100,000 digits": "7" * 100_000,
    "900 digits": "7" * 900, "900 digits after the point": "0." + "3" * 900, "100,000 spaces": " " * 100_000,
    "100,000 letters": "x" * 100_000, "900 letters": "xy" * 450, "commas": "," * 900, "equals signs": "x=" * 450,
    "backslashes": "\\" * 900, "circumflexes": "^" * 900, "underscores": "_" * 900,
    "fractions without arguments": "\\frac" * 180, "unbalanced left": "\\left(" * 100,
    "text commands": "\\text{a}" * 120, "units": "5 \\text{ m}" + " \\text{ m}" * 100,
    "thousands": "1," + "000," * 240 + "000", "or": "1 or " * 200,
    "broken environment": "\\begin{pmatrix} 1 & 2 \\\\ 3", "broken LaTeX": "\\frac{1}{\\sqrt{2}",
    "unknown commands": "\\foo{\\bar[\\baz]}\\qux_", "empty": "", "only a space": " ",
    "unicode fractions": "½⅓¼" * 100, "superscripts": "x" + "²" * 400, "zero-width characters": "\u200b7\u200d" * 100,
    "right to left": "\u202e7\u202c", "NUL and controls": "\x00\x01\x02\x1b[2J7", "CJK and emoji": "答案是七🧮" * 50,
    "lone surrogate": "\ud800", "dotless numerals": "٧", "dollars": "$" * 900,
    "commands that never end": r" \ldots" * 120 + '"', "signs that never end": r"\pm " * 200 + '"',
    "units that never end": r"5\text{a}" + r"\cdot " * 100 + '"',
    "commas before a parameter": "k" + ", " * 200 + r"k\in\mathbb{Z}\"",
}  # fmt: skip
_RESPONSES = {
    "no text": "", "100,000 display brackets": "\\[" * 50_000, "100,000 boxes opened": "\\boxed{" * 14_000,
    "10,000 boxes": "\\boxed{7} and " * 10_000, "100,000 opening braces in a box": "\\boxed{" + "{" * 100_000,
    "100,000 characters of mathematics": "\\frac{a}{b}+\\sqrt{c} " * 5_000 + "\\boxed{8}",
    "100,000 thinking tags": "<think></think>" * 7_000 + "\\boxed{8}",
    "1,000,000 characters": "answer " * 150_000 + "\\boxed{8}", "box without an argument": "\\boxed",
    "box at the very end": "\\boxed{",
}  # fmt: skip

HOSTILE = [
    (f"{name}, for a {kind}", _boxed(answer), gold)
    for kind, gold in _GOLDS.items()
    for name, answer in (COMPUTATIONS | _SHAPES).items()
] + [(name, response, "7") for name, response in _RESPONSES.items()]
