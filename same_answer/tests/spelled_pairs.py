r"""Random values in random spellings, equal and not, as models write them: `pair(random.Random(1))` is one of them.

A kind draws a value and two ways to write it: `spell(value)` is the same value in another form, `near(value)` another
value close to it. Nothing here comes from the verifier. Pairs of other kinds are in the `*_pairs.jsonl` beside this.
"""

from collections.abc import Callable
from fractions import Fraction
from random import Random

Spelled = tuple[str, str, str]  # a gold, the same in another spelling, another value


def pair(rng: Random) -> tuple[str, str, bool]:
    """A gold, an answer, and whether they are equal."""
    gold, same, near = rng.choice(KINDS)(rng)
    equal = rng.random() < 0.5
    return gold, dressed(rng, same if equal else near), equal


def dressed(rng: Random, text: str) -> str:
    """Fonts, names, phrases and gaps that change no value."""
    dresses = ["{}"] * 6 + ["{}.", "${}$", " {} ", r"\boldsymbol{{{}}}", r"\text{{The answer is }} {}", r"\,{}\,"]
    return rng.choice(dresses).format(text)


def whole(rng: Random, n: int) -> str:
    sign, size = ("-" * (n < 0), abs(n))
    forms = [str(size), f"{size:,}", f"{size:,}".replace(",", "{,}"), f"{size:,}".replace(",", r",\!")]
    forms += [f"{size}.0", rf"\frac{{{3 * size}}}{{3}}", rf"\mathbf{{{size}}}", f"{size:,}".replace(",", r"\,")]
    zeros = len(str(size)) - len(str(size).rstrip("0"))
    if size and zeros > 1:
        forms.append(rf"{str(size)[:-zeros]} \times 10^{{{zeros}}}")
    return sign + rng.choice(forms)


def wholes(rng: Random) -> Spelled:
    n = rng.choice((1, -1)) * rng.randrange(0, 10 ** rng.randrange(1, 8))
    other = n + rng.choice((1, -1, 10, 100, 1000, -2 * n or 7))
    name = rng.choice(("", "", "x = ", "n=", r"\text{Area} = ", r"\alpha = "))
    return str(n), name + whole(rng, n), name + whole(rng, other)


def fraction(rng: Random, value: Fraction) -> str:
    p, q, k = value.numerator, value.denominator, rng.randrange(2, 6)
    sign, size = "-" * (p < 0), abs(p)
    forms = [rf"\frac{{{p}}}{{{q}}}", rf"{sign}\dfrac{{{size}}}{{{q}}}", f"{p}/{q}", rf"\frac{{{k * p}}}{{{k * q}}}"]
    forms += [rf"-\frac{{{-p}}}{{{q}}}", rf"{p} \div {q}"]
    if size > q > 1:
        forms += [rf"{sign}{size // q}\frac{{{size % q}}}{{{q}}}", f"{sign}{size // q} {size % q}/{q}"]
    digits = decimal(value)
    if digits:
        forms.append(digits)
    return rng.choice(forms)


def decimal(value: Fraction) -> str:
    """The digits of a fraction that has finitely many, and not too many."""
    for places in range(7):
        if (value * 10**places).denominator == 1:
            digits = f"{abs(value.numerator) * 10**places // value.denominator:0{places + 1}d}"
            body = f"{digits[:-places]}.{digits[-places:]}" if places else digits
            return "-" * (value < 0) + body
    return ""


def fractions(rng: Random) -> Spelled:
    value = Fraction(rng.randrange(-60, 60) or 1, rng.randrange(2, 25))
    other = value + Fraction(rng.choice((1, -1)), rng.choice((1, value.denominator)))
    return fraction(rng, value), fraction(rng, value), fraction(rng, other)


def surd(rng: Random, a: int, b: int, c: int) -> str:
    r"""a + b \sqrt{c}"""
    k = rng.randrange(2, 5)
    root = rng.choice((rf"{b}\sqrt{{{c}}}", rf"{b} \cdot \sqrt{{{c}}}", rf"\frac{{{b * k}\sqrt{{{c}}}}}{{{k}}}"))
    if b > 0:
        root = rng.choice((root, rf"\sqrt{{{b * b * c}}}", rf"{b}({c})^{{1/2}}", rf"{b * c}/\sqrt{{{c}}}"))
    return root if a == 0 else rng.choice((f"{a}+{root}", f"{root} {a:+d}", f"({root}) + ({a})"))


def surds(rng: Random) -> Spelled:
    a, b, c = rng.choice((0, rng.randrange(-9, 10))), rng.randrange(-9, 10) or 2, rng.choice((2, 3, 5, 6, 7, 10, 11))
    near = rng.choice(((a + 1, b, c), (a, -b, c), (a, b + 1 or 3, c), (a, b, c + 1 if c != 3 else 5)))
    return surd(rng, a, b, c), surd(rng, a, b, c), surd(rng, *near)


