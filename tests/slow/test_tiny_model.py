"""The tiny model is made the same from the same configuration, and kept."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.tasks import TINY, default


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
