"""Evaluation without an engine: tasks, samples on disk, grading again, tables, user mistakes, and numbers by hand."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, product

import invented_runs as invented
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import letters

from real_openrlhf.base.errors import UserError
from real_openrlhf.cli import main
from real_openrlhf.evaluation.engines import engine_count
from real_openrlhf.evaluation.grading import pass_at, per_problem, powers_of_two, summarise
from real_openrlhf.evaluation.questions import Question, answer_length, find_model, read_records, tokenized
from real_openrlhf.evaluation.store import Sample, opened, sample_seed
from real_openrlhf.report.statistics import bootstrap


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- tasks


def test_a_file_is_asked_as_it_stands(tmp_path):
    rows = [{"prompt": [{"role": "user", "content": "ab"}], "label": "1", "id": "x"}, {"prompt": "ab", "label": "2"}]
    file = write_jsonl(tmp_path / "mine.jsonl", rows)
    a, b = letters().convert_tokens_to_ids(["a", "b"])
    assert tokenized(read_records(str(file), None), letters()) == {
        "mine": [
            Question("mine", "x", "<bos><user>ab<bot>", (1, 2, a, b, 3), "1"),
            Question("mine", "mine-1", "<bos>ab", (1, a, b), "2"),
        ]
    }


def test_all_is_the_six_in_the_order_of_the_paper(benchmarks, tmp_path):
    mine = write_jsonl(tmp_path / "mine.jsonl", [{"prompt": "ab", "label": "1"}])
    groups = tokenized(read_records(f"{mine},all", benchmarks), letters())
    assert list(groups) == ["aime24", "aime25", "math500", "amc23", "minerva", "olympiadbench", "mine"]
    assert [len(group) for group in groups.values()] == [30, 30, 500, 83, 272, 675, 1]
    first = groups["aime24"][0]
    assert first.tokens.count(1) == 1 and first.tokens[-1] == 3
    assert first.prompt.endswith("Let's think step by step and output the final answer within \\boxed{}.<bot>")


# --- samples on disk


def test_sample_seeds_repeat_and_never_meet():
    assert sample_seed(42, "aime24-0", 0) == sample_seed(42, "aime24-0", 0)
    seeds = {sample_seed(seed, f"aime24-{n}", k) for seed in (1, 2) for n in range(30) for k in range(16)}
    assert len(seeds) == 2 * 30 * 16 and all(0 <= seed < 2**63 for seed in seeds)


def test_every_visible_gpu_has_work_and_more_engines_than_gpus_are_refused():
    fits = {(None, 8, 1): 8, (None, 8, 2): 4, (None, 0, 1): 1, (None, 3, 2): 1, (2, 8, 1): 2, (2, 0, 1): 2}
    assert {asked: engine_count(*asked) for asked in fits} == fits
    for asked in ((9, 8, 1), (None, 1, 2), (3, 4, 2)):
        with pytest.raises(UserError, match=f"this process sees {asked[1]}. Lower --data-parallel"):
            engine_count(*asked)


def sample(number, response="x"):
    return Sample("p-0", number, 7, response, 3, False)


def test_a_torn_line_is_cut_and_the_rest_kept(tmp_path):
    with opened(tmp_path, {"p-0": "a"}) as (_, add):
        add(sample(0, "é\n{}"))
    with (tmp_path / "samples.jsonl").open("ab") as file:
        file.write('{"id": "p-0", "sample": 2, "response": "é'.encode()[:-1])
    with opened(tmp_path, {"p-0": "a"}) as (_, add):
        add(sample(1))
    with opened(tmp_path, {"p-0": "a"}) as (samples, _):
        assert samples == {("p-0", 0): sample(0, "é\n{}"), ("p-0", 1): sample(1)}
        with pytest.raises(UserError, match="another evaluation is writing"), opened(tmp_path, {}):
            pass


def test_samples_of_another_model_setting_or_text_of_the_problem_are_not_taken(tmp_path):
    one = Question("x", "p-0", "", (1, 2), "1")
    drawn_by = {"model": "a", "top_p": 1.0}
    with opened(tmp_path, {"p-0": one.origin(drawn_by)}) as (_, add):
        add(sample(0))
    for question, how in ((one, {**drawn_by, "top_p": 0.9}), (replace(one, tokens=(1, 3)), drawn_by)):
        with opened(tmp_path, {"p-0": question.origin(how)}) as (samples, _):
            assert samples == {}
    with opened(tmp_path, {"p-0": replace(one, label="2").origin(drawn_by)}) as (samples, _):
        assert samples == {("p-0", 0): sample(0)}  # a corrected answer is graded anew


# --- numbers and tables


def graded_problem(benchmark, number, verdicts, tokens=10):
    task = Question(benchmark, f"{benchmark}-{number}", "", (), "1")
    graded = [
        (Sample(task.identity, k, 0, "", tokens + k, k % 2 == 0), verdict, "why") for k, verdict in enumerate(verdicts)
    ]
    return per_problem(task, graded)


def test_numbers_of_two_benchmarks_by_hand():
    problem = graded_problem("aime24", 0, [1.0, 0.0, float("nan"), 1.0])  # without a verdict it counts as wrong
    assert problem["verdicts"] == [1, 0, 0, 1] and problem["pass@1"] == 0.5 and problem["ungraded"] == 1
    problems = [
        graded_problem("aime24", 0, [1, 1, 0, 0]),
        graded_problem("aime24", 1, [0, 0, 0, 0], tokens=20),
        graded_problem("mine", 0, [1, 1, 1, 1]),
    ]
    benchmarks, average = summarise(problems, seed=0)
    aime = benchmarks["aime24"]
    assert aime["title"] == "AIME24" and benchmarks["mine"]["title"] == "mine"
    assert aime["problems"] == 2 and aime["pass@1"] == 0.25
    assert aime["pass@k"] == {"1": 0.25, "2": pytest.approx(5 / 12), "4": 0.5}
    assert aime["truncated"] == 0.5 and aime["mean_tokens"] == 16.5
    assert aime["standard_error"] == pytest.approx(0.25 / np.sqrt(2), rel=0.03)
    assert benchmarks["mine"]["standard_error"] == 0
    assert average["pass@1"] == 0.625
    assert average["standard_error"] == pytest.approx(aime["standard_error"] / 2)
    assert summarise(problems, seed=0) == (benchmarks, average)
    assert summarise(problems[:2], seed=0)[0]["aime24"] == aime


# --- the command, with samples that are there already


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tokenizer and a configuration: all that is read of a model when nothing is left to sample."""
    folder = tmp_path_factory.mktemp("model")
    letters().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen2", "max_position_embeddings": 64}')
    return folder


