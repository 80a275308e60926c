"""Each bad input is one line and exit code 2, and changes nothing.

The table says what is done to a folder in which a run would start, the command line, and the line that is expected.
Nothing stands in for training: an input that is accepted starts it, and fails the test.
"""

import contextlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
import pytest

from real_openrlhf import rewards
from real_openrlhf.cli import main
from real_openrlhf.evaluation.questions import file_records
from real_openrlhf.training import tiny_task

ROWS = 64
ANSWER = {"role": "assistant", "content": "1"}
GOOD = {"prompt": "12=", "label": "21"}
RUN = {"recipe": "cpu", "algo": "real", "seed": 42, "status": "failed", "flags": {}, "objective": {}, "name": "mine"}
Spoil = Callable[[Path], object]  # a folder with rows.jsonl and model/


@dataclass(frozen=True)
class Case:
    name: str
    spoil: Spoil
    expected: str  # in the line that is told
    words: str = ""
    nobody: bool = False  # asked by a user who may not do everything


def _row(**changes: object) -> str:
    return json.dumps(GOOD | changes)


def _rows(last: bytes | str) -> Spoil:
    """Good rows, and then this one."""
    text = last.encode() if isinstance(last, str) else last
    return _file("rows.jsonl", (json.dumps(GOOD).encode() + b"\n") * ROWS + text + b"\n")


def _file(name: str, content: bytes | str) -> Spoil:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def _parquet(row: dict, count: int) -> Spoil:
    return lambda folder: pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([row] * count), folder / "rows.parquet"
    )


def _folder(name: str, mode: int = 0o755) -> Spoil:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(mode)

    return make


def _run(text: str = "", **changes: object) -> Spoil:
    def make(folder: Path) -> None:
        _folder("runs/mine")(folder)
        (folder / "runs/mine/run.json").write_text(text or json.dumps(RUN | changes))

    return make