# Families of units: a factor to the first of them, and its spellings.
_UNITS: tuple[dict[Fraction, list[str]], ...] = tuple(
    {Fraction(factor): spellings.split("|") for factor, spellings in family.items()}
    for family in (
        {"1": r"\text{ m}|\,\mathrm{m}|\text{ meters}| meters|\text{ metres}",
         "1/100": r"\text{ cm}| cm|\,\mathrm{cm}|\text{ centimeters}", "1000": r"\text{ km}| km|\text{ kilometers}",
         "1/1000000000": r"\text{ nm}|\,\mathrm{nm}"},
        {"1": r"\text{ s}|\text{ seconds}| seconds", "60": r"\text{ min}|\text{ minutes}| minutes",
         "3600": r"\text{ hours}| hours|\,\mathrm{h}"},
        {"1": r"\text{ J}|\,\mathrm{J}|\text{ joules}", "1000": r"\text{ kJ}| kJ|\,\mathrm{kJ}"},
        {"1": r"\text{ Hz}| Hz", "1000000": r"\text{ MHz}| MHz", "1000000000": r"\text{ GHz}|\,\mathrm{GHz}"},
        {"1": r"\text{ m/s}|\,\mathrm{m\,s^{-1}}|\,\frac{\text{m}}{\text{s}}|\text{ meters per second}",
         "5/18": r"\text{ km/h}|\text{ kilometers per hour}|\,\mathrm{km/h}"},
        {"1": r"\text{ m}^2|\text{ square meters}| square meters|\,\mathrm{m^2}",
         "1/10000": r"\text{ cm}^2| cm^2|\text{ square centimeters}"},
        {"1": r"\text{ kg}| kg|\text{ kilograms}", "1/1000": r"\text{ g}|\text{ grams}| grams"},
    )
)  # fmt: skip


def quantities(rng: Random) -> Spelled:
    family = rng.choice(_UNITS)
    factor, other = rng.choice(list(family)), rng.choice(list(family))
    n = rng.randrange(2, 10 ** rng.randrange(2, 6))
    gold = f"{n}{rng.choice(family[factor])}"
    converted = n * factor / other
    written = decimal(converted) or rf"\frac{{{converted.numerator}}}{{{converted.denominator}}}"
    forms = [str(n), *(f"{n:,}{unit}" for unit in ("", *family[factor])), written + rng.choice(family[other])]
    same = rng.choice(forms)
    wrong = rng.choice([one for one in family if one != factor])
    foreign = rng.choice([one for one in _UNITS if one is not family])
    near = rng.choice(
        (f"{n + 1}{rng.choice(family[factor])}", f"{n:,}{rng.choice(family[wrong])}",
         f"{n}{rng.choice(rng.choice(list(foreign.values())))}", f"{n} \\text{{ or less}}", f"{n} \\text{{ million}}")
    )  # fmt: skip
    return gold, same, near


def percents(rng: Random) -> Spelled:
    n = Fraction(rng.randrange(1, 400), rng.choice((1, 1, 2, 4)))
    forms = [rf"{decimal(n)}\%", f"{decimal(n)}%", rf"{decimal(n)} \text{{ percent}}"]
    number = [decimal(n)] if n >= 1 else []  # 0.5 is right for 0.5 %, and 0.5 % is not for 0.5: mended_pairs.jsonl
    return rng.choice(forms), rng.choice([*forms, *number]), rf"{decimal(n + 1)}\%"


def polynomial(coefficients: list[int], rng: Random | None = None) -> str:
    terms = [(power, c) for power, c in enumerate(coefficients) if c]
    terms.sort(reverse=True)
    if rng:
        rng.shuffle(terms)
    text = ""
    for power, c in terms:
        letter = "" if power == 0 else "x" if power == 1 else f"x^{{{power}}}" if power > 9 else f"x^{power}"
        size = str(abs(c)) if abs(c) != 1 or power == 0 else ""
        text += ("-" if c < 0 else "+" if text else "") + size + letter
    return text or "0"


