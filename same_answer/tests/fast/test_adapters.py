"""What trainers and harnesses call, and the file command; with the published packages: tests/slow/test_trainers.py."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from same_answer import math_verify, trl, verifiers, verl


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


ROWS = [("1+1=", "2", "2", 1.0), ("1+1=", "3", "2", 0.0), ("1+1=", "2", "", None), ("Find $2x+x$.", "2x+x", "3x", 0.0),
        ("1/2=", r"\frac{2}{4}", r"Half is $\frac12$, so \boxed{0.5}.", 1.0),
        ("1/3=", "1/3", r"$\frac13$", 1.0)]  # fmt: skip


@pytest.mark.parametrize("conversation", [False, True])
def test_the_reward_for_trl_is_none_where_it_is_ungraded(conversation):
    prompts, answers, golds, scores = map(list, zip(*ROWS, strict=True))
    completions = [boxed(answer) for answer in answers]
    if conversation:
        prompts, completions = (
            [[{"role": "", "content": text}] for text in texts] for texts in (prompts, completions)
        )
    columns: dict[str, list] = {}
    assert trl.accuracy_reward(completions, golds, prompts=prompts, log_extra=columns.__setitem__, level=[]) == scores
    assert columns["verdict"][2:4] == ["no_gold", "copied"]
    assert trl.accuracy_reward(completions, golds)[3] == 1.0  # without the prompt
    assert trl.accuracy_reward([[], [{"content": None}]], ["5", "5"]) == [0.0, 0.0]


def test_the_reward_for_verl_counts_what_is_ungraded():
    prompt, answer, gold, _ = ROWS[3]
    asked = {"solution_str": boxed(answer), "extra_info": {"question": prompt}, "reward_router_address": None}
    assert verl.compute_score("math", ground_truth=gold, **asked) == {"score": 0.0, "ungraded": 0.0, "copied": 1.0}
    assert verl.compute_score("math", boxed("2"), "") == {"score": 0.0, "ungraded": 1.0, "copied": 0.0}
    assert verl.compute_score("math", boxed("2"), "2")["score"] == 1.0


def test_the_function_for_verifiers_has_its_verdicts_in_a_thread_too():
    asked = [(boxed("2"), boxed("2.0")), (None, "2"), ("<think>" + boxed("2"), "2"), ("2", "2"), (boxed("2"), "")]
    with ThreadPoolExecutor(1) as thread:
        scores = [*thread.map(lambda one: verifiers.verify_boxed_math_answer(*one, timeout_seconds=5), asked)]
    assert scores == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert [verifiers.ungraded(*one) for one in asked] == [0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "text, answer",
    [
        ("so \\boxed{24}.\nThe answer is $25$.", "24"), ("The final answer is $24$. I hope it is correct.", "24"),
        ("<think>$25$</think>It is \\[x+1\\]", "x+1"), ("It costs 1,234.5, or more.", "1,234.5"), ("24 cm", "24 cm"),
        ("\\frac{1}{2}", "\\frac{1}{2}"), ("<think>$25$", None), ("", None),
    ],
)  # fmt: skip
def test_the_answer_that_a_harness_gets(text, answer):
    assert math_verify.parse(text, parsing_timeout=None) == ([answer] if answer else [])


def test_a_harness_gets_true_or_false():
    settings = math_verify.LatexExtractionConfig(boxed_match_priority=0)
    gold = math_verify.parse("\\boxed{\\frac{1}{2}}", extraction_config=[settings])
    assert math_verify.verify(gold, math_verify.parse("It is $0.5$."), float_rounding=6) is True
    assert math_verify.verify(gold[0], "0.5", timeout_seconds=None) is True
    assert not any(
        math_verify.verify(*pair) for pair in ((gold, ["0.4"]), (gold, []), ([], ["0.5"]), (gold, "9^{9^{9^9}}"))
    )


def test_the_file_command(tmp_path):
    rows = [{"prompt": prompt, "response": boxed(answer), "gold": gold} for prompt, answer, gold, _ in ROWS[:4]]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "same_answer", "rows.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    graded = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["score"] for row in graded] == [score for *_, score in ROWS[:4]] and graded[3]["reason"] == "copied"
    summary = "4 responses: 2 incorrect, 1 correct, 1 ungraded (1 exact, 1 different, 1 no_gold, 1 copied)\n"
    assert (done.returncode, done.stderr) == (0, summary)
    with file.open() as lines:
        piped = subprocess.run([*command[:-1], "-"], stdin=lines, cwd=tmp_path, capture_output=True, text=True)
    assert piped.stdout == done.stdout
    file.write_text('{"response": null, "gold": "2"}\n' * 5_000)
    head = subprocess.run(
        ["bash", "-c", '"$@" | head -1', "bash", *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert json.loads(head.stdout)["reason"] == "no_answer" and head.stderr == ""
    file.write_text('{"response": "2"}\n{"response": "2", "gold": "2"}\n')  # a bad row ends nothing
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (1, "no_answer")
    told = "same_answer: error: rows.jsonl:1: no JSON object with response and gold\n1 rows were left out\n"
    assert done.stderr.endswith(told) and done.stderr.startswith("1 responses: 1 incorrect")


def test_the_readme_runs_as_pasted(capsys):
    page = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    code, names = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {}
    exec(code, names)
    assert capsys.readouterr().out == "correct\n"
    first, last = re.findall(r"# (Verdict\(.*\))", code)  # what the page says that two calls return
    assert (str(names["verdict"]), str(eval(code.splitlines()[-1], names))) == (first, last)
