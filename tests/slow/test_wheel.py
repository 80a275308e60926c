"""The wheel in an environment that has it and what it declares: installed for real, the rest linked from this one.

And the maths where only PyTorch is.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from every import every
from invented_runs import write_run
from packaging.requirements import Requirement
from small_world import REPOSITORY, SITE, copy_release

from real_openrlhf import __version__, patching


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> tuple[Path, Path]:
    """Of the verifier and of the package."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("real_openrlhf", "same_answer", "patches"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", built, source]
    subprocess.run([*words, source / "same_answer"], check=True)
    verifier, package = built.glob("same*.whl"), built.glob("real*.whl")
    return next(verifier), next(package)


def needed(requirements: Iterable[str], extra: str) -> list[Distribution]:
    """What the requirements ask for, and what that asks for, as the metadata of what is installed here says."""
    found, seen = {}, set()
    waiting = [(text, extra) for text in requirements]
    while waiting:
        text, extra = waiting.pop()
        requirement = Requirement(text)
        if (text, extra) in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add((text, extra))
        found[requirement.name] = distribution(requirement.name)
        theirs = found[requirement.name].requires or ()
        waiting += [(text, extra) for text in theirs for extra in ("", *requirement.extras)]
    return list(found.values())


@contextlib.contextmanager
def linked(folder: Path, extra: str = "") -> Iterator[None]:
    """What the installed wheel's metadata asks for is in its environment."""
    wheels = {one.name: one for one in distributions(path=[str(folder / SITE)])}
    links = []
    for package in (one for one in needed(wheels["real-openrlhf"].requires, extra) if one.name not in wheels):
        for name in {file.parts[0] for file in package.files or () if file.parts[0] != ".."}:
            if not (folder / SITE / name).exists():
                (folder / SITE / name).symlink_to(package.locate_file(name))
                links.append(folder / SITE / name)
    yield
    for link in links:
        link.unlink()


@pytest.fixture(scope="module")
def alone(wheels, tmp_path_factory) -> Iterator[Path]:
    """The `real-openrlhf` of an environment with the wheels and what they ask for without an extra."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, *wheels], check=True)
    with linked(folder):
        yield folder / "bin/real-openrlhf"


def run(command: Path, *words: object) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run((command, *words), cwd="/", env=clean, capture_output=True, text=True)


def test_the_command_is_the_wheels_own(alone):
    result = run(alone, "--version")
    assert (result.returncode, result.stdout) == (0, f"real_openrlhf {__version__}\n")


@pytest.fixture
def answers(tmp_path) -> Path:
    """To grade, and beside them a run to report on."""
    write_run(tmp_path / "runs")
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"prompt": "1/2 + 1/2?", "response": r"\boxed{\frac{2}{2}}", "label": "1"}) + "\n")
    return path


WORDS = {
    "train": ["--dry-run", "--runs-dir", "{tmp}"],
    "compare": ["--steps", "1", "--out", "{tmp}/compare"],
    "eval": ["--model", "{tmp}", "--benchmarks", "{answers}", "--out", "{tmp}/eval"],
    "data": ["{answers}", "--out", "{tmp}/data.jsonl", "--gold-column", "label", "--problem-column", "prompt"],
    "grade": ["--input", "{answers}", "--output", "{tmp}/graded.jsonl"],
    "report": ["{tmp}/runs", "--out", "{tmp}/report"],
}


def words_of(command: str, tmp: Path, answers: Path) -> list[str]:
    return [command, *(word.format(tmp=tmp, answers=answers) for word in WORDS[command])]


@pytest.mark.parametrize("command", [command for command in WORDS if command != "data"])  # rows of JSON need nothing
def test_without_its_extra_a_subcommand_says_what_to_install(alone, tmp_path, answers, command):
    result = run(alone, *words_of(command, tmp_path, answers))
    assert result.returncode == 2, result.stderr
    to_do = "setup_env.sh cpu" if command in ("train", "compare") else f"pip install ./same_answer '.[{command}]'"
    assert "is not installed" in result.stderr and to_do in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["data", "grade", "report"])
def test_with_its_extra_a_subcommand_works(alone, tmp_path, answers, command):
    with linked(alone.parents[1], extra=command):
        result = run(alone, *words_of(command, tmp_path, answers))
    assert result.returncode == 0, result.stderr
    assert command != "report" or (tmp_path / "report/index.html").is_file()  # what the README says to open


def test_a_wheel_patches_without_the_checkout(wheels, tmp_path):
    copy_release(tmp_path)
    with zipfile.ZipFile(wheels[1]) as archive:
        archive.extractall(tmp_path)
    packed = sorted(path.name for path in (tmp_path / "real_openrlhf/patches").rglob("*") if path.is_file())
    series = patching.load_series()
    assert packed == sorted(["README.md", "files.json", *(patch.name for patch in series.patches)])

    apply = [sys.executable, "-S", "-m", "real_openrlhf.patching", "apply", "--root", "."]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(apply, cwd=tmp_path, capture_output=True, text=True, env=variables)
    assert result.returncode == 0, result.stderr
    assert set(patching.file_states(tmp_path, series).values()) == {patching.AFTER}


# The formulas need PyTorch and nothing else, and are tested with little more: `tests/run.sh maths`.

# Nothing else that the project needs somewhere is found, as where it is not installed.
ONLY_WHAT_THE_MATHS_NEEDS = """
import sys
ABSENT = "openrlhf vllm ray deepspeed transformers pyarrow matplotlib math_verify tqdm numpy".split()
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *where):
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, *where)
sys.meta_path[:] = map(Without, sys.meta_path)
"""


def maths(tmp_path, python3: str, *options: str) -> subprocess.CompletedProcess:
    """`tests/run.sh maths` where `python3` is this script."""
    for name in ("python3", "python"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{python3}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "REAL_VENV": str(tmp_path / "none")}
    words = ["bash", str(REPOSITORY / "tests/run.sh"), "maths", *options]
    return subprocess.run(words, env=environment, capture_output=True, text=True)


@every
def test_the_maths_is_tested_with_torch_pytest_and_hypothesis_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(ONLY_WHAT_THE_MATHS_NEEDS)
    python3 = f'PYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"'
    options = "-p no:cacheprovider -p no:xdist -k proposition_5_1_closed"
    done = maths(tmp_path, python3, *options.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert not (tmp_path / "none").exists()  # nothing is set up
