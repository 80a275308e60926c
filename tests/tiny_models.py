"""Random models of real classes, small, with weights so large that an error shows; and tokenizers for them."""

from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SIZES = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def model_of(name: str = "Qwen2", **changes) -> torch.nn.Module:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**(SIZES | changes))
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return model


SPECIAL = ("<unk>", "<bos>", "<user>", "<bot>", "<eos>")  # tokens 0 to 4


def letters(words: Iterable[str] = tuple(map(chr, range(32, 127)))) -> PreTrainedTokenizerFast:
    """Its words are letters. It adds a BOS of its own, as R1-Distill's does, beside the template's."""
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
