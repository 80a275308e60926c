"""What waits in a machine's own memory, by hand."""

import pytest

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks import host_memory, memory_estimate

P = 7_615_616_512
SLEEPING, PINNED = "weights of sleeping vLLM engines", "the sleeping policy's Adam and gradients, pinned"


def waits(recipe="qwen7b", algo="real", user=None, removed=(), nodes=1, engines=8) -> dict[str, float]:
    plan = compose(RECIPES[recipe], ALGORITHMS[algo], user or {}, removed)
    shape = memory_estimate.shape_of(memory_estimate.KNOWN_CONFIGS[plan.text("--actor.model_name_or_path")])
    found = host_memory.host_memory(shape, memory_estimate.layout_of(plan), nodes, engines)
    return {name: size for name, size in found.items() if "guess" not in name}


def test_what_sleeps_is_on_the_host():
    assert waits() == {SLEEPING: 2 * P * 8, PINNED: 16 * P}  # fp32: weights, two moments, gradients
    assert waits(nodes=2) == {SLEEPING: 2 * P * 4, PINNED: 8 * P}
    assert waits(removed=["--ds.grad_accum_dtype"])[PINNED] == 14 * P
    assert waits(removed=["--vllm.enable_sleep", "--ds.enable_sleep"]) == {}
    adapters = waits("qwen7b-lora", engines=1)
    assert adapters[SLEEPING] == 2 * P and adapters[PINNED] < 16 * P / 40  # what is trained only


def test_what_is_offloaded_is_too():
    assert waits(user={"--ds.adam_offload": ()}) == {SLEEPING: 16 * P, "Adam and gradients in fp32": 16 * P}
    assert waits(algo="grpo", user={"--ref.offload": ()})["reference model (bf16)"] == 2 * P


@pytest.mark.parametrize("host, warned", [(None, False), (2e12, False), (128e9, True)])
def test_a_machine_with_too_little_is_told(host, warned):
    plan = compose(RECIPES["qwen7b"], ALGORITHMS["real"], {}, ())
    shape = memory_estimate.shape_of(memory_estimate.KNOWN_CONFIGS[RECIPES["qwen7b"].model])
    lines, warnings = host_memory.report(shape, plan, host)
    assert lines[0].startswith("host memory, a machine: ") and bool(warnings) is warned
