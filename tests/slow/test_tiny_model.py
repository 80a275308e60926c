"""Models that are made before a run: the same from the same settings, and kept."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from real_openrlhf.training.tasks import tiny_model
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
    settings, losses, weights = WarmUp(steps=16, batch_size=4, learning_rate=3e-3), {}, {}
    for name, shown in (("one", examples), ("two", examples), ("other", examples[::-1])):
        losses[name] = warm_up(tmp_path / "base", shown, settings, tmp_path / name, progress=False)
        weights[name] = load_file(tmp_path / name / "model.safetensors")
    assert all(torch.equal(value, weights["two"][name]) for name, value in weights["one"].items())
    assert not all(torch.equal(value, weights["other"][name]) for name, value in weights["one"].items())
    assert losses["one"] < 2.2  # of ten digits and six other tokens, guessed: 2.8; once boxes are learned: 1.3

    batch = _batch(tokenizer, [*examples[:1], ([{"role": "user", "content": "12="}], "21}")])
    trained = [tokenizer.decode(row[row != NO_LABEL]) for row in batch["labels"]]
    assert trained == [examples[0][1] + tiny_model.EOS, "21}" + tiny_model.EOS]
    assert batch["attention_mask"].sum(1).tolist() == [5 + 7, 3 + 4]
