"""`real-openrlhf reward`: shipped files are right, and each fault of a broken one is named."""

from pathlib import Path

import pytest

from real_openrlhf import rewards
from real_openrlhf.cli import main

SHIPPED = Path(rewards.__file__).parent
HEAD = r"""
import itertools, re
turns = itertools.count()
def reward_func(queries, prompts, labels):
    query, label = queries[0], labels[0]
    found = re.findall(r"boxed{(\w+)}", query)
"""
GOOD = HEAD + "    return {'rewards': float(found[-1:] == [label])}\n"
BROKEN = {
    "it cannot be loaded: ZeroDivisionError": "1 / 0\n" + GOOD,
    "it fails (raises) on empty: IndexError": HEAD + "    return {'rewards': float(found[-1] == label)}",
    "it fails (no_reward) on empty": HEAD + "    return [1.0]",
    "it calls these right: empty": HEAD + "    return {'rewards': 1.0}",
    "it does not read the label: 24 of 24": HEAD + "    return {'rewards': float(bool(found))}",
    "expected answers wrong, in a box": HEAD + "    return {'rewards': float('#### ' + label in query)}",
    "differently called again": HEAD + "    return {'rewards': float(found[-1:] == [label] and next(turns) % 7 > 0)}",
    "no verdict on 100% of them": HEAD + "    return {'rewards': 0.0, 'scores': float('nan')}",
}


def told(capsys, *words) -> tuple[int, str]:
    code = main(["reward", *map(str, words)])
    return code, capsys.readouterr().out


def test_the_files_that_come_with_the_package(capsys, tmp_path):
    assert main(["data", "gym", "chain_sum", "--out", str(tmp_path / "sums"), "--train", "30", "--test", "2"]) == 0
    gym = (SHIPPED / "gym_reward.py", "--data", tmp_path / "sums" / "train.jsonl")
    for words in ((SHIPPED / "math_reward.py",), gym):
        code, said = told(capsys, *words)
        assert code == 0 and "WRONG" not in said and "24 of 24 expected answers are right" in said, said


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_refused_with_its_fault(capsys, tmp_path, fault):
    (tmp_path / "good.py").write_text(GOOD)
    assert told(capsys, tmp_path / "good.py")[0] == 0
    (tmp_path / "broken.py").write_text(BROKEN[fault])
    code, said = told(capsys, tmp_path / "broken.py")
    assert code == 2 and fault in said, said


def test_a_file_without_the_function_and_data_without_labels(capsys, tmp_path, refused):
    (tmp_path / "mine.py").write_text("x = 1\n")
    assert "has no reward_func" in told(capsys, tmp_path / "mine.py")[1]
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1="}\n')
    assert "need `prompt` and `label`" in refused("reward", tmp_path / "mine.py", "--data", tmp_path / "rows.jsonl")
