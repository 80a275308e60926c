"""The lines for GPUs, run without one: nothing mixes host and device, and the host waits as often as it did.

Tensors only say that they are on cuda (`pretend_cuda.py`). The engine stands in for DeepSpeed's. And every rank takes
part in the same collectives in the same order.
"""

import pytest
from every import every
from small_world import REPOSITORY

ATTENTION = ("--ds.attn_implementation", "flash_attention_torch")
PACKED = (*ATTENTION, "--ds.packing_samples", "--vllm.num_engines", "1")
KL = (*PACKED, *"--algo.kl.use_loss --algo.kl.init_coef 0.001 --algo.kl.estimator k3".split())
TWO_UPDATES = {"prompts": 2, "groups_per_update": 1, "fused_logprobs": True, "flags": PACKED}
UPSTREAM = {"batching": "whole_groups", "entropy_coef": 0.0}

# A form, and the waits of two updates beside 5 in each forward: of each update the guard's, the norm's and the
# log's, of each exchange of scores one.
FORMS = {
    "real": ({"checkpointing": True, "entropy_coef": 0.0}, 7),
    "waves of one": ({"prompts": 4, "groups_per_update": 2, "micro_batch_size": 1, "depth": "1"}, 8),
    "LoRA, a token budget, a dummy": (
        {"lora": True, "max_tokens": 30, "kinds": ("mixed", "uniform"), "skip": True},
        7,
    ),
    "entropy bonus, KL to the old policy, a factor for the sampler, scored first": (
        {"entropy_coef": 0.01, "kl_old_coef": 0.1, "flags": (*PACKED, "--algo.real.tis_cap", "2"), "depth": "0"},
        7,
    ),
    "KL to the reference": ({"flags": KL, "reference": True}, 7),
    "a score with a reference": ({"objective": "trpa", "reference": True}, 8),
    "graded rewards": ({"objective": f"{REPOSITORY}/examples/objectives/listwise.py:listwise", "graded": True}, 7),
    "grpo": ({"loss": "ppo", "flags": KL, "reference": True, **UPSTREAM}, 6),
    "dapo": ({"loss": "ppo", "flags": (*PACKED, "--actor.eps_clip_low_high", "0.2", "0.28"), **UPSTREAM}, 6),
    "gspo": ({"loss": "gspo", **UPSTREAM}, 6),
    "token weights by a file": ({"objective": f"{REPOSITORY}/examples/objectives/nft.py:nft"}, 6),
}
# Where the forward is another one, its waits are others too: of all forwards, then beside them.
OTHERS = {
    "padded": ({"flags": ATTENTION}, 2),
    "with logits": ({"fused_logprobs": False}, 4),
}
ALL = {name: (case, 5, rest) for name, (case, rest) in FORMS.items()} | {
    name: (case, forward, 7) for name, (case, forward) in OTHERS.items()
}


@pytest.mark.parametrize("name", ALL)
def test_a_step_mixes_no_devices_and_waits_as_often_as_it_did(one_rank, random_model, name):
    case, forward, rest = ALL[name]
    (found,) = one_rank("pretend_cuda.trained", model=random_model, **{**TWO_UPDATES, **case})
    assert found["mixes"] == {} and found["by_kernel"]
    assert sum(found["waits"].values()) == forward * found["forwards"] + rest, found["waits"]


def test_a_tensor_on_the_host_and_one_more_question_are_seen(one_rank, random_model):
    case = {"model": random_model, **TWO_UPDATES}
    (mixed,) = one_rank("pretend_cuda.trained", spoil="host", **case)
    assert mixed["mixes"] and all("algorithm/mismatch.py:" in where for where in mixed["mixes"])
    (asked,) = one_rank("pretend_cuda.trained", spoil="wait", **case)
    assert sum(asked["waits"].values()) == 6 * asked["forwards"] + 7
    assert asked["mixes"] == {}


@pytest.mark.parametrize("ipc", [False, True])
@pytest.mark.parametrize("lora", [False, True])
def test_weights_are_handed_over_from_the_device(one_rank, random_model, ipc, lora):
    (found,) = one_rank("pretend_cuda.handed_over", ipc=ipc, model=random_model, lora=lora)
    assert found["mixes"] == {} and not [where for where in found["waits"] if "at /tests/" not in where]


@pytest.mark.parametrize("over_ranks", [False, True])
def test_the_loss_alone_takes_tensors_of_the_device(one_rank, over_ranks):
    assert one_rank("pretend_cuda.loss_alone", over_ranks=over_ranks)[0]["mixes"] == {}


# Every rank takes part in the same collectives in the same order: NCCL, which pairs them by order, never hangs.


UNEVEN = {"groups_per_update": 1, "micro_batch_size": 1, "skip": True, "entropy_coef": 0.0}
UNEVEN |= {"kinds": ("uniform", "uniform", "ignored", "mixed")}  # updates with nothing, on one rank or on all
GRID = (2, 2), (2, 4), (3, 4)
METHODS = {"real": {"loss": "real"}, "ppo": {"loss": "ppo", "batching": "whole_groups"}}


@pytest.mark.parametrize("zero_stage, count", [(3, 2), *(pytest.param(*cell, marks=every) for cell in GRID)])
def test_collectives_have_one_order_on_all_ranks(start_ranks, random_model, zero_stage, count):
    """From the loading of a model to the hand-over of its weights."""
    ranks, case = start_ranks(count, "zero_jobs"), {"model": random_model, "zero_stage": zero_stage}
    jobs = [("zero_jobs.curve", {**UNEVEN, **method}) for method in METHODS.values()]
    for job, more in [*jobs, ("weight_jobs.handed_over", {"ipc": True})]:
        first, *others = ranks("collectives_of", job, **case, **more)
        assert all(order == first for order in others)
        names = {name for name, _, _ in first}
        assert "c10d::allgather_" in names or {"c10d::allreduce_", "c10d::_allgather_base_"} <= names
