"""Two gloo ranks and one, shared by all tests of real ZeRO engines, and the models that they load."""

import os
from collections.abc import Iterator

import pytest

from real_openrlhf.training import forked_workers


@pytest.fixture(scope="session")
def two_ranks(start_ranks):
    return start_ranks(2, "zero_jobs")


@pytest.fixture(scope="session")
def one_rank(start_ranks):
    return start_ranks(1, "zero_jobs")


@pytest.fixture(scope="session")
def python() -> Iterator[str]:
    """Used like Python: its processes are forks of one that has imported PyTorch, DeepSpeed and vLLM."""
    with forked_workers.started({**os.environ, forked_workers.WANTED: "1"}) as (python, _):
        yield python


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> str:
    """The tiny model with random weights and biases: as good as a trained one where only numbers are compared."""
    import torch

    from real_openrlhf.training import tiny_model
    from real_openrlhf.training.reverse_task import ReverseTask

    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny_model.make_tokenizer(ReverseTask)
    model = tiny_model.make_model(ReverseTask, tokenizer, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.02, generator=generator)
    model.save_pretrained(folder)  # float32
    tokenizer.save_pretrained(folder)
    return str(folder)
