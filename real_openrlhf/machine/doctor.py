"""Is this machine ready to train? One line for each thing that training needs: ok, or what to do.

Checks that can hang or crash (CUDA, Ray, vLLM) run in separate processes, which are killed at a timeout.
"""

import argparse
import contextlib
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from real_openrlhf import OPENRLHF_VERSION, patching
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import amount
from real_openrlhf.base.parsing import number_of
from real_openrlhf.machine import nvidia
from real_openrlhf.machine.nvidia import ProbeFailed, probe

OK, WARN, FAIL = "ok", "warn", "FAIL"
GB = 2**30
SHORT = 20  # characters of the folder for temporary files
BUSY = 4  # programs that wait for each core: Ray may be late, and nothing else may be wrong
SET_UP = "bash examples/scripts/setup_env.sh"


class Check(NamedTuple):
    name: str
    level: str
    state: str
    todo: str = ""


def _checked(name: str, good: bool, state: str, todo: str) -> Check:
    return Check(name, OK, state) if good else Check(name, WARN, state, todo)


def locked() -> dict[str, str]:
    """{package: version} of the lock file that setup_env.sh made this environment of; elsewhere OpenRLHF's alone."""
    with contextlib.suppress(OSError, IndexError):
        lock = (Path(sys.prefix) / ".real_env").read_text().splitlines()[1].split()[0]
        text = (Path(__file__).parents[2] / f"requirements/{lock}.txt").read_text()
        return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M))
    return {"openrlhf": OPENRLHF_VERSION}


def check_packages() -> Iterator[Check]:
    """One line for each package of another version or missing, and one for the others."""
    good = 0
    for package, version in locked().items():
        state = ""
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            state = importlib.metadata.version(package)
        if state.partition("+")[0] == version.partition("+")[0]:  # PyTorch's build for CPU is 2.13.0+cpu
            good += 1
        else:
            level = WARN if state and package != "openrlhf" else FAIL
            install = f"run pip install --no-deps {package}=={version}; {SET_UP} installs all packages"
            yield Check(package, level, f"{state}, tested with {version}" if state else "not installed", install)
    yield Check("packages", OK, f"{good} have the version that was tested, in {sys.prefix}")


def check_patches() -> Iterator[Check]:
    try:
        patching.assert_applied()
        yield Check("patches", OK, f"{patching.load_series().name} applied")
    except UserError as error:
        message, _, todo = str(error).partition(". ")
        yield Check("patches", FAIL, message, todo)


def disk_speed(folder: str) -> str:
    """By writes of 16 MB that reach the disk: 256 MB, or what it takes in five seconds. Random, as disks compress."""
    block, blocks, begun = os.urandom(1 << 24), 0, time.monotonic()
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        while blocks < 16 and time.monotonic() - begun < 5:
            file.write(block)
            os.fsync(file.fileno())
            blocks += 1
    seconds, written = time.monotonic() - begun, blocks * len(block)
    return f", writes {written / seconds / 1e9:.2g} GB/s ({amount(written)} in {seconds:.1f} s)" if blocks else ""


def available_memory() -> int:
    """Bytes: of the machine, at most those of a container."""
    memory = int(re.findall(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())[0]) * 1024
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory


def check_room() -> Iterator[Check]:
    memory = available_memory()
    todo = "close other programs: a CPU run needs about 1 GB for each of policy, vLLM engine, reference and trainer"
    yield _checked("memory", memory >= 8 * GB, f"{memory / GB:.0f} GB available", todo)
    for folder in {os.stat(folder).st_dev: folder for folder in (tempfile.gettempdir(), os.getcwd())}.values():
        free = shutil.disk_usage(folder).free
        todo = "free some space: a run writes checkpoints to its folder, Ray writes logs and objects to /tmp"
        speed = disk_speed(folder) if free >= GB else ""
        yield _checked("disk", free >= 10 * GB, f"{free / GB:.0f} GB free at {folder}{speed}", todo)
    shared = shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0
    todo = "in Docker, start the container with --shm-size=8g; with less, Ray's object store is slow"
    check = _checked("/dev/shm", shared >= 2 * GB, f"{shared / GB:.1f} GB", todo)
    several = not nvidia.environment_for_cpu() and nvidia.gpu_count() > 1
    if several and (too_small := nvidia.small_shared_memory()):
        check = Check("/dev/shm", FAIL, *too_small.split(": "))
    yield check