def polynomials(rng: Random) -> Spelled:
    roots = [rng.randrange(-6, 7) for _ in range(rng.randrange(1, 4))]
    coefficients = [rng.choice((1, 2, -3))]
    factored = "" if coefficients[0] == 1 else str(coefficients[0])
    for root in roots:
        coefficients = [low - root * high for low, high in zip([0, *coefficients], [*coefficients, 0], strict=True)]
        factored += f"(x{-root:+d})" if root else "(x)"
    near = list(coefficients)
    near[rng.randrange(len(near))] += rng.choice((1, -2))
    if rng.random() < 0.3:  # a small term beside a large one
        coefficients, near = [*coefficients, *[0] * 40, 1], [*near, *[0] * 40, 1]
        factored += "+x^{" + str(len(coefficients) - 1) + "}"
    same = rng.choice((factored, polynomial(coefficients, rng), "f(x) = " + polynomial(coefficients)))
    return polynomial(coefficients), same, polynomial(near, rng)


def entry(rng: Random, value: Fraction) -> str:
    return str(value) if value.denominator == 1 and rng.random() < 0.7 else fraction(rng, value)


def some(rng: Random, count: int) -> list[Fraction]:
    """Different numbers."""
    values: dict[Fraction, None] = {}
    while len(values) < count:
        values[Fraction(rng.randrange(-12, 13), rng.choice((1, 1, 1, 2, 3, 5)))] = None
    return [*values]


def written(rng: Random, values: list[Fraction], form: str) -> str:
    return form.format(rng.choice((", ", ",", ",\\ ", ", \\, ")).join(entry(rng, one) for one in values))


def tuples(rng: Random) -> Spelled:
    values = some(rng, rng.randrange(2, 5))
    near = list(values)
    if rng.random() < 0.5:
        near[0], near[-1] = near[-1], near[0]
    else:
        near[rng.randrange(len(near))] += 1
    forms = ["({})", r"\left({}\right)", r"({})", r"\big({}\big)"]
    if len(values) == 2:
        forms += ["P({})", "(x,y) = ({})", r"\text{{vertex }} ({})"]
    return written(rng, values, "({})"), written(rng, values, rng.choice(forms)), written(rng, near, rng.choice(forms))


def sets(rng: Random) -> Spelled:
    values = some(rng, rng.randrange(2, 5))
    shuffled, near = list(values), list(values)
    rng.shuffle(shuffled)
    near[rng.randrange(len(near))] += Fraction(1, 7)
    if rng.random() < 0.3:
        near = values[:-1] if len(values) > 2 else [*values, values[0] + Fraction(1, 7)]
    forms = [r"\{{{}\}}", r"\left\{{{}\right\}}", "{}", "x = {}", r"x \in \{{{}\}}"]
    gold = written(rng, values, rng.choice((r"\{{{}\}}", "{}")))
    return gold, written(rng, shuffled, rng.choice(forms)), written(rng, near, rng.choice(forms))


def interval(rng: Random, ends: tuple[str, str], values: list[Fraction]) -> str:
    low, high = (entry(rng, one) for one in values)
    signs = ("<" if ends[0] == "(" else r"\le"), ("<" if ends[1] == ")" else r"\leq")
    forms = [f"{ends[0]}{low}, {high}{ends[1]}", rf"\left{ends[0]}{low},{high}\right{ends[1]}"]
    forms += [rf"{low} {signs[0]} x {signs[1]} {high}", rf"x \in {ends[0]}{low},{high}{ends[1]}"]
    forms += [rf"\{{ x \mid {low} {signs[0]} x {signs[1]} {high} \}}"]
    return rng.choice(forms)


def intervals(rng: Random) -> Spelled:
    values = sorted(some(rng, 2))
    ends = rng.choice("(["), rng.choice(")]")
    turned = ("[" if ends[0] == "(" else "(", ends[1])
    near = rng.choice(((turned, values), (ends, [values[0], values[1] + 1]), (ends, [values[0] - 1, values[1]])))
    low, high = (entry(rng, one) for one in values)
    return f"{ends[0]}{low},{high}{ends[1]}", interval(rng, ends, values), interval(rng, *near)


def matrix(rng: Random, rows: list[list[Fraction]]) -> str:
    kind, gap = rng.choice(("pmatrix", "bmatrix")), rng.choice((r" \\ ", r"\\[4pt]", r"\\"))
    body = gap.join(" & ".join(entry(rng, one) for one in row) for row in rows)
    return rf"\begin{{{kind}}} {body} \end{{{kind}}}"


def matrices(rng: Random) -> Spelled:
    height, width = rng.randrange(1, 4), rng.randrange(1, 4)
    if height * width == 1:
        height = 2
    values = some(rng, height * width)
    rows = [values[at : at + width] for at in range(0, len(values), width)]
    near = [list(row) for row in rows]
    near[rng.randrange(height)][rng.randrange(width)] += 1
    return matrix(rng, rows), matrix(rng, rows), matrix(rng, near)


KINDS: tuple[Callable[[Random], Spelled], ...] = (
    wholes, fractions, surds, quantities, percents, polynomials, tuples, sets, intervals, matrices,
)  # fmt: skip
