"""Two gloo ranks and one, shared by all tests of real ZeRO engines, and the models that they load."""

import pytest


@pytest.fixture(scope="session")
def two_ranks(start_ranks):
    return start_ranks(2, "zero_jobs")


@pytest.fixture(scope="session")
def one_rank(start_ranks):
    return start_ranks(1, "zero_jobs")


@pytest.fixture(scope="session")
def python(forked) -> str:
    """Used like Python, with the stack imported."""
    return forked[0]


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> str:
    """The tiny model with random weights and biases: as good as a trained one where only numbers are compared."""
    import torch

    from real_openrlhf.training.tasks import tiny_model
    from real_openrlhf.training.tasks.reverse_task import ReverseTask

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
