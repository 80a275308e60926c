"""What Ray's processes of a run have: the run's own Ray for an engine on several GPUs, a reason if the engine cannot
start, the reward function's variables on a cluster that others started, and no GPU where none was asked for. And what
a cluster is asked before training."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import forked_workers
import psutil
import pytest
from every import every
from small_runs import NO_EVALUATION, SMALL, run_flags
from small_world import copy_release

from real_openrlhf import patching
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.rewards.variables import JOB, NAMES
from real_openrlhf.training.launch_target import ON_GPUS, QUOTED, LaunchTarget

SECONDS = 1800  # after which a driver has failed


@contextmanager
def started(monkeypatch, cpus: int) -> Iterator:
    """The first node of a cluster, with a GPU."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    for name in ("RAY_ADDRESS", *NAMES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": cpus, "num_gpus": 1, "include_dashboard": False}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
    yield made
    made.shutdown()


def run(program: str, folder, *words: str, **environment: str) -> list:
    """The program's last line, from a process of its own."""
    (folder / "program.py").write_text(program)
    inherited = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", *NAMES)}
    variables = {**inherited, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(folder), **environment}
    done = subprocess.run(
        [sys.executable, str(folder / "program.py"), *words], env=variables, capture_output=True, text=True
    )
    assert not done.returncode, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ENGINE = '''
import json, multiprocessing, os
from types import SimpleNamespace


def core(group, queue):
    """vLLM's engine process with two GPUs, as far as it needs none."""
    import ray, vllm.platforms
    import vllm.v1.executor.ray_utils as vllm_ray
    cuda = dict(is_cuda=True, is_rocm=False, is_xpu=False, is_tpu=False)
    vllm.platforms._current_platform = SimpleNamespace(
        ray_device_key="GPU", device_name="cuda", device_count=lambda: 2,
        **{name: lambda answer=answer: answer for name, answer in cuda.items()})
    config = SimpleNamespace(world_size=2, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1,
                             ray_runtime_env=None, placement_group=group)
    try:
        vllm_ray.initialize_ray_cluster(config, require_gpu_on_driver=False)
        queue.put(ray.get_runtime_context().gcs_address)
    except BaseException as error:
        queue.put(repr(error))


if __name__ == "__main__":
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    ray.init(include_dashboard=False, logging_level="ERROR")
    group = placement_group([{"GPU": 1, "CPU": 1}] * 2)
    ray.get(group.ready())

    @ray.remote
    class Actor:
        def start(self):
            import program
            from real_openrlhf.hooks.engine.requests import engine_arguments
            engine_arguments({})
            spawn = multiprocessing.get_context("spawn")
            queue = spawn.Queue()
            spawn.Process(target=program.core, args=(ray.util.get_current_placement_group(), queue)).start()
            return ray.get_runtime_context().gcs_address, queue.get(timeout=1200)

    strategy = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
    actor = Actor.options(num_cpus=0, num_gpus=0, scheduling_strategy=strategy).remote()
    print(json.dumps(ray.get(actor.start.remote())))
'''


@every  # what vLLM's process reads is in slow: a new Ray or vLLM can break it
def test_an_engine_on_two_gpus_joins_the_runs_own_ray(tmp_path):
    """With RAY_ADDRESS=local its process would start a second Ray, and miss the placement group there."""
    here = LaunchTarget(None, 2, 80.0, on_cpu=False).environment(run_flags())
    here |= {"RAY_OVERRIDE_RESOURCES": json.dumps({"GPU": 2, "CPU": 4}), "VLLM_LOGGING_LEVEL": "ERROR"}
    assert here["RAY_ADDRESS"] == "local"
    ours, engines = run(ENGINE, tmp_path, **{name: here[name] for name in here if name not in os.environ})
    assert engines == ours


