"""What a run finds on its machine: GPUs and their driver, cores for its threads, attention and optimizer.

A recipe for CPU touches no GPU, and a recipe for GPUs needs the environment for GPUs. tests/e2e/test_user_files.py
asks the processes of a run which devices they see. Also: an engine's process after its parent was killed.
"""

import itertools
import json
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import forked_workers
import pytest
from small_runs import run_flags

from real_openrlhf.base.errors import UserError
from real_openrlhf.evaluation import engine_process, engines
from real_openrlhf.hooks.engine import plugin
from real_openrlhf.machine import doctor, free_gpus, nvidia
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training import cluster, command, launch_target
from real_openrlhf.training.launch_target import LaunchTarget


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


def test_cores_of_a_head_without_gpus_serve_no_gpu():
    """Ray places a GPU and its core on one node, and waits for ever where a node has fewer cores."""
    head, *workers = {"CPU": 64.0}, *[{"CPU": 4.0, "GPU": 8.0}] * 2
    (problem,) = cluster.problems([head, *workers], 2, 16)
    assert "a core with each of 16 GPUs and one more, the cluster offers 9" in problem
    assert [*cluster.problems([head, *workers], 2, 8)] == []
    (problem,) = cluster.problems([head, *workers], 2, 24)
    assert "this run needs 24 GPUs on 2 nodes, the cluster has 16 on 2." in problem
    (problem,) = cluster.problems(workers, 1, 8)  # none for the controllers
    assert "the cluster offers 8" in problem


# On GPUs: threads of DeepSpeed's Adam on the CPU, and the allocator's variables

ON_GPUS = LaunchTarget(None, 8, 80.0, on_cpu=False)


