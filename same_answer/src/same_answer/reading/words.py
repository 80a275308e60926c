"""Words, each list with its effect: in English, then words of other languages that mean one of them."""

import re
from collections.abc import Iterable
from itertools import pairwise

# What stands beside one of these is not the answer, or not the whole of it: no value is taken out of such a phrase.
NEGATING = frozenset("""not no never cannot false wrong incorrect unlikely less more than least most if either neither
    but except or maybe perhaps possibly when where unless for outside complement""".split())  # fmt: skip
# A name or a condition that ends with one of these says that its value is no answer.
_DENYING = frozenset("wrong incorrect false not never isn't aren't".split())
# So does one in which these stand side by side: `incorrect answer`, but not `incorrect answers`, which are counted.
_WRONG, _THING = {"wrong", "incorrect", "false"}, {"answer", "value", "result", "solution", "choice", "that"}
# Words that change a value: a phrase with one of them is no unit.
CHANGING = frozenset(
    "and or if when unless half third quarter less more least most than fewer up over under about plus "
    "times squared cubed dozen hundred thousand million billion trillion at where for with is are as to by on below "
    "above between except either neither no none infinity infinitely wrong incorrect not factorial choose mod modulo "
    "base halves thirds quarters fourths fifths sixths sevenths eighths ninths tenths twelfths hundredths thousandths "
    "root cube cubes log negative minus false pi inverse bn lakh crore fourth fifth sixth eighth tenth "
    "excluded removed rejected extraneous discarded gross tens hundreds thousands millions billions dozens doubled "
    "tripled quadrupled halved twice thrice reciprocal too many score".split()
)
_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen""".split()
NUMERALS = {word: at for at, word in enumerate(_ONES)}
for _ten, _tens in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2):
    NUMERALS |= {_tens: 10 * _ten} | {f"{_tens}-{_ONES[one]}": 10 * _ten + one for one in range(1, 10)}
# A product with one of these behind it is a size; where rows come first, its order counts.
ORDERED_SHAPES = frozenset("matrix matrice array table".split())
SHAPES = ORDERED_SHAPES | frozenset("grid board chessboard rectangle".split())
# A value holds under the condition behind one of these.
CONDITION = "attained achieved reached obtained for where if when at as whenever provided given with".split()
EXCLUDING = "unless"  # means the opposite of the others
# Words between bars are opposites: none may stand in an answer whose gold has another one.
OPPOSITES = {
    word: (at, meaning)
    for at, line in enumerate(
        """increase increases increased increasing rise rises/decrease decreases decreased decreasing fall falls
        |profit gain/loss|north northward/south southward/east eastward/west westward/northeast/northwest/southeast
        /southwest|left/right|up upward upwards/down downward downwards|above/below|inside/outside|positive/negative
        |maximum max maxima/minimum min minima|earlier before ago/later after|longer taller/shorter|faster/slower
        |larger greater bigger more/smaller less fewer|older/younger|boy boys/girl girls|man men male males/woman women
        female females|clockwise/counterclockwise anticlockwise counter-clockwise|even/odd|concave/convex|win wins/lose
        loses|convergent converges converge/divergent diverges diverge|head heads/tail tails
        |red/blue/green/yellow/black/white/orange/purple/pink/brown""".split("|")
    )
    for meaning, words in enumerate(line.split("/"))
    for word in words.split()
}
# English, then words of Chinese, Japanese, Korean and Russian that mean it. Counted things are all the same.
_FOREIGN = """
answer: 答案 答 ответ | is: 是 为 | and: 和 与 及 и | or: 或 或者 или
m: 米 м метров | cm: 厘米 см | mm: 毫米 мм | km: 千米 公里 км | g: 克 г | kg: 千克 公斤 кг | L: 升 л
square: 平方 | cubic: 立方 | s: 秒 | min: 分钟 мин | h: 小时 час часа часов | day: 天 дней | week: 周 | year: 年 лет
degrees: 度 градусов | percent: процентов | dollars: 美元 долларов | yuan: 元 | euros: 欧元 евро | yen: 円 | won: 원
rubles: руб рублей рубля | things: 个 個 只 人 本 条 张 件 块 次 种 页 棵 名 개 명
"""
MEANINGS = {
    word: english.strip()
    for english, _, words in (line.partition(":") for line in re.split(r"[|\n]", _FOREIGN.strip()))
    for word in words.split()
}


def denies(words: Iterable[str]) -> bool:
    """Whether a name says that its value is no answer: `not the answer`, `the answer is not`, but not `not A`."""
    said = [word.lower() for word in words if word[:1].isalpha()]
    if not said or said[-1] in _DENYING:
        return bool(said)
    if said[0] in ("not", "never") and said[1] in ("the", "a", "an", "equal"):
        return True
    if said[:2] == ["unless", "it"]:  # unless it is 10
        return True
    return any(one in _WRONG and other in _THING for one, other in pairwise(said))