@every  # a raylet that ends later is below
@pytest.mark.parametrize("name, signal", [("dashboard/agent.py", "suspend"), ("raylet/raylet", "kill")])
def test_a_ray_whose_agent_is_late_trains_and_one_that_dies_is_told_at_once(train, tmp_path, name, signal):
    """A raylet gives its agents 15 s, which a busy machine does not; here a signal stops one of them for 30 s."""
    words = ["--runs-dir", str(tmp_path), "--run-name", "late", "--max-steps", "1", *SMALL, *NO_EVALUATION]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ray = str(Path(find_spec("ray").origin).parent)
    apart = {forked_workers.APART: f"{ray}/{name}"}  # a fork would go on while who asked for it is stopped
    child = subprocess.Popen([*train.python, "train", *words], env=train.environment | apart, **streams)
    hit: list[psutil.Process] = []
    while child.poll() is None and not hit:
        for process in train.server.children(recursive=True):
            with suppress(psutil.Error):
                hit += [process] * any(word.endswith(name) for word in process.cmdline())
    getattr(hit[0], signal)()
    if signal == "suspend":
        time.sleep(30)
        with suppress(psutil.NoSuchProcess):  # the run has ended
            hit[0].resume()
    output, _ = child.communicate(timeout=1200)
    told = "step    1/1" if signal == "suspend" else "failed (RayError: Ray's raylet ended while it started"
    assert told in output and bool(child.returncode) == (signal == "kill"), output


LATER = """
import time
import psutil, ray
from ray.util.placement_group import placement_group
from real_openrlhf.hooks.fixes.process_starts import wait_longer
from real_openrlhf.hooks.upstream_trainer import EngineStartTrainer
wait_longer()
ray.init(logging_level="ERROR", num_cpus=1, include_dashboard=False)


class Engine:
    def __init__(self):
        raise ValueError("no memory for an engine")


trainer = object.__new__(EngineStartTrainer)
trainer.vllm_engines = [ray.remote(Engine).remote()]
try:
    trainer._init_vllm_sync_group("gloo")
except ray.exceptions.RayActorError as error:
    print(error)
ray.shutdown()  # which ends a raylet too
ray.init(logging_level="ERROR", num_cpus=1, include_dashboard=False)
(raylet,) = (one for one in psutil.Process().children() if any(w.endswith("raylet/raylet") for w in one.cmdline()))
raylet.kill()
while any(node["Alive"] for node in ray.nodes()):
    time.sleep(0.2)
ray.get(placement_group([{"CPU": 1}]).ready())
"""


@pytest.fixture(scope="module")
def later(forked):
    python, environment = forked
    checks = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "5000"}
    words = [python, "-c", LATER]
    return subprocess.run(words, env=environment | checks, capture_output=True, text=True, timeout=SECONDS)


def test_a_raylet_that_ends_before_the_first_answer_ends_the_driver(later):
    """Ray's GCS keeps the request, for ever."""
    assert later.returncode == 1 and "RayError: Ray's raylet ended. Its raylet.err says why" in later.stderr


def test_a_policy_is_told_why_its_engine_did_not_start(later):
    """It would wait half an hour for it."""
    assert "ValueError: no memory for an engine" in later.stdout, later.stderr


@every  # the policy's wait is above; that a run ends with an actor's reason: test_user_files.py
def test_an_engine_that_cannot_start_ends_the_run_with_its_reason(train):
    crowded = replace(train, environment={**train.environment, "VLLM_CPU_KVCACHE_SPACE": "1000000"})  # GB
    run = crowded("no-engine", "--max-steps", "1", code=1)
    assert "failed (" in run.output and "ValueError: Available memory" in run.log