def test_adam_on_the_cpu_has_the_cores_of_its_rank(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(launch_target.os, "sched_getaffinity", lambda _: range(96))  # the machine's, not ours
    offloaded = run_flags(user={"--ds.adam_offload": ()})
    assert ON_GPUS.environment(offloaded)["OMP_NUM_THREADS"] == "12"
    assert "OMP_NUM_THREADS" not in ON_GPUS.environment(run_flags())
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
    assert ON_GPUS.environment(run_flags()).get(name) == left
    assert LaunchTarget(None, 0, None, on_cpu=True).environment(run_flags("cpu"))[name] == asked


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
    recipe, planned = RECIPES[name], command.request_of(["--recipe", name]).run
    here = LaunchTarget.for_recipe(recipe)
    kind = "cpu" if recipe.on_cpu else "gpu"
    variables = here.environment(planned)
    assert leaves_gpus_alone(variables) == recipe.on_cpu
    assert here.gpus_here == (GPUS if kind == environment == "gpu" else 0)
    assert ("GPU" in json.loads(variables["RAY_OVERRIDE_RESOURCES"])) == recipe.on_cpu  # else Ray counts them
    problems = [*here.launch_problems(planned)]
    assert bool(problems) == (kind != environment)
    assert all(f"bash examples/scripts/setup_env.sh {kind}" in problem for problem in problems)


# The GPUs that a run takes: two open files of a lock exclude each other as those of two processes do


@pytest.fixture
def shells(monkeypatch, tmp_path, program):
    """shells(visible, count) is `take(count)` of a new shell; `shells.others` are UUIDs of others' processes."""
    monkeypatch.setattr(free_gpus, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(free_gpus, "PATIENCE", 0)
    others = tmp_path / "others"
    others.touch()
    listed = "; ".join(f"echo '{number}, GPU-{number}{number}'" for number in range(8))
    program("nvidia-smi", f'case "$1" in --query-compute-apps*) cat {others} ;; *) {listed} ;; esac')

    def new(visible: str | None, count: int) -> str | None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        usable = list("01234567") if visible is None else visible.split(",")
        monkeypatch.setattr(nvidia, "usable_gpus", lambda: usable)
        monkeypatch.setattr(free_gpus, "_held", {})
        new.alive.append(free_gpus._held)  # until the test ends
        variables = free_gpus.take(count)
        assert (variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID") == (bool(variables) and visible is None)
        return variables.get("CUDA_VISIBLE_DEVICES")

    new.alive, new.others = [], others
    return new


def test_shells_take_other_gpus_until_none_is_left(shells, capsys):
    assert [shells(None, 2) for _ in range(4)] == ["0,1", "2,3", "4,5", "6,7"]
    assert capsys.readouterr().out.splitlines()[1] == (
        f"takes GPU 2, 3 of 8; 0 is in use by process {os.getpid()}; 1 is in use by process {os.getpid()}"
    )
    with pytest.raises(UserError, match=r"needs 1 free GPU of 8; in use: 0 \(process \d+\), 1"):
        shells(None, 1)
    held = shells.alive[0]
    while held:  # that shell ends
        held.popitem()[1].close()
    assert shells(None, 1) == "0"
    assert free_gpus.take(1) == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # its next run
    with pytest.raises(UserError, match="needs 8 free GPUs of 8"):
        shells(None, 8)


def test_gpus_that_a_user_or_a_job_names_are_the_same_by_number_and_uuid(shells):
    assert shells("3,GPU-5", 1) == "3" and shells("GPU-3,5", 1) == "5"
    assert shells("MIG-GPU-1/1/0,MIG-b", 1) == "MIG-GPU-1/1/0" and shells("MIG-GPU-1/1/0,MIG-b", 1) == "MIG-b"
    assert shells("7", 1) is None  # the one that it names, as a job of SLURM
    with pytest.raises(UserError, match="needs 1 free GPU of 1"):
        shells("7", 1)


def test_a_gpu_where_another_program_computes_is_left_to_it_unless_it_is_named(shells, capsys):
    shells.others.write_text("GPU-00, 4711\nGPU-22, 4712\n")
    assert shells(None, 2) == "1,3" and "; 0 is in use by process 4711; 2 is in" in capsys.readouterr().out
    with pytest.raises(UserError, match="needs 8 free GPUs of 8; in use: 0 .process 4711"):
        shells(None, 8)
    assert shells("0", 1) is None and shells("0,2,5", 1) == "5"  # it names more than are needed
    with pytest.raises(UserError, match="in use"):
        shells("0", 1)  # not a second run of ours


HOLDER = """
import pathlib, sys
from real_openrlhf.machine import free_gpus, nvidia
from real_openrlhf.training.trainer_process import supervise
nvidia.usable_gpus = lambda: ["0"]
free_gpus.LOCKS = pathlib.Path(sys.argv[1])
free_gpus.take(1)
class Progress:
    log = free_gpus.LOCKS / "log"
    update = close = lambda self: None
child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
supervise([sys.executable, "-c", child], {}, open(sys.argv[1] + "/lock", "w").fileno(), Progress())
"""


def test_a_killed_command_leaves_its_gpus_when_its_training_ends_too(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia, "usable_gpus", lambda: ["0"])
    for name, value in {"LOCKS": tmp_path, "PATIENCE": 0, "_held": {}}.items():
        monkeypatch.setattr(free_gpus, name, value)
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)])
    while process.poll() is None and not (tmp_path / "log").exists() or not (tmp_path / "log").read_text():
        time.sleep(0.05)
    process.kill()
    process.wait()
    with pytest.raises(UserError, match="in use"):
        free_gpus.take(1)
    training = os.pidfd_open(int((tmp_path / "log").read_text()))
    signal.pidfd_send_signal(training, signal.SIGKILL)
    assert multiprocessing.connection.wait([training], 60)
    os.close(training)
    assert free_gpus.take(1) == {}


