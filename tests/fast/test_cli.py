"""The command line's shell, and that importing the package stays cheap."""

import subprocess
import sys

import pytest

from real_openrlhf import cli

HEAVY = {"torch", "openrlhf", "ray", "vllm", "deepspeed", "transformers", "sympy", "matplotlib"}


def loaded_by(module: str) -> set[str]:
    """The top-level modules that are there after `import module` in a fresh interpreter."""
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "module", ["real_openrlhf", "real_openrlhf.hooks.flags.arguments", "real_openrlhf.training.tasks.tasks"]
)
def test_these_import_nothing_heavy(module):
    assert HEAVY & loaded_by(module) == set()


def run(*argv: str) -> int:
    return cli.main(list(argv))


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_subcommand_has_help_for_each_of_its_options(name, capsys):
    with pytest.raises(SystemExit) as exit:
        run(name, "--help")
    assert exit.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    options = [line for line in lines if line.startswith("  -") and not line.startswith("  -h")]
    for line in options:
        described = "  " in line.strip() or lines[lines.index(line) + 1].startswith("        ")
        assert described, line


@pytest.mark.parametrize("argv", [(), ("trian",), ("patch", "--no-such-flag")])
def test_what_cannot_be_parsed_exits_2_with_the_usage(argv, capsys):
    with pytest.raises(SystemExit) as exit:
        run(*argv)
    assert exit.value.code == 2
    assert "usage: real-openrlhf" in capsys.readouterr().err


def test_control_c_is_no_traceback(monkeypatch, capsys):
    from real_openrlhf import patching

    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(patching, "run", interrupted)  # no key is pressed at a moment that is certain
    assert run("patch", "status") == 130
    assert capsys.readouterr().err == ""
