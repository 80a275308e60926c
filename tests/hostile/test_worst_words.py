"""The worst command lines: each ends at once with its exit code and a line that says what to do.

Bad data, models, folders and reward files for `train` are in test_bad_inputs.py.
"""

import os
import shlex

import pytest
from invented_runs import write_run

from real_openrlhf.cli import main

NONSENSE = "\u202e\x1b[31m; rm -rf \x00/".replace("\x00", "")
TRAIN = "train --data rows.jsonl --model model --max-steps 1"
COMPARE = "compare --algos real --seeds 1 --data rows.jsonl --model model"
# Words, exit code, a part of what is said.
WORST = [
    ("", 2, "compare   train algorithms x seeds"),
    ("--versoin", 2, "unknown flag --versoin. Did you mean --version?"),
    ("trian", 2, "there is no 'trian'"),
    (f"'{NONSENSE}'", 2, "there is no"),
    ("train extra", 2, "'extra' follows no flag"),
    ("train --recipe nope", 2, "there is no 'nope'"),
    ("train --algo nope", 2, "there is no 'nope'"),
    ("train --algo GRPO", 2, "there is no 'GRPO'. Did you mean grpo?"),
    (f"{TRAIN} --nope.flag 1", 2, "nope.flag"),
    (f"{TRAIN} --seed -1", 2, "-1"),
    (f"{TRAIN} --seed 1.5", 2, "--train.seed 1.5: invalid int value"),
    (f"{TRAIN} --seed ٣", 0, "nothing is wrong"),
    (f"{TRAIN} --runs-dir ''", 2, "the name of a file or folder is missing"),
    (f"{TRAIN} --run-name a/b", 2, "use letters, digits"),
    (f"{TRAIN} --run-name '-rf'", 2, "expected one argument"),
    (f"{TRAIN} --run-name 'a b'", 2, "use letters, digits"),
    (f"{TRAIN} --actor.adam.lr nan", 2, "--actor.adam.lr"),
    (f"{TRAIN} --actor.adam.lr", 2, "--actor.adam.lr"),
    (f"{TRAIN} --algo.real.tau 0", 2, "--algo.real.tau"),
    (f"{TRAIN} --algo.real.objective nothing.py:f", 2, "nothing.py"),
    (f"{TRAIN} --algo.real.objective 'x;import os'", 2, "x;import os"),
    (f"{TRAIN} --reward.remote_url nothing.py", 2, "does not exist"),
    (f"{TRAIN} --logger.wandb.key env", 2, "WANDB_API_KEY is not set"),
    (f"{TRAIN} --ckpt.path rows.jsonl", 2, "exists, and real-openrlhf did not write it"),
    (f"{TRAIN} --ckpt.output_dir model", 2, "exists, and real-openrlhf did not write it"),
    (f"{TRAIN} --ckpt.output_dir /", 2, "has the run's folder in it"),
    (f"{TRAIN} --ckpt.path .", 2, "has the run's folder in it"),
    (f"{TRAIN} --run-name model --runs-dir .", 2, "model exists, and is not a run. Move it away, or choose"),
    (f"{TRAIN} --train.run_dir x", 2, "which --runs-dir and --run-name name"),
    (f"{COMPARE} --seeds 0", 2, "is not above 0"),
    (f"{COMPARE} --algos nope", 2, "not an algorithm"),
    (f"{COMPARE} --algos real real", 2, "the same run twice"),
    (f"""{COMPARE} --algos "real --algo.real.tau 'x" """, 2, "Close each quote"),
    (f"""{COMPARE} --benchmarks problems.jsonl --eval-flags "'x" """, 2, "Close each quote"),
    (f"{COMPARE} --grid actor.adam.lr", 2, "give its values"),
    (f"{COMPARE} --benchmarks nothing.jsonl", 2, "there is no such file"),
    (f"{COMPARE} --algos 'real --logger.wandb.key K'", 2, "a secret is in them"),
    (f"{COMPARE} --campaign nothing.toml", 2, "no such file"),
    (f"{COMPARE} --campaign rows.jsonl", 2, "cannot be read"),
    (f"{COMPARE} --out rows.jsonl", 2, "rows.jsonl exists, and real-openrlhf did not write it"),
    (f"{COMPARE} --out TYPO --status", 2, "TYPO does not exist"),
    ("eval", 2, "--model or --out is missing"),
    ("eval --model ./nowhere --out e", 2, "model nowhere does not exist. Give an existing folder, or a hub id"),
    ("eval --model run --out e", 2, "model run is a folder without config.json"),
    ("eval --model model --out e --k 0", 2, "is not above 0"),
    ("eval --model model --out e --temperature nan", 2, "--temperature must be 0 or more"),
    ("eval --model model --out e --grader nothing.py", 2, "nothing.py"),
    ("eval --model model --out rows.jsonl --benchmarks problems.jsonl --max-new-tokens 8", 2, "rows.jsonl"),
    ("eval --compare nowhere model", 2, "nowhere has no results.json"),
    ("eval --compare run", 2, "expected 2 arguments"),
    ("data nothing --out x.jsonl", 2, "neither a file nor a known data set"),
    ("data rows.jsonl --out x.txt", 2, "must end in .jsonl"),
    ("data rows.jsonl --out rows.jsonl", 2, "lies in what is read"),
    ("data rows.jsonl --out x.jsonl --gold-column nope", 2, "nope"),
    ("data benchmarks --out rows.jsonl", 2, "is a file, and the benchmarks need a folder"),
    ("data rows.jsonl extra --out x.jsonl", 2, "a second name goes with `gym` only"),
    ("grade --input nothing --output x", 2, "cannot be read"),
    ("grade --input model --output x", 2, "is no file"),
    ("grade --input /dev/zero --output x", 2, "is no file"),
    ("grade --input rows.jsonl --output x", 2, "no JSON object with `response`"),
    ("grade --input graded.jsonl --output graded.jsonl", 2, "is the input"),
    ("grade --input graded.jsonl --output ''", 2, "the name of a file or folder is missing"),
    ("grade --input graded.jsonl --output /proc/x", 2, "no file can be made there"),
    ("grade --input graded.jsonl --output model", 2, "exists, and real-openrlhf did not write it"),
    ("grade --input graded.jsonl --output rows.jsonl/x", 2, "rows.jsonl"),
    ("reward nothing.py", 2, "nothing.py"),
    ("reward rows.jsonl", 2, "rows.jsonl"),
    ("report nothing --out x", 2, "no run to report on"),
    ("report model --out x", 2, "no run to report on"),
    ("report run --out ''", 2, "the name of a file or folder is missing"),
    ("report run --out rows.jsonl", 2, "rows.jsonl"),
    ("report run --out x --map one two", 2, "one"),
    ("show nothing", 2, "nothing has no answers: there is no such folder. Name"),
    ("show rnu", 2, "Did you mean run?"),
    (
        "show failed",
        2,
        "has no answers: the run failed (MemoryError: too large). Read failed/train.log",
    ),
    ("show piped", 2, "not a regular file"),
    ("show run --step x", 2, "is not a whole number"),
    ("patch export model/../rows.jsonl", 2, "rows.jsonl"),
    ("patch nope", 2, "there is no 'nope'"),
    ("doctor --nope", 2, "real-openrlhf doctor: error: unknown flag --nope. `real-openrlhf doctor --help`"),
    ("doctor --jsn", 2, "Did you mean --json?"),
    ("patch status --rot x", 2, "usage: real-openrlhf patch status"),
    ("show run extra", 2, "usage: real-openrlhf show [-h]"),
    ("show run --setp 1", 2, "Did you mean --step?"),
    ("eval --modle model --out e", 2, "Did you mean --model?"),
    ("report run --outt x", 2, "Did you mean --out?"),  # before the --out that is missing
    ("data rows.jsonl --out x.jsonl --benchmark none", 2, "Did you mean --benchmarks?"),  # no prefix is a flag
    ("grade --inptu graded.jsonl --output x", 2, "Did you mean --input?"),
    ("reward mine.py --dta rows.jsonl", 2, "Did you mean --data?"),
    (f"{COMPARE} --sedes 3", 2, "Did you mean --seeds?"),
    (f"{COMPARE} --benchmarks problems.jsonl --eval-flags '--kk 4'", 2, "unknown flag --kk. Did you mean --k?"),
]


@pytest.fixture
def here(elsewhere, monkeypatch):
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("REAL_CACHE", str(elsewhere / "cache"))
    for variable in ("RAY_ADDRESS", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_run(elsewhere, name="failed", status="failed", reason="MemoryError: too large")
    (elsewhere / "piped").mkdir()
    os.mkfifo(elsewhere / "piped" / "rollouts.jsonl")
    return elsewhere


@pytest.mark.parametrize("words, code, part", WORST, ids=[words or "nothing" for words, _, _ in WORST])
def test_the_worst_words(here, capsys, words, code, part):
    given = shlex.split(words)
    if given[:1] and given[0] in ("train", "compare"):
        given.append("--dry-run")  # what is accepted shall not start
    rows = (here / "rows.jsonl").read_bytes()
    try:
        ended = main(given)
    except SystemExit as end:
        ended = end.code
    said = "".join(capsys.readouterr())
    assert ended == code and part in said, said
    assert (here / "rows.jsonl").read_bytes() == rows
    assert "Traceback" not in said and "\x1b" not in said and max(map(len, said.splitlines())) < 2500
