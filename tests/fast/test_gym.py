"""Examples that bring their own task: questions of reasoning-gym with exact rewards, and sums written out.

No scorer of reasoning-gym runs a model's text.
"""

import json
import math
import random
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path += [str(EXAMPLES / "gym"), str(EXAMPLES / "sums")]

import gym_questions  # noqa: E402
import gym_reward  # noqa: E402
import sums  # noqa: E402

from real_openrlhf.rewards import math_reward  # noqa: E402

ONE_DIGIT = ["--set", "min_terms=2", "max_terms=2", "min_digits=1", "max_digits=1"]


def label(task: str, answer: str | None, metadata: dict | None = None, settings: dict | None = None) -> str:
    return json.dumps({"task": task, "settings": settings or {}, "answer": answer, "metadata": metadata or {}})


def score(response: str, of: str) -> float:
    prompt = "Give the final answer in \\boxed{}."
    return gym_reward.reward_func([prompt + response], [prompt], [of])["scores"]


def graded(answer: str, of: str) -> float:
    return score(f"So it is \\boxed{{{answer}}}.", of)


# Our own rule for tasks with a target

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
    assert graded(answer, of) == right


@pytest.mark.parametrize("of", ["", "17", "[]", "{}", '{"task": "gcd"}', label("prime_factorization", "2 × 3")])
def test_a_label_of_another_kind_and_a_scorer_that_raises_are_no_verdict(of):
    assert math.isnan(graded("two times three", of))


# Answers that are programs


def test_no_offered_scorer_runs_an_answer_or_a_label(tmp_path):
    """With a question of each task: a scorer that evaluated a text would leave a file."""
    witness, ran = tmp_path / "witness", []
    attack = f"__import__('os').system('touch {witness}')"
    for task in sorted({*gym_reward.library().factory.DATASETS} - {*gym_reward.REFUSED}):
        entry = gym_reward.dataset(task, {}, size=1)[0]
        metadata = {key: attack if isinstance(value, str) else value for key, value in entry["metadata"].items()}
        own, poisoned = label(task, entry["answer"], entry["metadata"]), label(task, "-", metadata)
        for of, answer in ((own, attack), (own, f"[{attack}]"), (poisoned, "[1]")):
            assert graded(answer, of) != 1.0 or of is poisoned
        if witness.exists():
            ran.append(task)
            witness.unlink()
    assert ran == []


def test_the_attack_works_on_the_librarys_own_scorer_which_is_called_for_nobodys_label(tmp_path):
    witness = tmp_path / "witness"
    attack = f"__import__('os').system('touch {witness}')"
    assert math.isnan(graded(attack, label("string_insertion", "ABCDE"))) and not witness.exists()
    scorer = gym_reward.library().create_dataset("string_insertion").score_answer
    scorer(attack, {"answer": "ABCDE", "metadata": {}})
    assert witness.exists()  # or the tests above could not fail


# The questions


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_no_question_is_in_both_files(tmp_path):
    def make(name: str, *more: str) -> list[Path]:
        words = ["chain_sum", str(tmp_path / name), "--train", "60", "--test", "20", "--seed", "3", *more, *ONE_DIGIT]
        gym_questions.main(words)
        return [tmp_path / name / "train.jsonl", tmp_path / name / "test.jsonl"]

    files = make("a")
    train, test = map(rows_of, files)
    questions = [row["prompt"][0]["content"] for row in [*train, *test]]
    assert (len(train), len(test), len(set(questions))) == (60, 20, 80)
    assert all(question.endswith("Give the final answer in \\boxed{}.") for question in questions)
    for row in [*train, *test]:
        content = json.loads(row["label"])
        assert graded(content["answer"], row["label"]) == 1.0 and row["datasource"] == "chain_sum"
        assert content["settings"] == {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    assert [path.read_bytes() for path in make("b")] == [path.read_bytes() for path in files]
    assert make("c", "--train", "5")[1].read_bytes() == files[1].read_bytes()


# Sums


def numbers_of(prompt: str) -> list[int]:
    return [int(number) for number in re.findall(r"[a-h](\d\d)", prompt)]


def test_the_verifier_for_mathematics_grades_the_box():
    for row in sums.SumsTask().rows()[1][:20]:
        numbers = numbers_of(row["prompt"])
        assert row["label"] == str(sum(numbers))
        query = row["prompt"] + sums.response(numbers, random.Random(0), 1.0)
        assert math_reward.reward_func([query], [row["prompt"]], [row["label"]])["scores"] == 1.0
