"""The audit of graders: what it asks, what it finds in a bad grader, and what it says where it cannot."""

import json
import subprocess
import sys

import pytest

from same_answer import equal
from same_answer.audit_inputs import questions

BAD = """
import threading, time

async def grade(gold, prediction):
    if not gold:
        return None
    answer = prediction.rpartition("boxed{")[2].rstrip("}. ")
    if "5^5" in answer:
        time.sleep(1e9)
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("signal only works in the main thread")
    try:
        return {"score": 2.0 * (eval(answer) == eval(gold)) - 1}
    except Exception:
        return {"score": -1.0}

def bare(pred, gold):
    return pred.strip("$ ") == gold, "and why"

def of_query(queries, prompts, labels):
    return {"rewards": float(queries[0].partition(prompts[0])[2] == f"The answer is \\\\boxed{{{labels[0]}}}.")}

def no_grader(pred, gold):
    return 1
"""


def audited(folder, *words: str) -> subprocess.CompletedProcess:
    (folder / "bad.py").write_text(BAD)
    command = [sys.executable, "-m", "same_answer.audit", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_same_answer_is_wrong_on_percentages_alone():
    """A rule: EQUALITY.md."""
    pairs = [question for question in questions() if question.kind in ("missed", "accepted")]
    wrong = [one for one in pairs if equal(one.answer, one.gold).correct != (one.kind == "missed")]
    assert len(pairs) > 600 and {one.name for one in wrong} == {r"A\%"}


def test_a_bad_grader_is_told_all_that_it_does(tmp_path):
    done = audited(tmp_path, "bad:grade", "--errors")
    assert done.returncode == 0, done.stderr
    heading, _, bad = (line.strip("|").split("|") for line in done.stdout.splitlines()[:3])
    assert heading[4:] == ["hard, over 5 s or broken", "Python, executed", "in a thread, wrong", "unreadable gold, 0"]
    assert bad[2] == "0 of 145" and bad[5:] == ["12 of 24", "4 of 4", "3 of 4"]
    assert int(bad[1].split()[0]) > 100 and bad[4] != "0 of 8"
    assert "bad:grade: called as f(gold, response); asked " in done.stdout
    assert "executed (open('ran','w')): \"open('ran','w')\" for '5': executed\n" in done.stdout


def test_pairs_of_ones_own(tmp_path):
    rows = [{"gold": "2", "answer": "2", "equal": True}, {"gold": "2", "response": r"\boxed{3}", "equal": False},
            {"gold": "0.5", "response": r"so \boxed{1/2}", "equal": True}]  # fmt: skip
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    missed = {"bad:bare": 1, "same_answer": 0, "bad:of_query": 1}
    lines = audited(tmp_path, *missed, "--pairs", "pairs.jsonl").stdout.splitlines()
    assert lines[2:5] == [f"|{name}|{count} of 2|0 of 1|0 of 3|" for name, count in missed.items()]
    assert lines[6] == "bad:bare: called as f(answer, gold); asked 3 of 3"
    assert lines[8] == "bad:of_query: called as f(['Solve: ' + response], ['Solve: '], [gold]); asked 3 of 3"
    (tmp_path / "pairs.jsonl").write_text('{"gold": "2", "equal": true}\n')
    assert "a row of pairs.jsonl has no 'answer'" in audited(tmp_path, "bad:bare", "--pairs", "pairs.jsonl").stderr


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        ("nowhere:grade", "no module 'nowhere'. Give MODULE:FUNCTION, in the folder of MODULE.py"),
        ("bad:grad", "no function 'grad' in bad. Give bad:FUNCTION, of grade, bare, of_query, no_grader"),
        ("bad", "no function '' in bad. Give bad:FUNCTION, of grade, bare, of_query, no_grader"),
        ("needs:grade", "needs needs a_package, which is not installed"),
        ("broken:grade", "broken:grade: NameError: name 'x' is not defined"),
        (
            "bad:no_grader",
            "Write a function of (response, gold) that calls it. Tried:\n  f(response, gold): [1.0, 1.0",
        ),
    ],
)
def test_what_cannot_be_audited_is_told_with_what_to_type(tmp_path, grader, message):
    (tmp_path / "needs.py").write_text("import a_package")
    (tmp_path / "broken.py").write_text("x")
    done = audited(tmp_path, grader)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("same_answer.audit: error: ")
    assert message in done.stderr
