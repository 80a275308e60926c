"""The tiny task's data and tokenizer. Its model: tests/slow/test_tiny_model.py."""

import json
import random
from dataclasses import replace

import pytest

from real_openrlhf.errors import UserError
from real_openrlhf.rewards import tiny_reward
from real_openrlhf.training import tiny_task

CONFIG = tiny_task.TinyConfig()


def rows(folder, name: str) -> list[dict]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_training_and_held_out_prompts_are_disjoint_and_distinct():
    train, held_out = tiny_task.prompts(CONFIG)
    assert (len(train), len(held_out)) == (CONFIG.train_prompts, CONFIG.eval_prompts)
    assert len(set(train)) == len(train) and len(set(held_out)) == len(held_out)
    assert not set(train) & set(held_out)
    assert all(len(prompt) == tiny_task.PROMPT_LENGTH and prompt.endswith("=") for prompt in train + held_out)


def test_the_data_is_a_function_of_the_seed(tmp_path):
    for name in ("one", "two", "other"):
        (tmp_path / name).mkdir()
        tiny_task.write_data(replace(CONFIG, seed=int(name == "other")), tmp_path / name)
    for part in ("train.jsonl", "eval.jsonl"):
        one, two, other = ((tmp_path / name / part).read_bytes() for name in ("one", "two", "other"))
        assert one == two != other


def test_labels_are_the_number_backwards_and_the_reward_agrees(tmp_path):
    tiny_task.write_data(CONFIG, tmp_path)
    for row in rows(tmp_path, "eval"):
        digits = row["prompt"][: tiny_task.DIGITS]
        assert row["label"] == "".join(digits[-1 - i] for i in range(tiny_task.DIGITS))
        assert row.keys() == {"prompt", "label", "datasource"}
    row = rows(tmp_path, "train")[0]
    wrong = row["label"][:-1] + str((int(row["label"][-1]) + 1) % 10)
    for said, score in ((row["label"], 1.0), ("..." + row["label"], 1.0), (wrong, 0.0), ("", 0.0)):
        result = tiny_reward.reward_func([row["prompt"] + said], [row["prompt"]], [row["label"]])
        assert float(result["scores"]) == float(result["rewards"]) == score, said


def test_pretraining_lines_are_right_as_often_as_skill_says():
    for skill in (1.0, 0.15):
        rng = random.Random(0)
        lines = [tiny_task.text(rng, skill) for _ in range(4000)]
        prompts = [line[: tiny_task.PROMPT_LENGTH] for line in lines]
        said = [line[tiny_task.PROMPT_LENGTH :] for line in lines]
        right = sum(
            answer.lstrip(".") == tiny_task.answer(prompt) for prompt, answer in zip(prompts, said, strict=True)
        )
        assert right / len(lines) == pytest.approx(skill, abs=0.02)  # 3.5 standard errors
        assert all(len(answer) + 1 <= tiny_task.RESPONSE_LENGTH for answer in said)
        assert {len(answer) - tiny_task.DIGITS for answer in said} == set(range(tiny_task.MAX_DOTS + 1))


def test_the_tokenizer_takes_every_character_for_a_token_and_back():
    tokenizer = tiny_task.make_tokenizer()
    text = "3758=...8573"
    ids = tokenizer(text).input_ids
    assert len(ids) == len(text) and tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids + [tokenizer.eos_token_id], skip_special_tokens=True) == text
    assert tokenizer(text + tiny_task.EOS).input_ids == ids + [tokenizer.eos_token_id]
    assert tokenizer("a").input_ids == [tokenizer.unk_token_id]


def test_the_cache_is_named_by_all_that_makes_the_model():
    keys = {
        CONFIG.key,
        replace(CONFIG, seed=1).key,
        replace(CONFIG, skill=0.2).key,
        replace(CONFIG, unsure_steps=1).key,
    }
    assert len(keys) == 4 and tiny_task.TinyConfig().key == CONFIG.key


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the tiny model .* Set REAL_CACHE to a folder with space"):
        tiny_task.prepare(CONFIG, tmp_path / "file" / "cache", progress=False)
