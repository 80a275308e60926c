"""Where a stranger starts the commands: another terminal, another home, a full disk, a reader that goes away."""

import subprocess
import sys

import pytest

ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN1 = {"PYTHONIOENCODING": "latin-1"}  # the locale itself is not installed everywhere
STACK = "import deepspeed, vllm.config; from triton.runtime.cache import get_cache_manager as c; c('ab').put(b'', 'x')"


def may_mount() -> bool:
    return not subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode


def said(done: subprocess.CompletedProcess) -> str:
    return (done.stdout + done.stderr).decode(errors="replace")


@pytest.mark.parametrize("terminal", [ASCII, LATIN1], ids=["ASCII", "Latin-1"])
@pytest.mark.skipif(
    not sys.prefix.isascii(), reason="Python reads an editable install's .pth in the locale's encoding"
)
def test_a_terminal_of_another_encoding(shell, elsewhere, terminal):
    """Files are UTF-8 all the same."""
    commands = ["grade --input graded.jsonl --output out.jsonl", "train --dry-run", "--help"]
    commands += ["report run --out page"] * (terminal is ASCII)
    done = shell(" && ".join(f"real {command}" for command in commands), **terminal)
    assert done.returncode == 0 and "Traceback" not in said(done), said(done)
    assert "½" in (elsewhere / "out.jsonl").read_text(encoding="utf-8")
    if terminal is ASCII:
        assert "±" in (elsewhere / "page" / "index.html").read_text(encoding="utf-8")


def test_a_reader_that_has_enough(shell):
    commands = ("train --dry-run", "compare --dry-run", "patch status", "--help", "train --help")
    done = shell("\n".join(f"real {command} | head -n 1 || exit 9" for command in commands))
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.count(b"\n") == len(commands), said(done)


def test_a_home_that_cannot_be_written(shell, elsewhere):
    """A file stands for it: the superuser may write everywhere else."""
    found = "from real_openrlhf.base.environment import find_home; find_home()"
    task = "from real_openrlhf.training import tiny_task; print(tiny_task.unpack())"
    file = str(elsewhere / "rows.jsonl")
    for home in ("/nonexistent", file, ""):  # empty: the root folder
        program = f"{found}; {STACK}; {task}" if home == file else f"{found}; {task}"
        done = shell(f'unset REAL_CACHE; "{sys.executable}" -c "{program}"', HOME=home)
        assert done.returncode == 0, said(done)
        told = f"HOME ({home or '/'}) is empty or cannot be written: caches are in {sys.prefix}/.real-cache"
        assert told in said(done) and f"{sys.prefix}/.real-cache/.cache/real_openrlhf/reverse-" in said(done)


@pytest.mark.skipif(not may_mount(), reason="only the superuser may mount a small disk")
def test_too_little_room_for_temporary_files(shell):
    small = "mount -t tmpfs -o size=2m tmpfs /mnt || exit 9; TMPDIR=/mnt real train --dry-run"
    done = shell(f"unshare -m bash -c '{small}'")
    assert done.returncode == 2 and "Ray needs 30 MB for temporary files, /mnt has 2 MB free. Set TMP" in said(done)


FILLS = """
import sys; from real_openrlhf.cli import main; from real_openrlhf.training import command
command.TRAINER = "-c", "import os, sys; run = sys.argv[sys.argv.index('--train.run_dir') + 1]; " + sys.argv[1]
sys.exit(main("train --run-name mine --runs-dir runs".split()))
"""


@pytest.mark.skipif(not may_mount(), reason="only the superuser may mount a small disk")
@pytest.mark.parametrize(
    "disk, folder, full",
    [
        ("runs", "run", "runs/mine is full: free some space, or move the run to another --runs-dir"),
        ("/mnt", "os.environ['RAY_TMPDIR']", "/mnt is full: free some space, or set TMPDIR to another folder"),
    ],
)
def test_a_disk_that_fills_in_mid_run_is_named_and_in_the_record(shell, elsewhere, disk, folder, full):
    (elsewhere / "fills.py").write_text(FILLS)
    fill = f"open({folder} + '/metrics.jsonl', 'w').write('{{}}' * 50_000_000)"
    program = f'TMPDIR=/mnt "{sys.executable}" fills.py "{fill}"; cat runs/mine/run.json'
    (elsewhere / "on_it.sh").write_text(f"mkdir runs && mount -t tmpfs -o size=40m tmpfs {disk} || exit 9; {program}")
    done = shell("unshare -m bash on_it.sh")
    reason = f"the disk of {elsewhere / full}"
    assert f"failed ({reason})" in said(done) and f'"reason": "{reason}"' in said(done), said(done)


@pytest.mark.skipif(not may_mount(), reason="only the superuser may mount a small disk")
def test_a_disk_that_fills_up_leaves_no_half_file(shell, elsewhere):
    (elsewhere / "graded.jsonl").write_text('{"response": "\\\\boxed{1}", "label": "1"}\n' * 2000)
    (elsewhere / "on_it.sh").write_text(
        "mkdir full && mount -t tmpfs -o size=16k tmpfs full || exit 9\n"
        "real grade --input graded.jsonl --output full/out.jsonl; echo $?; ls full | grep 'jsonl$'"
    )
    done = shell("unshare -m bash on_it.sh")
    assert done.stdout.split()[-1:] == [b"1"], said(done)
    assert said(done).count("Free some space and try again") == 1 and "Traceback" not in said(done)


def test_a_full_disk_is_one_line(shell):
    done = shell("real train --dry-run > /dev/full; echo $? >&2")
    assert done.stderr.decode().splitlines()[1:] == ["1"] and b"Free some space and try again" in done.stderr


def test_a_secret_is_in_no_output(shell, elsewhere):
    secret = "--logger.wandb.key K3Y --reward.remote_url http://me:PASSW0RD@host/x"
    done = shell(
        f"""real train {secret} --dry-run; real compare {secret} --dry-run
        real compare --algos 'real {secret}' --dry-run; real compare --algos "real {secret} '" --dry-run
        real train {secret} --data nothing.jsonl; real train --logger.wandb.key=K3Y --nonsense"""
    )
    assert "K3Y" not in said(done) and "PASSW0RD" not in said(done) and "***@host" in said(done)
    assert "a secret is in them" in said(done)
