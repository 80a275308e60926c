"""What a newcomer reads is what comes out: the README's report, and the documents' tables of the code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from real_openrlhf import cli

ROOT = Path(__file__).resolve().parents[2]
# what stands for the runs that a newcomer has by then
INSTEAD = {"runs/*": str(ROOT / "examples/results/more/runs/trpa-s1")}


def test_the_readmes_report_is_where_it_says(tmp_path, monkeypatch):
    readme = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^real-openrlhf (report .*)$", readme, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert cli.main([INSTEAD.get(word, word) for word in shlex.split(command)]) == 0
    assert "report/index.html" in readme and Path("report/index.html").is_file()


def test_the_documents_tables_are_made_of_the_code():
    refresh = Path(__file__).parents[2] / "docs" / "refresh.py"
    done = subprocess.run([sys.executable, refresh, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in ("README.md", "docs/recipes.md"):
        assert "<!-- code: algorithms -->" in (refresh.parents[1] / page).read_text()
    assert "<!-- code: objectives -->" in (refresh.parents[1] / "docs/method.md").read_text()
