"""The documents' tables of the code are what the code says."""

import subprocess
import sys
from pathlib import Path


def test_the_documents_tables_are_made_of_the_code():
    refresh = Path(__file__).parents[2] / "docs" / "refresh.py"
    done = subprocess.run([sys.executable, refresh, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in ("README.md", "docs/recipes.md"):
        assert "<!-- code: algorithms -->" in (refresh.parents[1] / page).read_text()
    assert "<!-- code: objectives -->" in (refresh.parents[1] / "docs/method.md").read_text()