@pytest.mark.parametrize("size, gpus, refused", [(64e6, 8, True), (64e6, 1, False), (1.08e9, 8, False)])
def test_several_gpus_need_shared_memory_for_nccl(environment, monkeypatch, size, gpus, refused):
    monkeypatch.setattr(nvidia.shutil, "disk_usage", lambda _: SimpleNamespace(total=size, free=1e12))
    monkeypatch.setattr(nvidia, "gpu_count", lambda: gpus)
    run = run_flags("qwen7b" if gpus == 8 else "qwen1.5b-1gpu")
    problems = [text for text in ON_GPUS.launch_problems(run) if "/dev/shm has 64 MB" in text and "--shm-size" in text]
    assert len(problems) == refused
    check = of(doctor.check_room)["/dev/shm"]
    assert (check.level == "FAIL") == (refused and environment == "gpu")


def test_an_engine_for_gpus_that_are_not_there_is_refused(environment, monkeypatch):
    import torch

    if environment == "gpu":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(engines.UserError, match=r"PyTorch sees no GPU.*real-openrlhf doctor.*setup_env.sh cpu"):
            next(engines.generate([], engine_process.Engine("m", 1, 1, 1, 1, 1, "auto", 1), None))


# An engine's process after its parent was killed: real processes, spawned as vLLM spawns them. And its last words.


