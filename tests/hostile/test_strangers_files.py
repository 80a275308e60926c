"""A stranger's files: in each place of the table in docs/evidence/reliability.md one is put, and it stays as it is."""

import hashlib
import re
from pathlib import Path

import pytest
from invented_runs import write_run

from real_openrlhf.base import atomic_dirs
from real_openrlhf.cli import main
from real_openrlhf.evaluation import store
from real_openrlhf.report import page
from real_openrlhf.report.read_runs import read_runs

TRAIN = "train --max-steps 1 --data rows.jsonl --model model"
COMPARE = "compare --algos real --seeds 1 --steps 1 --model model --data rows.jsonl"
# Row of the table -> (a stranger's files, the commands that would take their place).
REFUSED = {
    "`train --runs-dir DIR`": (["runs/mine/a"], [f"{TRAIN} --run-name mine{more}" for more in ("", " --resume")]),
    "`compare --out DIR`": (["out/report/index.html", "out/runs/real-s1/a"], [f"{COMPARE} --out out"]),
    "`report --out DIR`": (["site/index.html"], ["report run --out site"]),
    "`eval --out DIR`": (["e/table.md"], ["eval --model model --benchmarks problems.jsonl --out e"]),
    "`data --out FILE`": (["mine.jsonl"], ["data math.jsonl --out mine.jsonl"]),
    "`grade --output FILE`": (["mine.jsonl"], ["grade --input graded.jsonl --output mine.jsonl"]),
}  # fmt: skip
NO_DRY_RUN = ("report", "eval", "data", "grade", "patch")


def contents(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.mark.parametrize("place", REFUSED)
def test_a_strangers_file_is_refused(here, capsys, place):
    files, commands = REFUSED[place]
    for name in files:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("years of work\n")
    before = contents(here)
    for command in commands:
        dry = [] if command.startswith(NO_DRY_RUN) else [["--dry-run"]]
        for more in ([], *dry):
            assert main([*command.split(), *more]) == 2, command
            said = "".join(capsys.readouterr())  # a comparison's dry run lists what is wrong on standard output
            assert "Traceback" not in said and re.search("exists|has no run.json", said), said
    assert contents(here) == before


def test_what_is_ours_is_replaced(here, capsys):
    """Otherwise the refusals would prove nothing."""
    (here / "site").mkdir()
    (here / "site" / page.PAGE).write_text(f"<!doctype html>{page.TITLE}")
    assert main("report run --out site".split()) == 0
    for _ in range(2):
        assert main("grade --input graded.jsonl --output new.jsonl".split()) == 0
        assert main("data math.jsonl --out made.jsonl".split()) == 0
    with (here / "made.jsonl").open("a") as file:
        file.write("my own row\n")
    assert main("data math.jsonl --out made.jsonl".split()) == 2  # it was changed since


@pytest.mark.parametrize("name", ["precious", "precious/.writing"])
def test_a_draft_takes_no_strangers_place(tmp_path, name):
    draft, place = tmp_path / "draft", tmp_path / name
    for folder in (draft, place):
        folder.mkdir(parents=True)
        (folder / "file").write_text(folder.name)
    with pytest.raises(FileExistsError):
        atomic_dirs.move(draft, place)
    assert (place / "file").read_text() == place.name and draft.exists()


def test_an_interrupted_report_is_known_as_ours(tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    write_run(tmp_path, name="run")
    runs, skipped = read_runs([tmp_path / "run"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(page, "_save", interrupted)
        page.write(runs, skipped, tmp_path / "site")
    page.refuse_foreign(tmp_path / "site")


def test_an_evaluation_that_was_killed_before_its_first_sample_goes_on(tmp_path):
    (tmp_path / store.SAMPLES).touch()
    store.refuse_foreign(tmp_path)
    (tmp_path / store.SAMPLES).write_text("mine")
    with pytest.raises(Exception, match="did not write it"):
        store.refuse_foreign(tmp_path)
