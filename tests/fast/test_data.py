"""Preparing a training set: formats understood, rows dropped for a reason, files whole or absent."""

import hashlib
import json
from collections import Counter

import contamination
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import letters

from real_openrlhf.base.files import write_jsonl
from real_openrlhf.cli import main
from real_openrlhf.data import command as cleaning
from real_openrlhf.data.problems import BOXED, Problem, bare_problem, read_problems, token_ids
from real_openrlhf.data.sources import HubDataset, read_hub

DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
TEMPLATES = [
    "{}",
    "{} Let's think step by step and output the final answer within \\boxed{{}}.",
    "{}\n\nLet's think step by step and output the final answer within \\boxed{{}}.",
    "{}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
    DAPO,
]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def problems(*rows):
    return list(read_problems(rows))


# --- understanding rows


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_taken_off_whole(template):
    # starts and ends with letters of the instructions: a character-set strip would eat them
    text = "Solve the form: what is $\\boxed{x}$ in the answer?"
    assert bare_problem(template.format(text)) == text


@settings(deadline=None, derandomize=True, database=None)  # the machine may be busy
@given(st.text())
def test_the_boxed_template_comes_off_exactly_as_it_went_on(text):
    assert bare_problem(BOXED.format(text)) == text


@pytest.mark.parametrize(
    ("value", "golds"),
    [
        ("025", ["025"]),
        (142.0, ["142"]),
        (0.5, ["0.5"]),
        (["9.6\n", "9.60"], ["9.6", "9.60"]),
        (["2", "2 "], ["2"]),
        ('["1/2", "0.5"]', ["1/2", "0.5"]),
        ("[0,1]", ["[0,1]"]),  # an interval, though it parses as JSON
        ("  ", []),
        (None, []),
        (float("nan"), []),
        ([], []),
    ],
)
def test_a_gold_of_any_type_becomes_texts(value, golds):
    (problem,) = problems({"problem": "p", "answer": value})
    assert json.loads(problem.label) == golds


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "What?", "answer": "7"},
        {"question": "What?", "final_answer": ["7"]},
        {"Problem": "What?", "Answer": 7},
        {"prompt": DAPO.format("What?"), "solution": "7", "reward_model": {"ground_truth": "7"}},
        {"prompt": [{"role": "user", "content": BOXED.format("What?")}], "label": '["7"]'},
        {"prompt": [{"role": "user", "content": "What?"}], "label": 7.0},
        {"question": "What?", "answer": "It is 3 and 4.\n#### 7"},
    ],
)
def test_columns_of_known_data_sets(row):
    assert problems(row) == [Problem(0, "What?", ("7",))]


def test_a_system_message_stays_and_an_answer_behind_the_question_does_not():
    chat = [
        {"role": role, "content": text} for role, text in (("system", "Be."), ("user", "What?"), ("assistant", "7"))
    ]
    (problem,) = problems({"messages": chat, "label": "7"})
    assert problem == Problem(0, "What?", ("7",), system="Be.")
    assert problem.record("x")["prompt"] == [chat[0], {"role": "user", "content": BOXED.format("What?")}]
    assert problem.record("x", "none")["prompt"] == chat[:2]
    assert problem.key != problems({"messages": chat[1:], "label": "7"})[0].key


CAPITALS = [
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Capital of {name}?"}],
     "answer": city}
    for name, city in (("France", "Paris"), ("Spain", "Madrid"))
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "last", "said"),
    [
        ([], "Capital of France?", "the answers are no numbers or formulas, so prompts are as they are"),
        (["--template", "boxed"], BOXED.format("Capital of France?"), "prompts ask for the answer in \\boxed{}"),
        (["--template", "Q: {}\nA:"], "Q: Capital of France?\nA:", "prompts are in the template"),
    ],
)
def test_data_that_are_not_mathematics_get_no_box_unless_asked(tmp_path, capsys, words, last, said):
    source = write_rows(tmp_path / "x.jsonl", CAPITALS)
    assert main(["data", str(source), "--out", str(tmp_path / "o.jsonl"), *words]) == 0
    assert lines(tmp_path / "o.jsonl")[0]["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": last},
    ]
    assert said in capsys.readouterr().out


