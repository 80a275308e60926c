"""A tokenizer whose words are letters, and that brings a BOS of its own, as R1-Distill's does: with the template's it
would be doubled.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<unk>", "<bos>", "<user>", "<bot>", "<eos>")  # tokens 0 to 4


def letters(words: Iterable[str] = tuple(map(chr, range(32, 127)))) -> PreTrainedTokenizerFast:
    numbers = {word: number for number, word in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        extra_special_tokens=["<user>", "<bot>"],
        chat_template="{{ bos_token }}{% for m in messages %}<user>{{ m['content'] }}{% endfor %}<bot>",
    )


class Numbers:
    """A tokenizer whose words are the tokens' numbers."""

    def decode(self, tokens, skip_special_tokens):
        return " ".join(map(str, tokens.tolist()))
