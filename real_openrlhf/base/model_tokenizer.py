"""A model's tokenizer, with the tokens of its own tokenizer.json.

transformers chooses a class by the model's type and its name on the hub, and the class may replace the file's rules:
DeepSeek-R1-Distill-Qwen has its own by its hub id, and Qwen2's in any other folder, also where a run saved it.
"""

from itertools import product
from typing import Any

PARTS = "1234 + 5678|e\u0301 \u00e9|  x_{10}^2|I'LL don't|\n\n\tif (a<b):|１２３円|한국|0.5%|…“|Å".split("|")


def load_tokenizer(name: str, **named: Any) -> Any:
    from transformers import AutoTokenizer
    from transformers.tokenization_utils_tokenizers import TokenizersBackend
    from transformers.utils import cached_file

    chosen = AutoTokenizer.from_pretrained(name, **named)
    replaces = type(chosen) is not TokenizersBackend and type(chosen).__module__.startswith("transformers.")
    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    if not replaces or not cached_file(name, "tokenizer.json", **missing):
        return chosen
    own, texts = TokenizersBackend.from_pretrained(name), list(map("".join, product(PARTS, PARTS)))
    ours, theirs = (each(texts, add_special_tokens=False)["input_ids"] for each in (own, chosen))
    return chosen if ours == theirs else own