def _gone(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def _nothing(folder: Path) -> None:
    pass


MATH_REWARD = f"--reward.remote_url '{Path(rewards.__file__).parent / 'math_reward.py'}'"
DATA = [
    Case("data missing", _gone("rows.jsonl"), "rows.jsonl does not exist. Name a file, OWNER/NAME, or a set"),
    Case("a folder without data", _folder("empty"), "empty is a folder without a data set. Name", "--data empty"),
    Case("data empty", _file("rows.jsonl", ""), "rows.jsonl is empty. Download it again"),
    Case("data of one row", _file("rows.jsonl", _row() + "\n"), "1 row of training data cannot fill --rollout"),
    Case("data unreadable", lambda folder: (folder / "rows.jsonl").chmod(0), "Permission denied. Name", nobody=True),
    Case("a set that nobody knows", _nothing, "dapo17 does not exist. Did you mean dapo17k? Name a file",
         "--data dapo17"),
    Case("a file of no known format", _file("rows.txt", "12="), "has the ending '.txt', by", "--data rows.txt"),
    Case("a table that is none", _file("rows.parquet", "12="), "rows.parquet cannot be read (", "--data rows.parquet"),
    Case("a table without labels", _parquet({"prompt": "12=", "answer": "21"}, ROWS),
         "row 1 has no column 'label', it has prompt, answer. Is it --data.label_key answer? (63 more like it)",
         "--data rows.parquet"),
    Case("a CSV line with more values", _file("rows.csv", "prompt,label\n12=,21\n12=,2,1\n"),
         "cannot be read (Error tokenizing data. C error: Expected 2 fields in line 3, saw 3)",
         "--data rows.csv"),
    Case("labels as GSM8K has them", _file("rows.jsonl", (_row(label="9*2 = 18\n#### 18") + "\n") * ROWS),
         "#### 18' looks raw: write the answer alone, as `real-openrlhf data FILE --out OUT.jsonl` does",
         MATH_REWARD),
    Case("a line cut off", _rows('{"prompt": "1=", "lab'),
         "cannot be read (line 65: "),
    Case("a list for a row", _rows('["12=", "21"]'), "row 65 is a list, expected an object"),
    Case("a million brackets", _rows("[" * 1_000_000), "cannot be read (line 65: it is nested too deep)"),
    Case("a number of 5,000 digits",
         _rows(f'{{"prompt": "1=", "label": {"9" * 5000}}}'), "cannot be read (line 65: Exceeds"),
    Case("broken UTF-8", _rows(b'{"prompt": "1=\xff", "label": "1"}'), "cannot be read ('utf-8' codec"),
    Case("half a prompt", _rows(r'{"prompt": "\ud800", "label": "1"}'), "cannot be read (line 65: half a character"),
    Case("half a label", _rows(r'{"prompt": "1=", "label": "\udc00"}'), "cannot be read (line 65: half a character"),
    Case("a prompt that is a number", _file("rows.jsonl", _row(prompt=1) + "\n"), "row 1 has a prompt that is no"),
    Case("a prompt that is empty", _rows(_row(prompt="")), "row 65 has a prompt that is no text, or an empty one"),
    Case("a chat without a template", _file("rows.jsonl", _row(prompt=[{"role": "user", "content": "1="}]) + "\n"),
         "row 1 has a chat for a prompt. Add --data.apply_chat_template"),
    Case("a chat with its answer", _rows(_row(prompt=[{"role": "user", "content": "1="}, ANSWER])),
         "row 65 has a chat that ends with the assistant's message", "--data.apply_chat_template --no-eval.dataset"),
    Case("prompts that the model cannot read", _file("rows.jsonl", (_row(prompt="What is 97 + 3?") + "\n") * ROWS),
         "rows.jsonl: the model cannot read its prompts, 80% of their tokens are <unk>: 'What is 97 + 3?'. Name"),
    Case("labels that the model cannot write", _file("rows.jsonl", (_row(label="\\pi") + "\n") * ROWS),
         "rows.jsonl: the model cannot write its labels, 100% of their tokens are <unk>: '\\\\pi'.", MATH_REWARD),
    Case("no label at all", _file("rows.jsonl", (_row(label="") + "\n") * ROWS), "no row has a label in 'label'"),
    Case("a prompt that leaves no room for a response", _rows(_row(prompt="1" * 19)), "row 65 has a prompt that does"),
    Case("a line of 10 MB", _rows(_row(prompt="1" * 10_000_000)), "row 65 has a prompt that does not fit into"),
]  # fmt: skip

CONFIG = "model/config.json"
MODELS = [
    Case("a hub id out of reach", _nothing, "no folder here, not in the cache, and the hub does not give it",
         "--model no/such-model"),
    Case("no configuration", _gone(CONFIG), "has no readable config.json"),
    Case("a broken configuration", _file(CONFIG, "{"), "has no readable config.json (Expecting property name"),
    Case("a model of another owner", lambda folder: (folder / "model").chmod(0o700),
         "has no readable config.json (Permission denied", nobody=True),
]  # fmt: skip

NAMED, RESUMED = "--run-name mine", "--run-name mine --resume"
FOLDERS = [
    Case("a run that is larger than the disk", _nothing, "the run folder will take ",
         "--max-steps 10000000 --ckpt.save_steps 1 --ckpt.max_num 10000000"),
    Case("runs of another user", _folder("runs"), "runs: Permission denied. Name another --runs-dir", nobody=True),
    Case("a name out of the folder", _nothing, "--run-name '..': use letters", "--run-name .."),
    Case("a name that is taken", _folder("runs/mine"), "runs/mine exists, and is not a run. Move it away", NAMED),
    Case("a name of another run", _run(), "runs/mine exists already. Continue it with --resume", NAMED),
    Case("a run without a record", _folder("runs/mine"), "has no run.json, so it is not a run", RESUMED),
    Case("a record that is no JSON", _run("{"), "run.json is not JSON", RESUMED),
    Case("a record with a list for a seed", _run(seed=[1]), "run.json lacks seed", RESUMED),
    Case("a record of another method", _run(algo="grpo"), "is a run of cpu-grpo-s42, not", f"{RESUMED} --algo real"),
]  # fmt: skip


def _reward(what: str, text: bytes | str, expected: str) -> Case:
    return Case(f"reward {what}", _file("reward.py", text), expected, "--reward.remote_url reward.py")


REWARDS = [
    Case("reward missing", _nothing, "reward.py does not exist", "--reward.remote_url reward.py"),
    _reward("broken", "def reward_func(:\n", "is not Python (invalid syntax"),
    _reward("binary", b"\x00\xff" * 99, "reward.py "),
    _reward("to be awaited", "async def reward_func(queries, prompts, labels): ...", "has no reward_func"),
    _reward("of another name", "def reward(queries, prompts, labels): ...", "has no reward_func"),
    _reward("of two arguments", "def reward_func(queries, prompts): ...", "line 1: reward_func is called with 3"),
    _reward("of four arguments", "\ndef reward_func(a, b, c, d, e=1): ...", "line 2: reward_func is called with 3"),
    _reward("of keywords", "def reward_func(a, b, c, *, of): ...", "line 1: reward_func is called with 3"),
]


@pytest.fixture
def world(random_model, monkeypatch):
    """A folder with good files, open to other users as pytest's own are not; no hub, no cluster, no cache."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        monkeypatch.chdir(folder)
        for variable, where in {"REAL_CACHE": "cache", "HF_HUB_CACHE": "hub"}.items():
            monkeypatch.setenv(variable, str(folder / where))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        shutil.copytree(random_model, folder / "model")
        for path in (folder, folder / "model", *(folder / "model").iterdir()):
            path.chmod(0o755)
        (folder / "rows.jsonl").write_text((json.dumps(GOOD) + "\n") * ROWS)
        yield folder


@contextlib.contextmanager
def as_nobody(wanted: bool):
    """The superuser may read and write what is forbidden."""
    privileged = wanted and os.geteuid() == 0
    if privileged:
        os.seteuid(65534)
    try:
        yield
    finally:
        if privileged:
            os.seteuid(0)


def train(words: str) -> int:
    given = shlex.split(words)
    usual = {"--data": "rows.jsonl", "--model": "model", "--max-steps": "1"}
    return main(
        ["train", *(word for flag, name in usual.items() if flag not in given for word in (flag, name)), *given]
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and folder below, as it is."""
    return {str(path): path.read_bytes() if path.is_file() else b"folder" for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("case", [*DATA, *MODELS, *FOLDERS, *REWARDS], ids=lambda case: case.name.replace(" ", "_"))
def test_bad_input_is_one_line(case, world, capsys):
    if case.nobody:  # who may not read the modules of a Python in /root: they are imported first
        assert train("--dry-run") == 0 and capsys.readouterr()
    case.spoil(world)
    before = contents(world)
    for more in (" --dry-run", ""):  # a dry run says what the run says
        with as_nobody(case.nobody):
            code = train(case.words + more)
        printed = capsys.readouterr()
        assert code == 2, printed.out + printed.err
        told = [line for line in printed.err.splitlines() if case.expected in line]
        assert printed.out == ""  # the error is first
        assert len(told) == 1 and told[0].startswith("real-openrlhf train: error: "), printed.err
        assert "Traceback" not in printed.out + printed.err and len(told[0]) < 2500
        assert contents(world) == before


def test_what_is_not_spoiled_is_accepted_and_weak_rows_are_told(world, capsys):
    """Otherwise the table would prove nothing."""
    assert train("--dry-run") == 0, capsys.readouterr().err
    rows = [GOOD | {"prompt": f"{number}="} for number in range(ROWS)] + [GOOD | {"prompt": "1=", "label": None}]
    (world / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert train("--dry-run") == 0
    assert "rows.jsonl: 1 of 65 rows have no label" in (told := capsys.readouterr().out)
    assert "rows.jsonl: 1 of 65 rows repeat a prompt; 1 of 64 prompts have several labels" in told
    (world / "mine.py").write_text("def reward_func(queries, *more, of=1): ...")
    labels = [1, *["letters"] * 3] * (ROWS // 4)  # which a reward function of one's own may well translate
    texts = [json.dumps(row | {"label": label}) + "\n" for row, label in zip(rows, labels, strict=False)]
    (world / "rows.jsonl").write_text("".join(texts))
    assert train("--reward.remote_url mine.py --no-eval.dataset --dry-run") == 0
    printed = capsys.readouterr().out
    assert "labels are no text but int, and " in printed and "mine.py gets them so" in printed
    assert "rows.jsonl: the model cannot write its labels, 9" in printed
    assert printed.endswith("Flags OK. Not checked: mine.py (not run). This machine can run it.\n")


@pytest.mark.parametrize("there", [False, True])  # else the run would make it
def test_where_the_recipes_validation_lacks_ones_own_columns_the_way_out_is_named(world, capsys, there):
    (world / "rows.jsonl").write_text('{"question": "12=", "answer": "21"}\n' * ROWS)
    mine = "--data.input_key question --data.label_key answer --dry-run"
    validation = tiny_task.task_folder() / "eval.jsonl"
    if there:
        validation.parent.mkdir(parents=True)
        validation.write_text(json.dumps(GOOD) + "\n")
    assert train(mine) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "give --eval.dataset FILE with the columns of your --data, or --no-eval.dataset" in told
    for way in ("--eval.dataset rows.jsonl", "--no-eval.dataset"):
        assert train(f"{mine} {way}") == 0, capsys.readouterr().err


def test_all_faults_of_a_file_are_told_at_once_the_first_of_each_kind(world, capsys):
    rows = [
        {"messages": [{"role": "user", "content": "1="}], "answer": "1"},
        {"messages": [{"role": "user", "content": "1" * 40}], "answer": "1"},
        {"messages": [{"role": "user", "content": ""}], "answer": "1"},
    ]
    (world / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 30))
    assert train("--dry-run") == 2
    told = [line for line in capsys.readouterr().err.splitlines() if "rows.jsonl, row" in line]
    hints = "--data.input_key messages?", "--data.label_key answer?"
    assert len(told) == 2 and all(
        f"Is it {hint} (89 more like it)" in line for hint, line in zip(hints, told, strict=True)
    )
    assert train("--data.input_key messages --data.label_key answer --no-eval.dataset --dry-run") == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "row 1 has a chat for a prompt. Add --data.apply_chat_template" in told and "(89 more like it)" in told


@pytest.mark.parametrize(
    "name, head, row", [("it.csv", "prompt,label\n", "12=,21\n"), ("it.jsonl", "", '{"prompt": "12=", "label": 21}\n')]
)
def test_one_file_has_one_verdict_in_all_commands(world, capsys, name, head, row):
    (world / name).write_text(head + row * ROWS)
    assert train(f"--data {name} --dry-run") == 0, capsys.readouterr().err
    assert main(["data", name, "--out", "made.jsonl"]) == 0
    assert [record["label"] for record in file_records(world / name)] == ["21"] * ROWS


@pytest.mark.parametrize("name", ["rows.parquet", "rows.json", "rows.csv"])
def test_tables_and_lists_are_read_as_lines_are(world, capsys, name):
    rows = [GOOD | {"prompt": f"{number}="} for number in range(300)]
    if name == "rows.json":
        (world / name).write_text(json.dumps(rows))
    elif name == "rows.csv":
        (world / name).write_text("prompt,label\n" + "".join(f"{row['prompt']},{row['label']}\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), world / name)
    assert train(f"--data {name} --max-steps 18 --dry-run") == 0, capsys.readouterr().err
    assert "--train.num_episodes 2" in (said := capsys.readouterr().out) and "passes over 300 rows" in said
    assert "were not checked" not in said


def test_a_set_of_the_hub_keeps_its_name(world, capsys):
    assert train("--data openai/gsm8k@main --train.num_episodes 1 --dry-run") == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "--data.prompt_dataset openai/gsm8k@main " in said
    assert "its rows on the hub were not checked. `real-openrlhf data openai/gsm8k@main" in said
