"""docs/objectives.md: its Python blocks run in order in one folder, and do what the page says."""

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (Path(__file__).parents[2] / "docs/objectives.md").read_text(), re.DOTALL | re.MULTILINE
)


def test_the_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if file := re.match(r"# (\w+\.py)\n", block):
            Path(file[1]).write_text(block)
        exec(compile(block, "docs/objectives.md", "exec"), {})


def test_the_page_can_fail(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(BLOCKS[0].replace("weights / 2", "weights / 3"))
    with pytest.raises(AssertionError):
        exec(compile(BLOCKS[1], "docs/objectives.md", "exec"), {})