@pytest.fixture
def evaluate(model, tmp_path):
    write_jsonl(tmp_path / "mine.jsonl", [{"prompt": "aaa", "label": "3"}, {"prompt": "aa", "label": "2"}])

    def evaluate(*options):
        command = ["eval", "--model", model, "--benchmarks", tmp_path / "mine.jsonl", "--out", tmp_path / "out"]
        return main([str(word) for word in [*command, "--k", 2, "--max-new-tokens", 8, *options]])

    return evaluate


@pytest.fixture
def answering(monkeypatch):
    """answering({problem: its answers}): what vLLM would say (tests/e2e has it); everything else is real."""

    def put(said: dict[str, list[str]]) -> None:
        def answers(pairs, settings, engines):
            for task, number in pairs:
                seed = sample_seed(settings.seed, task.identity, number)
                yield Sample(task.identity, number, seed, said[task.identity][number], 5, False)

        monkeypatch.setattr("real_openrlhf.evaluation.command.generate", answers)

    return put


@pytest.fixture
def sampled(evaluate, answering, tmp_path, monkeypatch):
    """An evaluation with every sample drawn."""
    answering({"mine-0": ["</think>\\boxed{3}", "\\boxed{3.0}"], "mine-1": ["</think>\\boxed{3}", "</think> 2"]})
    assert evaluate() == 0
    monkeypatch.undo()
    return json.loads((tmp_path / "out" / "results.json").read_text())


