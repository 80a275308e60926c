"""Parts of DeepSpeed, torch and vLLM that are replaced at run time (hooks/fixes), the guard against nan among them."""

import math
import subprocess
import sys

import pytest
from every import every
from small_world import REPOSITORY

DISCO = f"{REPOSITORY}/examples/objectives/disco.py:disco_logl"
BESIDE_A_GPU = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "deepspeed"]:
    del sys.modules[name]  # which chose the CPU when it was imported
from real_openrlhf.hooks.fixes.deepspeed_optimizers import AdamW, compile_less
import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.adam import cpu_adam, fused_adam
assert get_accelerator().device_name() == "cuda"
compile_less(own_batching=False)  # nor the release's, which could not start here
assert deepspeed.ops.adam.FusedAdam is fused_adam.FusedAdam is AdamW
builder = cpu_adam.CPUAdamBuilder()
said = [*builder.cxx_args(), *builder.extra_ldflags(), *builder.libraries_args()]
assert "-fopenmp" in said and not any("cu" in word for word in said), said
"""


def test_beside_a_gpu_neither_adam_needs_its_compiler(forked):
    python, environment = forked
    environment = {**environment, "DS_ACCELERATOR": "cuda", "CUDA_HOME": "/nowhere"}
    done = subprocess.run([python, "-c", BESIDE_A_GPU], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ray_starts_a_python_whose_path_has_a_space(monkeypatch):
    """Ray's own command for a worker lacks the quotes: each worker ended at once, and Ray waited 60 s for each."""
    from real_openrlhf.hooks.fixes import process_starts

    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert process_starts.quoted_python({"env_vars": {}}) == {"env_vars": {}, "py_executable": "'/a b/python'"}


def test_training_compiles_nothing_unless_states_are_offloaded(two_ranks, random_model):
    from real_openrlhf.hooks.fixes.deepspeed_optimizers import AdamW

    for found in two_ranks("optimizer", model=random_model):
        assert found == {"is": f"{AdamW.__module__}.AdamW", "compiled": False}


# A gradient that is added to itself 64 times is 64 times as large: in float32 exactly, in bfloat16 it is not

TIMES, IN_FP32 = 64, ("--ds.grad_accum_dtype", "fp32")


@pytest.mark.parametrize(
    "zero_stage, loss", [(2, "real"), *(pytest.param(*case, marks=every) for case in ((2, "ppo"), (3, "real")))]
)
def test_gradients_are_added_up_in_the_format_that_is_asked_for(one_rank, random_model, zero_stage, loss):
    case = {"model": random_model, "dtype": "bf16", "zero_stage": zero_stage, "loss": loss, "batching": "whole_groups"}

    def gradient(count, **changes):
        return one_rank("repeated_gradient", count=count, **case, **changes)[0]

    expected = TIMES * gradient(1)
    ways = {"flags": IN_FP32}, {}
    errors = [float((gradient(TIMES, **way) - expected).norm() / expected.norm()) for way in ways]
    assert errors[0] < 1e-5 and errors[1] > 5e-3, errors


# A nan on one of two ranks stops both before a weight changes, in REAL's trainer and in upstream's.


PLACES = {"loss": "the loss is", "log_probs": "the loss is", "gradient": "a gradient is", "scores": "a score of"}
IN_ZERO_2 = (("real", "gradient"), ("real", "scores"), ("ppo", "loss"))
FURTHER = (("real", "loss"), ("real", "log_probs"), ("ppo", "log_probs"), ("ppo", "gradient"))
OFFLOADED = {"loss": "ppo", "dtype": "bf16", "flags": ("--ds.adam_offload",)}


@pytest.mark.parametrize(
    "case, where",
    [
        *(({"loss": loss, "dtype": "fp32", "zero_stage": 2}, where) for loss, where in IN_ZERO_2),
        *(
            pytest.param({"loss": loss, "dtype": "fp32", "zero_stage": 2}, where, marks=every)
            for loss, where in FURTHER
        ),
        *(({"loss": loss, "dtype": "bf16", "zero_stage": 3}, where) for loss, where in IN_ZERO_2[1:]),
        ({"loss": "ppo", "dtype": "bf16", "zero_stage": 0}, "gradient"),
        ({"loss": "gspo", "zero_stage": 2}, "log_probs"),
        ({"value": math.inf}, "gradient"),
        *(pytest.param({**OFFLOADED, "zero_stage": stage}, "gradient", marks=every) for stage in (2, 3)),
    ],
    ids=str,
)
def test_a_nan_or_an_infinity_on_one_rank_changes_nothing_on_either(two_ranks, random_model, case, where):
    # DisCO's scores are log-probabilities: known from no plan, exchanged in the first step too
    objective = DISCO if where == "scores" else "real"
    case = {"value": math.nan, **case}
    for report in two_ranks("poisoned", model=random_model, where=where, objective=objective, **case):
        assert set(report["compared"]) >= {"master", "exp_avg", "exp_avg_sq"}
        assert report["error"].startswith(PLACES[where])
        assert "optimizer step 3: stopped before the weights changed" in report["error"]
        assert report["changed"] == []
        assert report["steps"] == 0


def test_a_run_gives_ray_longer_than_its_own_30_seconds_while_the_raylet_lives(monkeypatch):
    """With a raylet that ends: tests/e2e/test_ray_processes.py."""
    from ray._private import services

    from real_openrlhf.hooks.fixes import process_starts

    unknown = [RuntimeError("no such node")] * 3

    def get_node(*words):
        if unknown:
            raise unknown.pop()
        return words

    monkeypatch.setattr(services, "get_node", get_node)
    monkeypatch.setattr(services, "start_raylet", services.start_raylet)
    monkeypatch.setenv("RAY_agent_register_timeout_ms", "1")
    monkeypatch.setattr(process_starts, "SECONDS", 1.0)
    process_starts.wait_longer()
    assert services.get_node("address", "node") == ("address", "node") and not unknown
    unknown += [RuntimeError("no such node")] * 99
    with pytest.raises(RuntimeError):
        services.get_node("address", "node")
    assert len(unknown) > 90


def test_ranks_of_one_machine_meet_on_its_loopback_alone(forked):
    program = """
import os, socket
import torch.distributed as ranks
from real_openrlhf.hooks.fixes.process_starts import keep_stores_here
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1")
keep_stores_here()
ranks.init_process_group("gloo")
ranks.barrier()
listening = [line.split()[1] for line in open("/proc/net/tcp") if line.split()[3] == "0A"]
assert [place for place in listening if place.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
"""
    python, environment = forked
    subprocess.run([python, "-c", program], env=environment, check=True, timeout=600)