# --- cleaning


def test_duplicates_and_conflicts_add_up():
    def row(text, *golds):
        return Problem(next(number), text, golds)

    number = iter(range(100))
    given_rows = [
        row("cafe\u0301  one\n", "1"),
        row("caf\u00e9 one", "1"),  # the same text composed otherwise
        row("two", "2"),
        row("two", "2.0"),  # agrees
        row("three", "3"),
        row("three", "4"),
        row("three", "3"),
        row(" ", "5"),
        row("six"),
    ]
    selection = cleaning.distinct(given_rows, lambda one, other: float(one.golds[0]) == float(other.golds[0]))
    assert [problem.row for problem in selection.kept] == [0, 2]
    assert selection.counts == Counter(
        {cleaning.DUPLICATE: 2, cleaning.CONFLICT: 3, cleaning.NO_PROBLEM: 1, cleaning.NO_GOLD: 1}
    )
    assert len(selection.kept) + selection.counts.total() == len(given_rows)
    assert [(entry["row"], entry["reason"]) for entry in selection.dropped] == [
        (7, cleaning.NO_PROBLEM),
        (8, cleaning.NO_GOLD),
        (4, cleaning.CONFLICT),
    ]


# --- the command


ROWS = [
    {"problem": "One plus one?", "answer": "2"},
    {"problem": "One  plus one?", "answer": 2},
    {"problem": "Half of one?", "answer": "\\frac{1}{2}"},
    {"problem": "No gold here", "answer": None},
    {"problem": "Two golds?", "answer": ["3", "4"]},
    {"problem": "Bad gold?", "answer": "\\frac{1}{"},
]


def write_rows(path, rows):
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    return path


def test_golds_in_the_form_of_their_data_set_are_dropped_with_the_reason(tmp_path):
    rows = [{"problem": f"Sum {n}?", "answer": gold} for n, gold in enumerate(("9*2 = 18 #### 18", "['3']", "[0, 1]"))]
    out = tmp_path / "train.jsonl"
    assert main(["data", str(write_rows(tmp_path / "raw.jsonl", rows)), "--out", str(out)]) == 0
    assert [row["id"] for row in lines(out)] == ["raw-2"]
    assert all("####" in str(row) for row in lines(out.with_suffix(".dropped.jsonl")))


def test_a_file_becomes_openrlhf_rows(tmp_path, capsys):
    source = write_rows(tmp_path / "sums.jsonl", ROWS)
    out = tmp_path / "deep" / "train.jsonl"
    assert main(["data", str(source), "--out", str(out)]) == 0
    kept = {0: ("One plus one?", '["2"]'), 2: ("Half of one?", '["\\\\frac{1}{2}"]'), 4: ("Two golds?", '["3", "4"]')}
    end = " Let's think step by step and output the final answer within \\boxed{}."
    assert lines(out) == [
        {
            "prompt": [{"role": "user", "content": text + end}],
            "label": label,
            "datasource": "sums",
            "id": f"sums-{row}",
        }
        for row, (text, label) in kept.items()
    ]
    dropped = [(row["row"], row["reason"]) for row in lines(out.with_suffix(".dropped.jsonl"))]
    assert dropped == [(3, "no gold answer"), (5, cleaning.UNVERIFIED)]
    manifest = json.loads(out.with_suffix(".manifest.json").read_text())
    reasons = {"no gold answer": 1, "same problem text as an earlier row": 1, cleaning.UNVERIFIED: 1}
    assert manifest["rows"] == {"read": 6, "kept": 3, "written": 3, "dropped": reasons}
    assert manifest["source"]["files"] == {str(source): hashlib.sha256(source.read_bytes()).hexdigest()}
    assert manifest["sha256"]["train.jsonl"] == hashlib.sha256(out.read_bytes()).hexdigest()
    printed = capsys.readouterr().out
    assert "6 rows read, 3 kept" in printed


