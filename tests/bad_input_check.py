"""How a case of bad_inputs.py is tried: through the command, on a folder with good files of which one is spoiled."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_inputs import GOOD, ROWS, Case, contents

from real_openrlhf.errors import exit_code
from real_openrlhf.training import command
from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.reverse_task import ReverseTask


def good_model(folder: Path) -> Path:
    """Small, whole and random."""
    tokenizer = tiny_model.make_tokenizer(ReverseTask)
    tiny_model.make_model(ReverseTask, tokenizer, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextlib.contextmanager
def as_nobody(wanted: bool, folder: Path) -> Iterator[None]:
    """The superuser may read and write what is forbidden."""
    if not wanted or os.geteuid():
        yield
        return
    opened = [path for path in folder.parents if path != Path("/") and not path.stat().st_mode & 1]
    modes = {path: path.stat().st_mode for path in opened}
    for path in opened:
        path.chmod(0o711)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


def prepare(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run, no data and no tiny model of this machine; no network; no cluster."""
    folder.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REAL_CACHE", str(folder / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shutil.copytree(model, folder / "model")
    for path in (folder / "model", *(folder / "model").iterdir()):
        path.chmod(0o755)
    (folder / "rows.jsonl").write_text((json.dumps(GOOD) + "\n") * ROWS)


def words_of(case: Case) -> list[str]:
    given = case.words.split()
    words = [] if "--data" in given else ["--data", "rows.jsonl"]
    words += [] if "--model" in given else ["--model", "model"]
    words += [] if "--train.max_steps" in given else ["--max-steps", "1"]
    return [*(["--dry-run"] if case.dry else []), *words, *given]


def ask(words: list[str]) -> int:
    return exit_code("train", lambda: command.run(command.parse(words)))


def check(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Exit code 2, the expected line and no other kind of line, and no file made, changed or left half written."""

    def accepted(*_: object) -> int:
        raise AssertionError("it was accepted, and training would start")

    monkeypatch.setattr(command, "_train", accepted)
    monkeypatch.setattr(command, "_prepare", accepted)
    case.spoil(folder)
    before = contents(folder)
    with as_nobody(case.nobody, folder):
        code = ask(words_of(case))
    printed = capsys.readouterr()
    assert code == 2, printed.out + printed.err
    told = [line for line in printed.err.splitlines() if case.expected in line]
    assert len(told) == 1 and told[0].startswith(("  - ", "real-openrlhf train: error: ")), printed.err
    assert "Traceback" not in printed.out + printed.err
    assert len(told[0]) < 2500
    assert contents(folder) == before