def test_thinking_is_required_and_the_title_says_if_none_was_closed(sampled, evaluate, model, answering, tmp_path):
    """`compare` prints nothing else of an evaluation, and 0.000 for a model that does not think."""
    assert sampled["benchmarks"]["mine"]["pass@1"] == 0.25
    problems = [json.loads(line) for line in (tmp_path / "out" / "per_problem.jsonl").read_text().splitlines()]
    reasons = [["exact", "unfinished_thinking"], ["different", "no_answer"]]
    assert [problem["reasons"] for problem in problems] == reasons
    answering({f"mine-{number}": ["\\boxed{3}"] * 2 for number in range(2)})
    for options, told in (((), True), (("--think", "optional"), False)):
        assert evaluate("--seed", 43, "--out", tmp_path / "none", *options) == 0
        text = (tmp_path / "none" / "table.md").read_text()
        assert ("give --think optional" in text.splitlines()[0]) == told and f"| {model} |" in text


@pytest.mark.parametrize(
    ("rule", "think"), [("auto", "optional"), ("required", "required"), ("optional", "optional"), (None, "required")]
)
def test_the_model_of_a_run_has_its_name_and_its_rule(evaluate, model, answering, tmp_path, rule, think):
    """Its prompts here open no thinking. A record without the rule is that of an older version."""
    folder = invented.write_run(tmp_path, name="mine", **({"variables": {"REAL_THINK": rule}} if rule else {}))
    shutil.copytree(model, folder / "model")
    answering({f"mine-{number}": ["\\boxed{3}"] * 2 for number in range(2)})
    assert evaluate("--model", folder / "model") == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["name"], results["settings"]["think"]) == ("mine", think)


def test_the_same_samples_are_graded_again(sampled, evaluate, tmp_path):
    before = (tmp_path / "out" / "samples.jsonl").read_bytes()
    assert evaluate("--think", "optional", "--grader", "disco") == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["benchmarks"]["mine"]["pass@1"] == 0.5
    assert results["settings"]["grader"] == "disco" and results["settings"]["think"] == "optional"
    assert (tmp_path / "out" / "samples.jsonl").read_bytes() == before
    assert evaluate("--limit", "1", "--k", "1") == 0  # fewer problems and samples of what is there
    assert json.loads((tmp_path / "out" / "results.json").read_text())["benchmarks"]["mine"]["pass@1"] == 1.0


REWARD = """def reward_func(queries, prompts, labels):
    right = float(queries[0] == prompts[0] + '</think>\\\\boxed{' + str(prompts[0].count('a')) + '}')
    return RESULT
"""


@pytest.mark.parametrize(
    ("result", "said"),
    [("{'rewards': 0, 'scores': [right]}", ""), ("{'rewards': right}", ""), ("right", "Fault: it returned a"),
     ("1 / 0", "line 3, ZeroDivisionError: division by zero")],
)  # fmt: skip
def test_a_reward_file_grades_as_in_training_or_is_named(sampled, evaluate, tmp_path, capsys, result, said):
    (tmp_path / "reward.py").write_text(REWARD.replace("RESULT", result))
    assert evaluate("--grader", tmp_path / "reward.py") == (2 if said else 0)
    if said:
        assert f"{tmp_path}/reward.py failed on mine-0: {said}" in capsys.readouterr().err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["benchmarks"]["mine"]["pass@1"] == 0.25


