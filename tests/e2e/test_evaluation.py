"""Evaluation with vLLM: one engine interrupted, killed and continued gives the table of two that went through."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from every import every
from tiny_models import letters, model_of

from real_openrlhf.runs.provenance import CODE

K = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random model that says boxed digits among other words, and twelve problems with digits as golds."""
    folder = tmp_path_factory.mktemp("evaluation")
    tokenizer = letters(["</think>", *(f"x\\boxed{{{digit}}}" for digit in range(6)), *"abcdefghij 0123456789+?"])
    tokenizer.save_pretrained(folder / "model")
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 8192}
    words = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "tie_word_embeddings": False}
    model_of(**sizes, **words).bfloat16().save_pretrained(folder / "model")
    problems = (
        {"prompt": [{"role": "user", "content": f"{n}+{n}?"}], "label": json.dumps([str(n % 6)]), "id": f"sums-{n}"}
        for n in range(12)
    )
    (folder / "sums.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    return folder


def command(folder, out, *options, python=sys.executable):
    return [
        *(python, "-m", "real_openrlhf.cli", "eval", "--model", str(folder / "model"), "--out", str(folder / out)),
        *("--benchmarks", str(folder / "sums.jsonl"), "--k", str(K), "--max-new-tokens", "100"),
        *("--temperature", "1", "--think", "optional", *options),
    ]


@pytest.fixture(scope="module")
def evaluate(folder, forked):
    python, environment = forked

    def run(out, *options):
        words = command(folder, out, *options, python=python)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr[-3000:]
        assert not re.search("Loading|WARNING", done.stderr), done.stderr  # our own bars only
        return done

    return run


def outcome(folder, out):
    """Everything that an evaluation leaves: samples in one order, the results without the code that made them."""
    samples = sorted((folder / out / "samples.jsonl").read_text().splitlines())
    results = json.loads((folder / out / "results.json").read_text())
    results = {key: value for key, value in results.items() if key not in (*CODE, "versions")}
    return samples, results, *((folder / out / name).read_text() for name in ("per_problem.jsonl", "table.md"))


@pytest.fixture(scope="module")
def through(folder, evaluate):
    """A run that goes through, on two engines."""
    evaluate("two", "--data-parallel", "2")
    return outcome(folder, "two")


def samples_so_far(folder, out):
    path = folder / out / "samples.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_every_number_follows_from_the_samples(folder, through):
    samples = [json.loads(line) for line in through[0]]
    assert len(samples) == len({(one["id"], one["sample"]) for one in samples}) == 12 * K
    assert len({one["seed"] for one in samples}) == 12 * K
    right = 0
    for one in samples:
        boxed = re.findall(r"\\boxed\{(\d)\}", one["response"].split("</think>")[-1])
        right += bool(boxed) and int(boxed[-1]) == int(one["id"].removeprefix("sums-")) % 6
        words = re.findall(r"x\\boxed\{\d\}|</?\w+>|.", one["response"])
        assert one["tokens"] == (len(words) if one["truncated"] else len(words) + 1)  # the end token is not text
        assert one["truncated"] == (len(words) == 100)
    results = json.loads((folder / "two" / "results.json").read_text())["benchmarks"]["sums"]
    assert 0 < right < 12 * K
    assert results["pass@1"] == pytest.approx(right / (12 * K))
    assert results["mean_tokens"] == pytest.approx(sum(one["tokens"] for one in samples) / (12 * K))
    assert results["truncated"] == pytest.approx(sum(one["truncated"] for one in samples) / (12 * K))
    assert f"{results['pass@1']:.3f} ±" in (folder / "two" / "table.md").read_text()


AS_A_FORK = """
import os, sys, time
from real_openrlhf.cli import main
from real_openrlhf.evaluation import store

row = store.asdict
store.asdict = lambda sample: time.sleep(0.1) or row(sample)  # so that it can be ended before its last sample
print(os.getpid(), flush=True)
sys.exit(main())
"""


def run_until(folder, forked, out, count, *options):
    """(a run that has this many samples on disk, its process): then it is the test's to end it."""
    python, environment = forked
    words = [python, "-c", AS_A_FORK, *command(folder, out, *options)[3:]]
    log = folder / f"{out}.log"
    with log.open("wb") as file:
        running = subprocess.Popen(words, env=environment, stdout=file, stderr=file)
    deadline = time.monotonic() + 1200
    while samples_so_far(folder, out) < count:
        assert running.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.01)
    return running, int(log.read_text().split()[0])


def wait_until_nobody_is_left(session):
    """In a fork's session are the programs that it started, each as long as the fork that stands for it."""
    deadline = time.monotonic() + 1200
    while left := subprocess.run(["ps", "-o", "args=", "-s", str(session)], capture_output=True, text=True).stdout:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


@pytest.fixture(scope="module")
def continued(folder, evaluate, forked):
    """One engine, killed in the middle and continued: (samples that were kept, what the last run said)."""
    running, process = run_until(folder, forked, "one", 2 * K)
    os.kill(process, signal.SIGKILL)
    running.wait()
    kept = samples_so_far(folder, "one")
    wait_until_nobody_is_left(process)  # the engine notices by itself that nobody is
    assert samples_so_far(folder, "one") == kept < 12 * K
    with (folder / "one" / "samples.jsonl").open("ab") as samples:
        samples.write(b'{"id": "sums-1", "sam')  # a line that the kill tore
    return kept, evaluate("one").stderr


def test_one_engine_killed_and_continued_gives_the_table_of_two_that_went_through(folder, continued, through):
    kept, said = continued
    assert kept >= 2 * K and f"{kept}/{12 * K}" in said  # the bar starts where the kill was
    assert outcome(folder, "one") == through


def test_an_evaluation_whose_engine_fails_says_so_in_a_line(folder, forked):
    python, environment = forked
    shutil.copytree(folder / "model", folder / "broken" / "model")
    weights = folder / "broken" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    shutil.copy(folder / "sums.jsonl", folder / "broken")
    words = command(folder / "broken", "out", python=python)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("real-openrlhf eval: error: vLLM failed: ") and last.endswith("the same command continues")


@every  # of training: test_user_files.py
def test_an_engine_that_is_killed_ends_the_evaluation(folder, forked):
    running, process = run_until(folder, forked, "killed", 2, "--k", "640")
    (engine,) = (one for one in psutil.Process(process).children() if "spawn_main" in " ".join(one.cmdline()))
    engine.kill()  # and so its fork
    assert running.wait(600) == 2
    last = (folder / "killed.log").read_text().strip().splitlines()[-1]
    assert last.startswith("real-openrlhf eval: error: a vLLM engine ended with exit codes [-9]")
