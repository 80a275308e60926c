"""Words of other languages, and names of currencies: data, which grows by lines."""

import re

# Codes of currencies that have no sign or word in the table of units.
CURRENCIES = "CHF CAD AUD NZD SGD HKD CNY KRW RUB SEK NOK DKK PLN CZK HUF BRL MXN ZAR TRY THB".split()
# English, then words of Chinese, Japanese, Korean and Russian that mean it. Counted things are all the same.
_TABLE = """
answer: 答案 答 ответ | is: 是 为 | and: 和 与 及 и | or: 或 或者 или
m: 米 м метров | cm: 厘米 см | mm: 毫米 мм | km: 千米 公里 км | g: 克 г | kg: 千克 公斤 кг | L: 升 л
square: 平方 | cubic: 立方 | s: 秒 | min: 分钟 мин | h: 小时 час часа часов | day: 天 дней | week: 周 | year: 年 лет
degrees: 度 градусов | percent: процентов | dollars: 美元 долларов | yuan: 元 | euros: 欧元 евро | yen: 円 | won: 원
rubles: руб рублей рубля | things: 个 個 只 人 本 条 张 件 块 次 种 页 棵 名 개 명
"""
_MEANINGS = {
    word: english.strip()
    for english, _, words in (line.partition(":") for line in re.split(r"[|\n]", _TABLE.strip()))
    for word in words.split()
}
_FOREIGN = re.compile(f"[а-яё]+|{'|'.join(sorted(_MEANINGS, key=len, reverse=True))}", re.IGNORECASE)
# In Latin letters only where they stand between two answers.
_BETWEEN = re.compile(r"\\text\s*\{\s+(?:(und|et|y)|oder|ou|o)\s+\}")


def in_english(text: str) -> str:
    text = _BETWEEN.sub(lambda match: r"\text{ and }" if match[1] else r"\text{ or }", text)
    return text if text.isascii() else _FOREIGN.sub(_translated, text)


def _translated(match: re.Match) -> str:
    english = _MEANINGS.get(match[0].lower())
    return rf"\text{{ {english} }}" if english else match[0]