def test_a_tokenizer_with_code_of_its_own_is_refused_and_not_run(model, evaluate, capsys):
    config, tokenizer = model / "config.json", model / "tokenizer_config.json"
    before = {path: path.read_text() for path in (config, tokenizer)}
    own = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoTokenizer": ["mine.Mine", None]}}
    (model / "mine.py").write_text("raise SystemExit('it was run')\n")
    config.write_text(json.dumps(own))
    tokenizer.write_text(json.dumps(own | {"tokenizer_class": "Mine"}))
    try:
        assert evaluate() == 2
        assert "cannot load a tokenizer from" in capsys.readouterr().err
    finally:
        (model / "mine.py").unlink()
        for path, text in before.items():
            path.write_text(text)


def test_answers_are_as_long_as_the_context_leaves_unless_asked(tmp_path, capsys):
    tasks = [Question("mine", str(size), "", tuple(range(size)), "1") for size in (3, 10)]
    for limit, expected in ((64, 54), (100_000, 8192)):
        (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": limit}))
        assert answer_length(tmp_path, tasks, None) == expected
        assert ("responses have at most 54 tokens, not 8192" in capsys.readouterr().out) == (limit == 64)
    assert answer_length(tmp_path, tasks, 7) == 7
    for limit, asked, way in ((10, None, "Leave that benchmark out"), (64, 55, "Use --max-new-tokens 54 or less")):
        (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": limit}))
        with pytest.raises(UserError, match=f"has 10 tokens, and the model's context is {limit}. {way}"):
            answer_length(tmp_path, tasks, asked)


# pass@k and its errors, against counting every subset, closed forms and exact enumeration.


TABLES = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 1), min_size=k, max_size=k), min_size=1, max_size=5)
)


@settings(deadline=None, derandomize=True, database=None)  # the machine may be busy
@given(TABLES)
def test_pass_at_k_counts_the_subsets_with_a_hit(table):
    samples = len(table[0])
    for k in range(1, samples + 1):
        shares = [np.mean([any(subset) for subset in combinations(row, k)]) for row in table]
        assert pass_at(k, np.array(table)) == pytest.approx(np.mean(shares), abs=1e-12)
    verdicts = np.array([[1] * 512 + [0] * 512, [0] * 1024])
    assert pass_at(1024, verdicts) == pytest.approx(0.5)  # large counts do not overflow
    assert powers_of_two(6) == [1, 2, 4, 6] and powers_of_two(16) == [1, 2, 4, 8, 16]


def test_bootstrap_draws_every_problem_alike():
    """Every equally likely resample of three problems, enumerated."""
    scores = np.array([0.0, 0.25, 1.0])
    exact = [np.mean(draw) for draw in product(scores, repeat=3)]
    means = bootstrap(scores, np.random.default_rng(2))
    for value in sorted(set(exact)):
        share = exact.count(value) / len(exact)
        tolerance = 5 * np.sqrt(share * (1 - share) / len(means))
        assert np.isclose(means, value).mean() == pytest.approx(share, abs=tolerance)


# `eval --compare`: differences by pairs of problems, their intervals, and what is no pair

SETTINGS = {"k": 4, "temperature": 0.6, "top_p": 0.95, "max_new_tokens": 100, "seed": 7, "grader": "robust"}


def folder(root, name, scores, settings=SETTINGS, labels=None):
    """What `eval --out` leaves: scores by benchmark, one a problem."""
    (root / name).mkdir()
    lines = [
        {"benchmark": benchmark, "id": f"{benchmark}-{n}", "label": (labels or {}).get(n, "1"), "pass@1": float(score)}
        for benchmark, row in scores.items()
        for n, score in enumerate(row)
    ]
    write_jsonl(root / name / "per_problem.jsonl", lines)
    (root / name / "results.json").write_text(json.dumps({"name": name, "settings": settings}))
    return root / name


