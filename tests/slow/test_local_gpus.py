"""The launcher learns how much memory GPUs have without starting CUDA in its own process."""

from real_openrlhf import nvidia
from real_openrlhf.training.checks import preflight


def test_the_launcher_asks_for_memory_in_another_process(monkeypatch):
    import torch

    assert len(nvidia.memory_sizes()) == torch.cuda.device_count()  # the real question
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # there is none here
    monkeypatch.setattr(nvidia, "memory_sizes", lambda: [150_000_000_000, 80_000_000_000])
    assert preflight.local_gpus() == (2, 80.0)
    assert not torch.cuda.is_initialized()
