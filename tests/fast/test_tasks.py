"""The tiny task for CPU: data, tokenizer, cache. The model itself: tests/slow/test_models.py."""

import json
import random
from dataclasses import asdict, replace

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from real_openrlhf.base.errors import UserError
from real_openrlhf.training import tiny_task
from real_openrlhf.training.tiny_task import BOX, DIGITS, MAX_DOTS, TASK, ReverseTask, answer


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


def test_a_line_to_pretrain_on_is_tokens_of_the_task_and_comes_back():
    task, rng = TASK, random.Random(0)
    tokenizer = tiny_task.make_tokenizer(task)
    for _ in range(200):
        prompt, said = task.line(rng, 0.5)
        ids = tokenizer(prompt + said).input_ids
        assert tokenizer.unk_token_id not in ids and len(ids) < task.positions
        assert ids == tokenizer(prompt).input_ids + tokenizer(said).input_ids  # no token reaches over both
        assert tokenizer.decode(ids + [tokenizer.eos_token_id], skip_special_tokens=True) == prompt + said
        assert tokenizer(said + tiny_task.EOS).input_ids[-1] == tokenizer.eos_token_id
    assert tokenizer("?").input_ids == [tokenizer.unk_token_id]


def test_the_cache_is_named_by_all_that_makes_the_model(monkeypatch):
    others = (replace(TASK, seed=1), replace(TASK, skill=0.2), replace(TASK, unsure_steps=1))
    keys = {TASK.key, *(other.key for other in others)}
    monkeypatch.setattr(tiny_task, "VERSION", tiny_task.VERSION + 1)
    assert len(keys | {TASK.key}) == 5


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


@pytest.mark.parametrize("skill", [1.0, 0.15])
def test_reversed_lines_are_right_as_often_as_skill_says(skill):
    rng = random.Random(0)
    lines = [ReverseTask().line(rng, skill) for _ in range(4000)]
    right = sum(said.lstrip(".") == f"{BOX}{answer(prompt)}}}" for prompt, said in lines)
    assert right / len(lines) == pytest.approx(skill, abs=0.02)  # 3.5 standard errors
    dots = [len(said.partition(BOX)[0]) for _, said in lines]
    assert set(dots) == set(range(MAX_DOTS + 1))
