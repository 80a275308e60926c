"""Text of others is data: read or refused in one line, shown and never obeyed, and no file elsewhere is touched."""

import io
import os
from contextlib import redirect_stderr, redirect_stdout

import invented_runs as invented
import pytest
import untrusted_text as untrusted
from hypothesis import HealthCheck, Phase, given, settings

from real_openrlhf.base.errors import exit_code, plain


@pytest.mark.parametrize("holds", untrusted.PROPERTIES, ids=lambda holds: holds.__name__)
def test_property(holds):
    check = settings(
        max_examples=25,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    check(given(*untrusted.PROPERTIES[holds])(holds))()


def test_a_terminal_is_shown_controls_and_does_not_get_them():
    assert plain("a\x1b[2Jb\x07\x9b\u202e\ud800\tc\n") == "a\\x1b[2Jb\\x07\\x9b\\u202e\\ud800\tc\n"
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        assert exit_code("x", lambda: print("\x1b]0;owned\x07") or 0) == 0
    assert said.getvalue() == "\\x1b]0;owned\\x07\n"


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "eval/results.json"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(tmp_path, refused, name):
    folder = invented.write_run(tmp_path, "real", 1)
    (folder / "eval").mkdir()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert "not a regular file" in refused("report", folder, "--out", tmp_path / "out")
