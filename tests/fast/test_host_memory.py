"""What waits in a machine's own memory, by hand. PyTorch takes a power of two of bytes for each pinned block."""

import pytest

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks import memory_estimate

P = 7_615_616_512
ENGINES, POLICY = "weights of sleeping vLLM engines, pinned", "the sleeping policy's Adam and gradients, pinned"
MB = 1 << 20
# q k v 31.5 MB, attention's output 24.5, gate and up 259, down 129.5, each of 28 times; embeddings and head 1,039.5
ENGINE = (28 * (32 + 32 + 512 + 256) + 2 * 2048) * MB


def composed(recipe="qwen7b", algo="real", user=None, removed=()):
    plan = compose(RECIPES[recipe], ALGORITHMS[algo], user or {}, removed)
    return memory_estimate.shape_of(memory_estimate.KNOWN_CONFIGS[plan.text("--actor.model_name_or_path")]), plan


def waits(*args, **named) -> dict[str, float]:
    found = memory_estimate.host_memory(*composed(*args, **named))
    return {name: size for name, size in found.items() if "guess" not in name}


@pytest.mark.parametrize("size, taken", [(1, 1), (4096, 4096), (4097, 8192), (2**31, 2**31), (2**31 + 1, 2**32)])
def test_a_pinned_block_is_a_power_of_two(size, taken):
    assert memory_estimate.pinned(size) == taken


def test_what_sleeps_is_on_the_host():
    # a rank has 0.95 billion parameters: fp32 weights, two moments and gradients are blocks of 3.8 of 4.3 GB
    assert waits() == {ENGINES: 8 * ENGINE, POLICY: 8 * 4 * 2**32}
    assert waits(user={"--actor.num_nodes": ("2",)}) == {ENGINES: 8 * ENGINE, POLICY: 8 * 4 * 2**31}
    assert waits(removed=["--ds.grad_accum_dtype"])[POLICY] == 8 * (3 * 2**32 + 2**31)
    assert waits(removed=["--vllm.enable_sleep", "--ds.enable_sleep"]) == {}
    adapters = waits("qwen7b-lora")
    assert adapters[ENGINES] == ENGINE and adapters[POLICY] == 4 * 2**30  # what is trained only: 0.65 GB, 4 times


def test_a_weight_on_two_gpus_is_two_blocks():
    halves = (28 * (16 + 16 + 256 + 128) + 2 * 1024) * MB
    assert waits(user={"--vllm.tensor_parallel_size": ("2",)})[ENGINES] == 4 * 2 * halves


def test_zero_3_keeps_a_billion_parameters_in_one_buffer_at_most():
    one = waits(user={"--actor.num_gpus_per_node": ("1",)})[POLICY]
    assert one == 3 * 8 * 2**32 + 2**35  # seven of 4 GB and one of 2.5; all gradients in one of 30.5


def test_what_is_offloaded_is_too():
    assert waits(user={"--ds.adam_offload": ()})["Adam and gradients in fp32"] == 16 * P
    assert "reference model (bf16), pinned" in waits(algo="grpo", user={"--ref.offload": ()})
    assert "reference model (bf16), pinned" not in waits("qwen1.5b", "grpo", {"--ref.offload": ()})  # ZeRO-2


@pytest.mark.parametrize("host, warned", [(None, False), (2e12, False), (400e9, True)])
def test_a_machine_with_too_little_is_warned_of(host, warned):
    lines, warnings = memory_estimate.report(*composed(), 80, measured=True, host_bytes=host)
    assert "host memory, a machine: 431 GB" in lines
    assert any("431 GB of host memory" in warning for warning in warnings) is warned