def compared(root, capsys, one, other):
    """The rows of the table that the command prints."""
    assert main(["eval", "--compare", str(folder(root, "a", one)), str(folder(root, "b", other))]) == 0
    printed = capsys.readouterr().out
    assert "k = 4, T = 0.6" in printed
    return [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")][2:]


def test_differences_of_paired_problems_are_those_by_hand(tmp_path, capsys):
    one = {"aime24": [0.0, 0.5, 1.0, 0.5], "mine": [0.0] * 10}
    aime, mine, average = compared(tmp_path, capsys, one, {"aime24": [0.5, 0.5, 0.75, 0.5], "mine": [0.5] * 10})
    assert aime[:5] == ["AIME24", "4", "0.500", "0.562", "+0.062"]
    low, high = (float(bound) for bound in aime[5].split(" to "))
    assert low < 0 < high
    # the same gain everywhere: no other problems would change it
    assert mine == ["mine", "10", "0.000", "0.500", "+0.500", "+0.500 to +0.500"]
    assert average[:5] == ["Avg. of 2", "14", "0.250", "0.531", "+0.281"]  # of benchmarks, whatever their size
    bounds = [float(bound) for bound in average[5].split(" to ")]
    assert bounds == pytest.approx([(low + 0.5) / 2, (high + 0.5) / 2], abs=0.0011)


def test_the_interval_is_of_pairs_and_a_bound_that_is_printed_as_zero_leaves_nothing_out(tmp_path, capsys):
    """Problems differ a lot, models hardly: unpaired errors would hide the difference."""
    dice = np.random.default_rng(0)
    hard, gain = dice.uniform(0, 0.8, 1000), dice.normal(0.05, 0.1, 1000)
    paired, tiny, _ = compared(tmp_path, capsys, {"x": hard, "y": [0.5] * 3}, {"x": hard + gain, "y": [0.5004] * 3})
    low, high = (float(bound) for bound in paired[5].split(" to "))
    assert (high - low) / 2 == pytest.approx(1.96 * gain.std() / np.sqrt(1000), abs=0.001)
    assert tiny[4:6] == ["+0.000", "+0.000 to +0.000"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"settings": {**SETTINGS, "k": 8, "seed": 1}}, "differ: k 4 and 8; seed 7 and 1"),
        ({"scores": {"x": [0.0]}}, "x x-1 is in one evaluation only"),
        ({"labels": {1: "2"}}, "x x-1 is in one evaluation only, or has another answer in each"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path, refused, options, said):
    a = folder(tmp_path, "a", {"x": [0.0, 0.5]})
    b = folder(tmp_path, "b", **{"scores": {"x": [0.0, 0.5]}, **options})
    assert said in refused("eval", "--compare", a, b)


def test_half_an_evaluation_is_refused(tmp_path, refused):
    a = folder(tmp_path, "a", {"x": [0.0, 0.5]})
    (a / "results.json").write_text('{"settings": {"k": 4')
    assert f"{a} has a broken file" in refused("eval", "--compare", a, a)


def test_a_folder_that_is_no_model_says_where_the_model_is(tmp_path):
    (tmp_path / "run.json").touch()
    with pytest.raises(UserError, match=f"is a run. Give its model: --model {tmp_path}/model"):
        find_model(str(tmp_path))
    (tmp_path / "adapter_config.json").touch()
    with pytest.raises(UserError, match="is the adapter of a LoRA run. Merge it with `python -m openrlhf.cli.lora_"):
        find_model(str(tmp_path))


def test_an_engine_that_is_stopped_inside_an_import_says_nothing(tmp_path):
    """numpy's lazy import once made a RecursionError of the signal."""
    lines = ("try:", "    os.kill(os.getpid(), signal.SIGTERM)", "except BaseException:", "    raise RecursionError")
    (tmp_path / "vllm.py").write_text("\n".join(("import os, signal", *lines)))
    engine = "engine_process.run_engine(SimpleNamespace(cancel_join_thread=lambda: None, put=print), [], None, [], 1)"
    words = f"from types import SimpleNamespace; from real_openrlhf.evaluation import engine_process; {engine}"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", words], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