PARENT = """
import multiprocessing, os, signal, sys, time
from types import SimpleNamespace
from real_openrlhf.hooks.engine import plugin

def engine():
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        plugin.PATIENCE = 0.1
    sys.modules["vllm.platforms"] = SimpleNamespace(current_platform=SimpleNamespace(is_cpu=lambda: False))
    plugin.start()
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    if "wished" in sys.argv:
        os.environ[plugin.WANTED] = "1"
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
        assert bool(multiprocessing.connection.wait([engine], 120 if ends else 1)) == ends
    finally:
        if not ends:
            signal.pidfd_send_signal(engine, signal.SIGKILL)
        os.close(engine)


def test_vllm_finds_the_plugin():
    found = {one.name: one for one in entry_points(group="vllm.general_plugins")}
    assert found["real_openrlhf"].load() is plugin.start


# The doctor: what it reads from the machine, and that nothing it asks can hang or crash it


def of(check) -> dict[str, doctor.Check]:
    return {result.name: result for result in check()}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site-packages of its own, the only one that importlib.metadata can see, in an environment of no lock."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr("sys.prefix", str(tmp_path))

    def install(name: str, version: str) -> None:
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    return install


def test_another_version_is_a_warning_and_another_openrlhf_or_a_missing_package_a_failure(site, tmp_path):
    for name, version in {"openrlhf": "0.12.0", "torch": "2.13.0+cpu", "transformers": "5.16.0"}.items():
        site(name, version)
    found = of(doctor.check_packages)
    assert found["openrlhf"].level == "FAIL" and found.keys() == {"packages", "openrlhf"}
    (tmp_path / ".real_env").write_text("complete\ncpu 3.11 /venv /repository\nhash\n")
    found = of(doctor.check_packages)
    assert [found[name].level for name in ("openrlhf", "transformers", "deepspeed")] == ["FAIL", "warn", "FAIL"]
    assert found["packages"].state.startswith("1 have")  # torch
    assert found["transformers"].state.startswith("5.16.0, tested with ")
    assert "pip install --no-deps deepspeed==" in found["deepspeed"].todo


def test_an_openrlhf_without_the_patches_is_a_failure_with_the_command(tmp_path, monkeypatch):
    (tmp_path / "openrlhf").mkdir()
    (tmp_path / "openrlhf/__init__.py").touch()
    monkeypatch.delitem(sys.modules, "openrlhf", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    found = of(doctor.check_patches)["patches"]
    assert found.level == "FAIL" and f"{tmp_path}/openrlhf" in found.state
    assert f"-m real_openrlhf.patching apply --root {tmp_path}`" in found.todo


@pytest.mark.parametrize("second, said", [(0.1, "0.16 GB/s (0.3 GB in 1.7 s)"), (1.0, "0.011 GB/s (67 MB in 6.0 s)")])
def test_the_disks_speed_is_that_of_few_writes(monkeypatch, tmp_path, second, said):
    clock, writes = itertools.count(0, second), []
    monkeypatch.setattr(doctor.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(doctor.os, "fsync", writes.append)
    assert doctor.disk_speed(str(tmp_path)) == f", writes {said}" and len(writes) <= 16 and not [*tmp_path.iterdir()]
    assert doctor.disk_speed(str(tmp_path / "none")) == ""


def test_a_probe_that_hangs_is_killed_with_everything_that_it_started(tmp_path, monkeypatch):
    child = tmp_path / "child"
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(child.pid))\n"
        "time.sleep(300)\n"
    )
    wait = subprocess.Popen.wait

    def until_it_has_a_child(process, timeout=None):
        while timeout and process.poll() is None and not (child.exists() and child.read_text()):
            time.sleep(0.05)
        return wait(process, timeout and 0)

    monkeypatch.setattr(subprocess.Popen, "wait", until_it_has_a_child)
    with pytest.raises(nvidia.ProbeFailed, match="no answer after 2 s"):
        nvidia.probe(program, timeout=2)
    for _ in range(600):
        state = Path(f"/proc/{child.read_text()}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the child of the probe is still alive")


@pytest.mark.parametrize(
    "for_cpu, cuda, built_for, gpus, level, state",
    [
        (True, 0, None, 0, "ok", "no GPU; training on"),
        (True, 8, "13.0", 8, "ok", "8 GPUs, not used"),  # an index without PyTorch for CPU, on a machine with GPUs
        (False, 8, "13.0", 8, "ok", "8 x H200, 139 GB each, driver 550.54.15 (CUDA 13.0 needs 580)"),
        (False, 0, None, 8, "FAIL", "is built for CPU"),
        (False, 0, "13.0", 8, "FAIL", "driver 550.54.15"),
    ],
)
def test_devices_that_torch_does_not_see_are_told(monkeypatch, for_cpu, cuda, built_for, gpus, level, state):
    # GPUs and drivers that this machine has not
    monkeypatch.setattr(nvidia, "gpu_count", lambda: gpus)
    monkeypatch.setattr(nvidia, "driver_version", lambda: "550.54.15")
    monkeypatch.setattr(nvidia, "environment_for_cpu", lambda: for_cpu)
    check = doctor.devices("2.13.0", built_for, [["H200", 139 * 2**30]] * cuda)
    assert check.level == level and state in check.state and bool(check.todo) == (level != "ok")


@pytest.mark.parametrize("device, opens", [("cpu", True), ("meta", False)])
def test_a_tensor_that_another_process_cannot_read_is_a_failure_before_any_download(monkeypatch, device, opens):
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "executable", os.environ.get(forked_workers.PYTHON, sys.executable))
    monkeypatch.setattr(doctor, "HAND_OVER", doctor.HAND_OVER.replace("'cuda'", repr(device)))
    (check,) = doctor.check_hand_over()
    assert check.level == ("ok" if opens else "FAIL") and bool(check.todo) != opens


@pytest.mark.parametrize("load, level", [(1.0, "FAIL"), (1e6, "warn")])
def test_a_ray_that_does_not_start_leaves_nothing_and_names_the_load(monkeypatch, tmp_path, load, level):
    monkeypatch.setattr(doctor, "RAY", "open(os.environ['RAY_TMPDIR'] + '/log', 'w'); raise OSError('timed out')")
    monkeypatch.setattr(doctor, "SHORT", 500)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0, 0))
    (check,) = doctor.check_ray()
    assert (check.level, check.state) == (
        level,
        "OSError: timed out",
    ) and f"a busy machine (load {load:.0f}" in check.todo
    assert [*tmp_path.iterdir()] == []
