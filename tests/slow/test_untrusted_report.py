"""A whole report of runs whose names are markup, controls and paths: it shows them, and writes where it was told."""

import json
import re

import invented_runs as invented
import untrusted_text as untrusted

from real_openrlhf.cli import main
from real_openrlhf.files import ROLLOUTS
from real_openrlhf.terminal import OBEYED

PHASES = ("train", "eval")
HOSTILE = "<script>alert(1)</script>\x1b[2J../../$\\frac{\u202e|' onload='x"


def test_a_whole_report_of_hostile_runs(tmp_path, capsys):
    """Figures, tables and page, with the names where a run folder has some."""
    for number in (1, 2):
        flags = {"--algo.real.tau": HOSTILE, f"--actor.{HOSTILE}": HOSTILE}
        record = {"recipe": HOSTILE, "reason": HOSTILE, "status": "finished"}
        folder = invented.write_run(tmp_path / "runs", "real", number, flags=flags, name=f"run{number}", **record)
        meta = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(meta | {"name": HOSTILE, "algo": HOSTILE}))
        answers = [
            {"answer": HOSTILE, "label": label, "reward": 1, "weight": 1.0} for label in ("positive", "negative")
        ]
        rows = [
            {"phase": phase, "step": 1, "prompt": HOSTILE, "gold": HOSTILE, "rollouts": answers} for phase in PHASES
        ]
        (folder / ROLLOUTS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert {path for path in tmp_path.rglob("*") if out not in path.parents and path != out} == before
    assert {path.parent.name for path in out.rglob("*.*")} == {"report", "figures", "tables"}
    assert not OBEYED.search(capsys.readouterr().out)
    page = untrusted.Page()
    text = (out / "index.html").read_text()
    page.feed(text)
    assert page.wrong == [] and not OBEYED.search(text)
    assert not re.search("<script", text, re.IGNORECASE) and "&lt;script&gt;alert(1)" in text
    assert "<h3>Answers</h3>" in text and "1 of 2 right\n&lt;script" in text
