"""Tasks of reasoning-gym: data without overlap, exact rewards, and no scorer that runs a model's text."""

import contextlib
import importlib.util
import json
import math
from pathlib import Path

import pytest

from real_openrlhf.cli import main
from real_openrlhf.data import gym
from real_openrlhf.rewards import gym_tasks as tasks
from real_openrlhf.rewards.graders import Asked, judge
from same_answer import verdict
from same_answer.process import NoVerdict

ONE_DIGIT = ["--set", "min_terms=2", "max_terms=2", "min_digits=1", "max_digits=1"]
SUMS = {"name": "chain_sum", "set": {"max_terms": 2}}


def label(task: str, answer: str | None, metadata: dict | None = None, settings: dict | None = None) -> str:
    return json.dumps({"task": task, "settings": settings or {}, "answer": answer, "metadata": metadata or {}})


def graded(answer: str, of: str) -> verdict.Verdict:
    return judge(Asked(f"So it is \\boxed{{{answer}}}.", of), grader="gym")


# Our own rule; it needs no library

TWENTY_FOUR = label("puzzle24", "1*2*3*4", {"numbers": [1, 2, 3, 4]})
COUNTDOWN = label("countdown", "75+3", {"numbers": [75, 3], "target": 78})


@pytest.mark.parametrize(
    "of, answer, right",
    [
        (TWENTY_FOUR, "4*3*2*1", True), (TWENTY_FOUR, r"4 \times 3 × (2 \cdot 1)", True), (TWENTY_FOUR, "24", False),
        (TWENTY_FOUR, "6*4*1*1", False),  # for the library any four numbers are right
        (TWENTY_FOUR, "(1+2+3)*4", True), (TWENTY_FOUR, "1*2*3*4 + 0.9", False), (TWENTY_FOUR, "4/(3-2-1)", False),
        (TWENTY_FOUR, "True*2*3*4", False), (TWENTY_FOUR, "4**3**2**1", False), (TWENTY_FOUR, "(" * 900, False),
        (TWENTY_FOUR, "-" * 3000 + "1", False), (COUNTDOWN, "3 + 75", True), (COUNTDOWN, "78", False),
        (COUNTDOWN, "f(75, 3)", False),
    ],
)  # fmt: skip
def test_an_expression_that_uses_each_number_once_is_right(of, answer, right):
    assert tasks.right(of, answer) == right


@pytest.mark.parametrize(
    "response", ["17", "the answer is 17", r"\boxed{}", r"\boxed{ }", r"\boxed{\text{}}", r"\boxed{17"]
)
def test_no_box_and_a_box_without_an_answer_are_wrong(response):
    assert judge(Asked(response, label("chain_sum", "17")), grader="gym") == (0.0, "no_answer")


def test_the_same_text_is_right_and_text_may_be_set_as_text():
    assert graded("17", label("chain_sum", "17")) == (1.0, "exact")
    assert graded(r"\text{No}", label("syllogism", "No")) == (1.0, "exact")


@pytest.mark.parametrize("bad", ["", "17", "[]", "{}", '{"task": "gcd"}', None, 17])
def test_a_label_of_another_kind_is_no_verdict(bad):
    assert graded("17", bad).reason == "no_gold"


def test_without_the_package_one_line_says_what_to_install(monkeypatch, refused, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "reasoning_gym" else find(name))
    tasks.library.cache_clear()
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"response": r"\boxed{1}", "label": label("gcd", "1")}) + "\n")
    data, grade = ["data", "gym", "gcd", "--out"], ["grade", "--grader", "gym", "--input", str(rows), "--output"]
    for words in (data, grade):
        said = refused(*words, tmp_path / "out")
        assert "reasoning_gym is not installed" in said and "setup_env.sh cpu" in said
    tasks.library.cache_clear()


# Answers that are programs


def test_no_offered_scorer_runs_an_answer_or_a_label(tmp_path):
    """In this process, with a question of each task: a scorer that evaluated a text would leave a file."""
    witness, ran = tmp_path / "witness", []
    attack = f"__import__('os').system('touch {witness}')"
    for task in tasks.offered():
        row = next(gym._draw(gym.Part(task, {}), 1, 0, set()))
        content = json.loads(row["label"])
        metadata = {key: attack if isinstance(value, str) else value for key, value in content["metadata"].items()}
        own, poisoned = row["label"], label(task, attack, metadata)
        for of, answer in ((own, attack), (own, f"[{attack}]"), (poisoned, "[1]")):
            with contextlib.suppress(NoVerdict):
                assert not tasks.right(of, answer) or of is poisoned
        if witness.exists():
            ran.append(task)
            witness.unlink()
    assert ran == []