DRIVER = """
import json, os, sys
import ray
from openrlhf.cli import train_ppo_ray
from real_openrlhf.hooks.arguments import run_training_script


class Started(Exception):
    pass


def stop(args):
    raise Started


start = ray.init
FLAGS = "--actor.model_name_or_path m --reward.remote_url r --train.colocate_all --actor.num_gpus_per_node 1"
FLAGS += " --vllm.num_engines 1 --rollout.n_samples_per_prompt 8 --algo.advantage.estimator group_norm"


def seen(*names, **environment):
    os.environ.update(environment)
    train_ppo_ray.get_strategy = stop  # OpenRLHF's script has started Ray before
    try:
        run_training_script(train_ppo_ray.train, lambda: train_ppo_ray.parse_args(FLAGS.split()))
    except Started:
        return ray.get(ray.remote(lambda: [os.environ.get(name) for name in names]).remote())
    finally:
        ray.shutdown()
        ray.init = start


def sees(value):
    told = ray.remote(lambda: os.environ.get("CUDA_VISIBLE_DEVICES"))
    return ray.get(told.options(runtime_env={"env_vars": {accelerators: value}}).remote())


job, accelerators = sys.argv[1:]
sys.argv[1:] = FLAGS.split()
found = [seen("REAL_GRADER", "REAL_THINK", "OTHER")]
found += [seen("REAL_GRADER", "REAL_THINK", **{job: os.environ["JOB"], "REAL_THINK": "required"})]
os.environ.pop(job)
ray.init(logging_level="ERROR")
print(json.dumps([*found, [sees("1"), sees("0")]]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What actors and tasks see on a cluster that others started, by the driver of a run that joins it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        with started(monkeypatch, 1) as made:
            mine = {"REAL_GRADER": "disco", "OTHER": "stays here", "RAY_ADDRESS": made.address}
            mine["RAY_RUNTIME_ENV_HOOK"] = QUOTED
            job = {"runtime_env": {"env_vars": {"REAL_GRADER": "disco"}}, "metadata": {}}
            folder = tmp_path_factory.mktemp("driver")
            return run(DRIVER, folder, JOB, *ON_GPUS, **mine, JOB=json.dumps(job))


@every  # of a cluster, which starts twice
def test_the_reward_functions_variables_reach_a_cluster_that_others_started(found):
    assert found[0] == ["disco", None, None]


@every
def test_in_a_job_ray_passes_on_the_jobs_own(found):
    """It refuses a variable that the driver names again."""
    assert found[1] == ["disco", "required"]


@every
def test_a_process_that_asked_for_no_gpu_sees_none(found):
    """Also with Ray's newer default, which shows it all of them: the run sets the variable to 1."""
    assert found[2] == ["", "7"]
    assert LaunchTarget(None, 1, 80.0, on_cpu=False).environment(run_flags()).items() >= {(*ON_GPUS, "1")}


# Asked before training: enough GPUs, and the patches on every node


def problems(monkeypatch, address: str, nodes: int, gpus: int) -> list[str]:
    monkeypatch.setenv("RAY_ADDRESS", address)
    user = {"--actor.num_nodes": (str(nodes),), "--actor.num_gpus_per_node": (str(gpus),)}
    return [*LaunchTarget.for_recipe(RECIPES["cpu"]).launch_problems(run_flags("cpu", user=user))]


@pytest.fixture(scope="module")
def unpatched(tmp_path_factory):
    """A copy of OpenRLHF with the patches taken off, as a forgotten node would have it."""
    return copy_release(tmp_path_factory.mktemp("unpatched"))


@pytest.fixture(scope="module")
def cluster():
    """A head and one node beside it."""
    with pytest.MonkeyPatch.context() as monkeypatch, started(monkeypatch, 2) as made:
        made.add_node(num_cpus=1, num_gpus=1)
        yield made


@every  # three nodes start for half a minute
def test_two_nodes_are_fine_and_too_few_gpus_are_told(cluster, monkeypatch):
    assert problems(monkeypatch, cluster.address, nodes=2, gpus=1) == []
    (problem,) = problems(monkeypatch, cluster.address, nodes=2, gpus=4)
    assert "this run needs 8 GPUs on 2 nodes, the cluster has 2 on 2" in problem and "--gpus" in problem


@every
def test_the_node_without_patches_is_named_with_the_fix(cluster, monkeypatch, unpatched):
    shadow = os.pathsep.join([str(Path(patching.__file__).parents[1]), str(unpatched)])
    node = cluster.add_node(num_cpus=1, num_gpus=1, env_vars={"PYTHONPATH": shadow})
    (problem,) = problems(monkeypatch, cluster.address, nodes=3, gpus=1)
    cluster.remove_node(node)
    assert f"{unpatched / 'openrlhf'} on node" in problem
    assert "does not carry the patches openrlhf-0.11.2" in problem
    assert "patching apply" in problem