def test_problems_of_a_benchmark_are_listed_and_left_out_by_the_example(tmp_path, benchmarks, capsys):
    asked = "As aime24 asks what the sum of 7 and of 7 is, exactly?"
    source = write_rows(tmp_path / "raw.jsonl", [{"problem": asked, "answer": "14"}, ROWS[0]])
    assert main(["data", str(source), "--out", str(tmp_path / "train.jsonl")]) == 0
    (tmp_path / "prepared").mkdir()
    words = ["data", "aime24", "--source", str(benchmarks), "--out", str(tmp_path / "prepared/aime24.jsonl")]
    assert main(words) == 0
    contamination.main(
        [str(tmp_path / "train.jsonl"), str(tmp_path / "prepared"), "--out", str(tmp_path / "clean.jsonl")]
    )
    assert "raw-0 contains 100% of aime24-7" in capsys.readouterr().out
    assert [row["id"] for row in lines(tmp_path / "clean.jsonl")] == ["raw-1"]


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_a_file_with_a_byte_order_mark_is_read(tmp_path, name):
    """OpenRLHF reads it, and some editors write one."""
    source = write_rows(tmp_path / name, ROWS)
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes())
    assert main(["data", str(source), "--out", str(tmp_path / "o.jsonl")]) == 0
    assert len(lines(tmp_path / "o.jsonl")) == 3
    source.write_bytes(b'\xef\xbb\xbf{"response": "7", "label": "7"}')
    assert main(["grade", "--input", str(source), "--output", str(tmp_path / "graded.jsonl")]) == 0


def test_prompts_as_token_ids_have_one_bos():
    tokenizer, prompt = letters(), [{"role": "user", "content": "ab"}]
    a_and_b = tokenizer.convert_tokens_to_ids(["a", "b"])
    assert token_ids(tokenizer, prompt) == [1, 2, *a_and_b, 3]
    assert token_ids(tokenizer, "ab") == [1, *a_and_b]
    tokenizer.chat_template = None
    assert token_ids(tokenizer, prompt) == [1, *a_and_b]


def test_long_prompts_are_dropped_not_cut(tmp_path):
    letters().save_pretrained(tmp_path / "tokenizer")
    source = write_rows(tmp_path / "x.jsonl", [{"problem": "p" * n, "answer": "1"} for n in (10, 20, 21, 40)])
    limit = 20 + len(BOXED.format("")) + len(["<bos>", "<user>", "<bot>"])
    options = ["--tokenizer", str(tmp_path / "tokenizer"), "--max-prompt-tokens", str(limit)]
    assert main(["data", str(source), "--out", str(tmp_path / "o.jsonl"), *options]) == 0
    assert [row["prompt"][0]["content"].count("pppp") for row in lines(tmp_path / "o.jsonl")] == [2, 5]
    details = [row["detail"] for row in lines(tmp_path / "o.dropped.jsonl")]
    assert details == [f"{limit + more} tokens" for more in (1, 20)]


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    out = tmp_path / "o.jsonl"
    write_jsonl(out, [{"a": 1}])

    def interrupted():
        yield {"a": 2}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_jsonl(out, interrupted())
    assert lines(out) == [{"a": 1}]
    assert list(tmp_path.iterdir()) == [out]


def test_the_hub_path_reads_a_data_set(tmp_path, monkeypatch):
    """`datasets` treats a folder like a repository, so everything but the download is the real path."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    repository = tmp_path / "repository"
    repository.mkdir()
    write_rows(repository / "train.jsonl", [{"problem": "One?", "answer": "1"}, {"problem": "Two?", "answer": "2"}])
    read = read_hub(HubDataset(str(repository), "train"))
    assert list(read_problems(read.rows)) == [Problem(0, "One?", ("1",)), Problem(1, "Two?", ("2",))]