@pytest.mark.parametrize("task", [*tasks.RUNS_ANSWERS, *tasks.MISJUDGES])
def test_a_refused_scorer_is_called_for_nobodys_label(tmp_path, capsys, task):
    witness = tmp_path / "witness"
    attack, of = f"__import__('os').system('touch {witness}')", label(task, "ABCDE")
    with pytest.raises(NoVerdict, match="is not offered"):
        tasks.right(of, attack)
    assert graded(attack, of).reason == "scorer_raised" and not witness.exists()
    assert main(["data", "gym", task, "--out", str(tmp_path / "gym")]) == 2
    assert f"{task} is not offered: its scorer" in capsys.readouterr().err


def test_the_attack_works_on_the_librarys_own_scorer(tmp_path):
    """Or the test above could not fail."""
    witness = tmp_path / "witness"
    scorer = tasks.dataset("string_insertion", {}).score_answer  # `check` refuses it, this does not
    scorer(f"__import__('os').system('touch {witness}')", {"answer": "ABCDE", "metadata": {}})
    assert witness.exists()


# Verdicts by the library's scorers, in the workers


def test_only_exact_answers_are_right():
    sums = label("chain_sum", "1", settings={"max_terms": 2})
    assert tasks.dataset("chain_sum", {}).score_answer("17", {"answer": "1"}) == 0.5  # what the library says
    assert graded("17", sums) == (0.0, "different")
    assert graded("+01.0", sums) == (1.0, "exact")
    assert graded("the answer is 1", sums) == (0.0, "different")
    days = label("calendar_arithmetic", "1000", {"task": "count_days"})
    assert tasks.dataset("calendar_arithmetic", {}).score_answer("999", json.loads(days)) > 0.99
    assert graded("999", days).score == 0.0


def test_a_scorer_that_raises_is_no_verdict_and_its_worker_stays():
    factors = label("prime_factorization", "2 × 3")
    assert graded("3 × 2", factors) == (1.0, "exact")
    before = {id(worker) for worker in verdict.pool(tasks.__name__)._ready.queue}
    prose = graded("two times three", factors)
    assert math.isnan(prose.score) and prose.reason == "scorer_raised"
    assert {id(worker) for worker in verdict.pool(tasks.__name__)._ready.queue} >= before
    assert graded("2 × 3 × 1", factors).score == 0.0


# The command


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_no_question_is_in_both_files(tmp_path):
    words = ["data", "gym", "chain_sum", "--train", "100", "--test", "20", "--seed", "3", *ONE_DIGIT]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    train, test = rows_of(tmp_path / "a/train.jsonl"), rows_of(tmp_path / "a/test.jsonl")
    questions = [row["prompt"][0]["content"] for row in [*train, *test]]
    assert (len(train), len(test), len(set(questions))) == (100, 20, 120)
    assert all(question.endswith("Give the final answer in \\boxed{}.") for question in questions)
    for row in [*train, *test]:
        content = json.loads(row["label"])
        assert graded(content["answer"], row["label"]).score == 1.0 and row["datasource"] == "chain_sum"
        assert content["settings"] == {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    assert main([*words, "--out", str(tmp_path / "b")]) == 0
    for name in ("train.jsonl", "test.jsonl", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert main([*words, "--train", "5", "--out", str(tmp_path / "c")]) == 0
    assert (tmp_path / "c/test.jsonl").read_bytes() == (tmp_path / "a/test.jsonl").read_bytes()


def test_a_mixture_of_tasks_and_of_difficulties(tmp_path):
    path = tmp_path / "mixture.json"
    harder = {"name": "gcd", "set": {"max_value": 5000}}
    path.write_text(json.dumps({"tasks": [{**SUMS, "weight": 3}, {"name": "gcd"}, harder]}))
    out = tmp_path / "gym"
    assert main(["data", "gym", str(path), "--train", "52", "--test", "10", "--out", str(out)]) == 0
    names = [row["datasource"] for row in rows_of(out / "train.jsonl")]
    assert {name: names.count(name) for name in set(names)} == {"chain_sum": 31, "gcd": 11, "gcd-2": 10}
    assert names != sorted(names)
    settings = {row["datasource"]: json.loads(row["label"])["settings"] for row in rows_of(out / "test.jsonl")}
    assert settings == {"chain_sum": {"max_terms": 2}, "gcd": {}, "gcd-2": {"max_value": 5000}}


def test_a_task_that_takes_any_text_is_refused(tmp_path, capsys, monkeypatch):
    """The library's own scorer of game_of_life_halting; what draws its questions needs a package that is not here."""
    scorer = tasks.library().factory.DATASETS["game_of_life_halting"][0].score_answer
    monkeypatch.setattr(tasks.library().factory.DATASETS["gcd"][0], "score_answer", scorer)
    tasks._scorer.cache_clear()
    assert main(["data", "gym", "gcd", "--out", str(tmp_path / "gym")]) == 2
    assert "50 were drawn; left out: 50 (100%) whose scorer accepts any text" in capsys.readouterr().err
    tasks._scorer.cache_clear()
