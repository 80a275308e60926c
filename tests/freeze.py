"""What a commit says and computes, as files to compare with another commit's: python tests/freeze.py OUT [PART ...]

  dry-runs  the dry run of every recipe with every method
  reports   tables of the report of every recorded campaign, as CSV and Markdown
  verdicts  on the golds in ../shared/data, on random spellings, and on the written pairs of same_answer/tests
  steps     ten steps of six methods on the real stack, without times
  refusals  every command of the fast and slow tests that ends with exit code 2, and its message

Run it in both checkouts, each with its own environment, then `diff -r`. It calls only the command line, the
verifier and the reader of the records. Paths, times and commits are masked.
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SHARED = ROOT.parent / "shared" / "data"
METHODS = ("real", "real_fixed_weights", "grpo", "dapo", "gspo")
TIME = re.compile(r"seconds|time|throughput|per_second|timing|memory|_gb|sampling/.*_s$")


def dry_runs(out: Path) -> None:
    from real_openrlhf.recipes.algorithms import ALGORITHMS
    from real_openrlhf.recipes.recipes import RECIPES

    for recipe in RECIPES:
        for algo in ALGORITHMS:
            text = told(["train", "--recipe", recipe, "--algo", algo, "--dry-run"])
            (out / f"{recipe}-{algo}.txt").write_text(text, encoding="utf-8")


def reports(out: Path) -> None:
    results = ROOT / "examples" / "results"
    for campaign in sorted(results.glob("*/campaign.json")):
        with tempfile.TemporaryDirectory() as made:
            command = [sys.executable, str(results / "campaigns.py"), str(campaign.parent), f"{made}/report"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for table in sorted(Path(made).glob("report/tables/*")):
                (out / f"{campaign.parent.name}-{table.name}").write_bytes(table.read_bytes())


def verdicts(out: Path) -> None:
    from same_answer import verify

    with (out / "verdicts.jsonl").open("w", encoding="utf-8") as file:
        for part, gold, response in _pairs():
            verdict = verify(response, gold)
            row = [part, gold, response[-200:], str(verdict.score), verdict.reason]
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _pairs() -> Iterator[tuple[str, object, str]]:
    import pyarrow.parquet

    pairs = ROOT / "same_answer/tests"
    sys.path.insert(0, str(pairs))
    import spelled_pairs

    if not SHARED.is_dir():
        print("../shared/data is not here: no golds")
    for path in sorted(SHARED.glob("*/*.parquet")):
        golds = [row["ground_truth"] for row in pyarrow.parquet.read_table(path)["reward_model"].to_pylist()]
        others = random.Random(7).sample(golds, len(golds))
        for gold, other in zip(golds, others, strict=True):
            for text in (gold, other):
                yield path.stem, gold, f"\\boxed{{{text[0] if isinstance(text, list) else text}}}"
    for seed in range(10_000):
        gold, answer, _ = spelled_pairs.pair(random.Random(seed))
        yield "spelled", gold, f"\\boxed{{{answer}}}"
    for name in ("written_pairs", "tricky_pairs"):
        for line in (pairs / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield name, row["gold"], row.get("response", f"\\boxed{{{row.get('answer')}}}")


def steps(out: Path) -> None:
    with tempfile.TemporaryDirectory() as runs:
        for method in METHODS:
            words = ["--algo", method, "--max-steps", "10", "--eval.steps", "5"]
            command = [sys.executable, "-m", "real_openrlhf.cli", "train", *words, "--runs-dir", runs]
            subprocess.run([*command, "--run-name", method], check=True, stdout=subprocess.DEVNULL)
            lines = (Path(runs) / method / "metrics.jsonl").read_text().splitlines()
            kept = [{key: value for key, value in json.loads(line).items() if not TIME.search(key)} for line in lines]
            (out / f"{method}.jsonl").write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in kept))


def refusals(out: Path) -> None:
    parts = ("tests/fast", "tests/slow", "tests/hostile/test_refused_commands.py")
    command = [sys.executable, "-m", "pytest", "-p", "freeze", "-q", *parts]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "REAL_FREEZE": str(out / "refusals.txt")}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    found = sorted(set((out / "refusals.txt").read_text(encoding="utf-8").split("\n\n")))
    (out / "refusals.txt").write_text("\n\n".join(found), encoding="utf-8")


def pytest_configure(config) -> None:
    """As a plugin of pytest: write down each command that a test calls and that is refused."""
    import real_openrlhf.cli as cli

    real_main, place = cli.main, Path(os.environ["REAL_FREEZE"])

    def main(argv: list[str] | None = None) -> int:
        errors = io.StringIO()
        code = 0
        try:
            with contextlib.redirect_stderr(errors):
                code = real_main(argv)
        except SystemExit as stopped:
            code = stopped.code
            raise
        finally:
            sys.stderr.write(errors.getvalue())
            if code == 2 and argv:
                with place.open("a", encoding="utf-8") as file:
                    file.write(masked(f"$ {' '.join(argv)}\n{errors.getvalue().strip()}") + "\n\n")
        return code

    cli.main = main


def told(argv: list[str]) -> str:
    """Exit code and output of a command, run in a new folder by this process."""
    import real_openrlhf.cli as cli

    output, here = io.StringIO(), Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        os.chdir(folder)
        try:
            code = cli.main(argv)
        except SystemExit as stopped:
            code = stopped.code
        finally:
            os.chdir(here)
    return masked(f"{output.getvalue()}exit code {code}\n").replace(folder, "FOLDER")


def masked(text: str) -> str:
    text = text.replace(sys.prefix, "VENV").replace(str(ROOT), "ROOT").replace(str(Path.home()), "HOME")
    text = re.sub(r"/tmp/pytest-of-\w+/pytest-\d+/(popen-\w+/)?|/tmp/tmp\w+", "TMP/", text)
    return re.sub(r"\d{8}-\d{6}|\b[0-9a-f]{40}\b|\d+ GB (are )?free", "MASKED", text)


PARTS = {"dry-runs": dry_runs, "reports": reports, "verdicts": verdicts, "steps": steps, "refusals": refusals}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", default=list(PARTS), help=", ".join(PARTS))
    args = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
    for part in args.parts:
        (args.out / part).mkdir(parents=True, exist_ok=True)
        PARTS[part](args.out.resolve() / part)
        print(f"{part}: {len(list((args.out / part).iterdir()))} files", flush=True)
