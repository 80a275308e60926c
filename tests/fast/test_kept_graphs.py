"""What a rank's memory leaves for kept graphs, on a GPU that is not here: DeepSpeed's accelerator is replaced."""

from types import SimpleNamespace

import pytest
import torch

kept_graphs = pytest.importorskip("real_openrlhf.hooks.actor.kept_graphs")

GPU = 80_000_000_000


@pytest.fixture
def args(monkeypatch) -> SimpleNamespace:
    gpu = SimpleNamespace(device_name=lambda: "cuda", total_memory=lambda: GPU)
    monkeypatch.setattr(kept_graphs, "get_accelerator", lambda: gpu)
    return SimpleNamespace(
        train=SimpleNamespace(colocate_all=True, async_enable=False),
        vllm=SimpleNamespace(enable_sleep=False, gpu_memory_utilization=0.7),
        ds=SimpleNamespace(zero_stage=2, adam_offload=False),
        algo=SimpleNamespace(real=SimpleNamespace(reference=True)),
        ref=SimpleNamespace(offload=False),
    )


def test_vllm_takes_its_share_where_it_stays_on_the_policys_gpu(args):
    assert kept_graphs.sampler_bytes(args) == 0.7 * GPU


@pytest.mark.parametrize("flag", ["vllm.enable_sleep", "train.async_enable"])
def test_vllm_takes_nothing_where_it_sleeps_or_has_gpus_of_its_own(args, flag):
    group, name = flag.split(".")
    setattr(getattr(args, group), name, True)
    assert kept_graphs.sampler_bytes(args) == 0


def test_states_are_counted_from_the_engines_parameters(args):
    module = torch.nn.Sequential(torch.nn.Linear(10, 10, bias=False), torch.nn.Linear(10, 10, bias=False))
    module[0].weight.requires_grad = False
    engine = SimpleNamespace(module=module, dp_world_size=2)
    # weights and a reference's in bf16; of what is trained half the gradients in fp32, and half of Adam's states
    assert kept_graphs.states_bytes(engine, args) == 2 * (2 * 200) + (4 + 12) * 100 / 2