def devices(torch: str, built_for: str | None, cuda: list) -> Check:
    """The devices that PyTorch sees, beside those of the driver."""
    gpus = nvidia.gpu_count()
    if nvidia.environment_for_cpu() and gpus:
        state = f"{number_of(gpus, 'GPU')}, not used by this environment for CPU; to use them run {SET_UP} gpu"
        return Check("devices", OK, state)
    if cuda:
        state = f"{len(cuda)} x {cuda[0][0]}, {min(memory for _, memory in cuda) / GB:.0f} GB each, driver "
        state += f"{nvidia.driver_version()} (CUDA {built_for} needs {nvidia.least_driver(built_for)})"
        return Check("devices", OK, state)
    if not gpus:
        return Check("devices", OK, f"no GPU; training on {len(os.sched_getaffinity(0))} CPU cores")
    if built_for:
        state, _, todo = nvidia.why_torch_sees_none(built_for).partition(". ")
        return Check("devices", FAIL, state, todo)
    return Check(
        "devices",
        FAIL,
        f"nvidia-smi sees {number_of(gpus, 'GPU')}, torch {torch} is built for CPU",
        f"run {SET_UP} gpu",
    )


RAY = """
import ray
from real_openrlhf.hooks.fixes.process_starts import wait_longer
wait_longer()
ray.init(address='local', num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level='ERROR')
assert ray.get(ray.remote(lambda: 1).options(num_cpus=1).remote(), timeout=60) == 1
ray.shutdown()
print('{}')
"""
STACK = """
import json, deepspeed, torch, vllm
from vllm import LLM
from vllm.platforms import current_platform
gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
print(json.dumps({'vllm': f'{vllm.__version__} for {current_platform.device_type}', 'torch': torch.__version__,
                  'built_for': torch.version.cuda, 'cuda': [(gpu.name, gpu.total_memory) for gpu in gpus]}))
"""


# As a policy hands its weights to vLLM's process. Some sandboxes, and WSL2, refuse it.
HAND_OVER = """
import torch, torch.multiprocessing
tensor = torch.ones(1, device='cuda')
other = torch.multiprocessing.get_context('spawn').Process(target=torch.Tensor.item, args=(tensor,))
other.start()
other.join()
assert other.exitcode == 0, 'the other process could not open the tensor'
print('{}')
"""


def check_hand_over() -> Iterator[Check]:
    todo = "colocated runs need it: use a machine without such a sandbox, or --no-train.colocate_all"
    yield tried("hand-over on GPU", HAND_OVER, "another process opened a tensor (CUDA IPC)", todo)


def check_ray() -> Iterator[Check]:
    base = tempfile.gettempdir()
    short = base if len(os.fsencode(base)) <= SHORT else "/tmp"  # as a run: sockets have short names
    with tempfile.TemporaryDirectory(prefix="real_", dir=short, ignore_cleanup_errors=True) as folder:
        program = f"import os\nos.environ['RAY_TMPDIR'] = {folder!r}\n{RAY}"
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        todo = f"usual reasons are a busy machine (load {load:.0f} on {number_of(cores, 'core')}), a full {short}, "
        check = tried(
            "ray start", program, "a local cluster started and ran a task", f"{todo}a proxy, or no free port"
        )
        yield check._replace(level=WARN) if check.level == FAIL and load > BUSY * cores else check


def tried(name: str, code: str, done: str, todo: str) -> Check:
    try:
        probe(code, timeout=300)
        return Check(name, OK, done)
    except ProbeFailed as error:
        return Check(name, FAIL, str(error), todo)


def check_stack() -> Iterator[Check]:
    try:
        answer = probe(STACK, timeout=300)
        yield Check("vllm import", OK, answer.pop("vllm"))
        yield devices(**answer)
        yield from check_hand_over() if answer["cuda"] else ()
    except ProbeFailed as error:
        yield Check("vllm import", FAIL, str(error), f"delete the environment, then run {SET_UP} cpu (or gpu)")


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    levels = []
    for checks in (check_packages, check_patches, check_room, check_stack, check_ray):
        for check in checks():
            levels.append(check.level)
            todo = f" -> {check.todo}" if check.todo else ""
            print(f"{check.level:<5} {check.name:<17} {check.state}{todo}", flush=True)
    failures, warnings = levels.count(FAIL), levels.count(WARN)
    print(f"{failures} failed, {warnings} warnings, {len(levels) - failures - warnings} ok")
    return 1 if failures else 0
