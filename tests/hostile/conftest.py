"""Commands as a shell starts them, in a folder whose name has a space and a letter that is not ASCII."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from invented_runs import write_run

PROGRAM = Path(sys.prefix) / "bin" / "real-openrlhf"
WORDS = [str(PROGRAM)] if PROGRAM.exists() else [sys.executable, "-m", "real_openrlhf.cli"]
LEFT_OUT = "RAY_ADDRESS PYTHONIOENCODING PYTHONUTF8 WANDB_API_KEY REAL_WORKER_PYTHON RAY_RUNTIME_ENV_HOOK".split()


@pytest.fixture
def elsewhere(tmp_path, random_model) -> Path:
    """A folder with a run, a model, and rows for each command."""
    folder = tmp_path / "a b é"
    folder.mkdir()
    write_run(folder, name="run")
    shutil.copytree(random_model, folder / "model")
    (folder / "rows.jsonl").write_text('{"prompt": "12=", "label": "21"}\n' * 64)
    (folder / "graded.jsonl").write_text('{"response": "\\\\boxed{½}", "label": "1/2"}\n', encoding="utf-8")
    (folder / "math.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n')
    problem = '{"prompt": [{"role": "user", "content": "12="}], "label": "[\\"2\\"]", "id": "p%d"}\n'
    (folder / "problems.jsonl").write_text("".join(problem % number for number in range(4)))
    return folder


@pytest.fixture
def here(elsewhere, monkeypatch, tmp_path) -> Path:
    """That folder, with this process in it: no hub, no cluster, a cache elsewhere."""
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("REAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for variable in ("RAY_ADDRESS", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return elsewhere


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return kept | {"REAL_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def program() -> list[str]:
    return WORDS


@pytest.fixture
def shell(elsewhere, environment) -> Callable[..., subprocess.CompletedProcess]:
    """shell(text, NAME=value) -> what bash did with it; `real` is the program."""

    def run(text: str, **variables: str) -> subprocess.CompletedProcess:
        script = f'real() {{ "{WORDS[0]}" {" ".join(WORDS[1:])} "$@"; }}\nexport -f real\n{text}'
        words = ["bash", "-o", "pipefail", "-c", script]
        return subprocess.run(words, cwd=elsewhere, env=environment | variables, capture_output=True, timeout=1200)

    return run
