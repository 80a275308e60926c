"""The tiny task for CPU: data, tokenizer, and the package's archive of it. Its training: tests/slow/test_models.py."""

import json
import random
from dataclasses import asdict, replace

import pytest
import tiny_task
from tiny_task import BOX, DIGITS, MAX_DOTS, TASK, ReverseTask, answer
from transformers import AutoModelForCausalLM, AutoTokenizer

from real_openrlhf.base.errors import UserError
from real_openrlhf.training import tiny_task as packed


def test_training_and_held_out_prompts_are_disjoint_and_distinct():
    train, held_out = ([row["prompt"] for row in rows] for rows in TASK.rows())
    assert (len(train), len(held_out)) == (TASK.train_prompts, TASK.eval_prompts)
    assert len({*train, *held_out}) == len(train) + len(held_out)


def test_a_line_to_pretrain_on_is_tokens_of_the_task_and_comes_back():
    tokenizer, rng = tiny_task.make_tokenizer(TASK), random.Random(0)
    for _ in range(200):
        prompt, said = TASK.line(rng, 0.5)
        ids = tokenizer(prompt + said).input_ids
        assert tokenizer.unk_token_id not in ids and len(ids) < TASK.positions
        assert ids == tokenizer(prompt).input_ids + tokenizer(said).input_ids  # no token reaches over both
        assert tokenizer.decode(ids + [tokenizer.eos_token_id], skip_special_tokens=True) == prompt + said
        assert tokenizer(said + tiny_task.EOS).input_ids[-1] == tokenizer.eos_token_id
    assert tokenizer("?").input_ids == [tokenizer.unk_token_id]


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REAL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="cannot write the tiny model .* Set REAL_CACHE to a folder with space"):
        packed.unpack()


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
    assert AutoModelForCausalLM.from_pretrained(folder / "model").num_parameters() > 300_000


def test_another_configuration_or_version_has_another_name(monkeypatch):
    others = (replace(TASK, seed=1), replace(TASK, skill=0.2), replace(TASK, unsure_steps=1))
    keys = {TASK.key, *(other.key for other in others)}
    monkeypatch.setattr(tiny_task, "VERSION", tiny_task.VERSION + 1)
    assert len(keys | {TASK.key}) == 5


@pytest.mark.parametrize("skill", [1.0, 0.15])
def test_reversed_lines_are_right_as_often_as_skill_says(skill):
    rng = random.Random(0)
    lines = [ReverseTask().line(rng, skill) for _ in range(4000)]
    right = sum(said.lstrip(".") == f"{BOX}{answer(prompt)}}}" for prompt, said in lines)
    assert right / len(lines) == pytest.approx(skill, abs=0.02)  # 3.5 standard errors
    dots = [len(said.partition(BOX)[0]) for _, said in lines]
    assert set(dots) == set(range(MAX_DOTS + 1))
