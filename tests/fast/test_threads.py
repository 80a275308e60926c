"""How many threads a CPU run takes: by the model's size, and by what computes at once."""

import json

import pytest

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.launch import threads
from real_openrlhf.training.tasks import smollm2
from real_openrlhf.training.tasks.tasks import default

REAL = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}
TINY = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}


def chosen(tmp_path, config: dict, *flags: tuple[str, str]) -> tuple[int, str]:
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 1000, "num_key_value_heads": 4}))
    user = {"--actor.model_name_or_path": (str(tmp_path),), **{flag: (value,) * bool(value) for flag, value in flags}}
    return threads.choice(compose(RECIPES["cpu"], ALGORITHMS["real"], user))


@pytest.mark.parametrize(
    "flags, at_once",
    [
        ([], 1),
        ([("--actor.num_gpus_per_node", "2")], 2),
        ([("--train.async_enable", ""), ("--vllm.num_engines", "3")], 4),
    ],
    ids=["one rank", "two ranks", "asynchronous"],
)
def test_what_computes_at_once_shares_the_cores(tmp_path, monkeypatch, flags, at_once):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(8))  # the machine's, not ours
    count, why = chosen(tmp_path, REAL, *flags)
    assert count == 8 // at_once and "8 cores" in why


def test_a_tiny_model_has_one_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(8))
    assert chosen(tmp_path, TINY)[0] == 1
    assert chosen(tmp_path, REAL)[0] == 8


def test_a_model_that_is_not_here_is_real_and_a_tasks_is_tiny(tmp_path):
    assert threads.parameters("Qwen/Qwen2.5-1.5B") is None
    assert threads.parameters(str(tmp_path / "reverse" / "model")) == 0


def test_a_pretrained_model_that_is_yet_to_be_made_has_all_cores():
    for path in (smollm2.folder() / "model", default("needle_haystack").folder() / "model"):
        assert threads.parameters(str(path)) == smollm2.PARAMETERS > threads.SMALL
