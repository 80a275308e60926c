"""Each bad input is one line and exit code 2, and changes nothing.

The table says what is done to a folder in which a run would start, the command line, and the line that is expected.
Nothing stands in for training: an input that is accepted starts it, and fails the test.
"""

import contextlib
import json
import os
import shlex
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
import pytest
from safetensors.torch import load_file, save_file

from real_openrlhf import rewards
from real_openrlhf.base.parsing import rejoined
from real_openrlhf.cli import main
from real_openrlhf.training.tasks.reverse_task import TASK

ROWS = 64
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


def _gone(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def _folder(name: str, mode: int = 0o755) -> Spoil:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(mode)

    return make


def _json_of(name: str, **changes: object) -> Spoil:
    """Keys of a JSON object set, or taken out where None is given."""

    def change(folder: Path) -> None:
        value = json.loads((folder / name).read_text()) | changes
        (folder / name).write_text(json.dumps({key: item for key, item in value.items() if item is not None}))

    return change


def _cut(name: str, keep: int) -> Spoil:
    """A file's first bytes, or without its last ones."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def _sharded(**index: object) -> Spoil:
    def shard(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "model/model-1.safetensors")
        (folder / "model/model.safetensors.index.json").write_text(json.dumps(index))

    return shard


def _without_head(folder: Path) -> None:
    """As a model with a tied head is saved."""
    tensors = load_file(folder / WEIGHTS)
    del tensors["lm_head.weight"]
    save_file(tensors, folder / WEIGHTS)


def _run(text: str = "", **changes: object) -> Spoil:
    def make(folder: Path) -> None:
        _folder("runs/mine")(folder)
        (folder / "runs/mine/run.json").write_text(text or json.dumps(RUN | changes))

    return make


def _nothing(folder: Path) -> None:
    pass


MATH_REWARD = f"--reward.remote_url '{Path(rewards.__file__).parent / 'math_reward.py'}'"
DATA = [
    Case("data missing", _gone("rows.jsonl"), "rows.jsonl does not exist. Name an existing file"),
    Case("data empty", _file("rows.jsonl", ""), "rows.jsonl is empty. Prepare it again"),
    Case("data is a folder", _folder("rows.jsonl"), "rows.jsonl is a folder. Name a file in it"),
    Case("data of one row", _file("rows.jsonl", _row() + "\n"), "1 rows of training data do not fill one"),
    Case("data unreadable", lambda folder: (folder / "rows.jsonl").chmod(0), "cannot be read", nobody=True),
    Case("a table that is missing", _nothing, "rows.parquet does not exist", "--data rows.parquet"),
    Case("a set that nobody knows", _nothing, "dapo17 does not exist. Did you mean dapo17k? Name an existing file",
         "--data dapo17"),
    Case("a folder without data", _folder("empty"), "empty is a folder. Name a file in it", "--data empty"),
    Case("a file of no known format", _file("rows.txt", "12="), "has the ending '.txt', by", "--data rows.txt"),
    Case("a hub id out of reach", _nothing, "nobody/gsm8k is no file here, and the hub cannot be asked",
         "--data nobody/gsm8k"),
    Case("a table that is none", _file("rows.parquet", "12="), "is not a parquet file", "--data rows.parquet"),
    Case("a table of few rows", _parquet(GOOD, 5), "5 rows of training data do not fill one", "--data rows.parquet"),
    Case("a table without labels", _parquet({"prompt": "12=", "answer": "21"}, ROWS),
         "row 1 has no column 'label', it has prompt, answer. Is it --data.label_key answer? (63 more like it)",
         "--data rows.parquet"),
    Case("a CSV file of other columns", _file("rows.csv", "question,answer\n" + "12=,21\n" * ROWS),
         "row 1 has no column 'label', it has question, answer. Is it --data.label_key answer? (63 more like it)",
         "--data rows.csv"),
    Case("a CSV line with more values", _file("rows.csv", "prompt,label\n12=,21\n12=,2,1\n"),
         "is not CSV that OpenRLHF reads (Error tokenizing data. C error: Expected 2 fields in line 3, saw 3)",
         "--data rows.csv"),
    Case("a CSV file of late words", _file("rows.csv", "prompt,label\n" + "12=,21\n" * 10_000 + "12=,x\n"),
         "is not CSV that OpenRLHF reads (Failed to parse string: 'x' as a scalar of type int64)", "--data rows.csv"),
    Case("an empty CSV file", _file("rows.csv", ""), "rows.csv is empty. Prepare it again", "--data rows.csv"),
    Case("a list of five", _file("rows.json", json.dumps([GOOD] * 5)), "5 rows of training data", "--data rows.json"),
    Case("a list with a number", _file("rows.json", json.dumps([GOOD] * ROWS + [7])),
         "Column() changed from object to number in row 65", "--data rows.json"),
    Case("labels as GSM8K has them", _file("rows.jsonl", (_row(label="9*2 = 18\n#### 18") + "\n") * ROWS),
         "#### 18' looks raw: write the answer alone, as `real-openrlhf data FILE --out OUT.jsonl` does",
         MATH_REWARD),
    Case("a line cut off", _rows('{"prompt": "1=", "lab'),
         "is not JSON that OpenRLHF reads (JSON parse error: "),
    Case("a list for a row", _rows('["12=", "21"]'), "Column() changed from object to array in row 65"),
    Case("a million brackets", _rows("[" * 1_000_000), "line 65 is nested too deeply. Write it flatter."),
    Case("a number of 5,000 digits", _rows(f'{{"prompt": "1=", "label": {"9" * 5000}}}'), "to number in row 65"),
    Case("broken UTF-8", _rows(b'{"prompt": "1=\xff", "label": "1"}'), "is not UTF-8 (line 65, byte 15). Save the"),
    Case("half a character", _rows(_row(prompt="1\ud800=")), "The surrogate pair in string is invalid. in row 65"),
    Case("a number that JSON lacks", _rows('{"prompt": "1=", "label": NaN}'), "to number in row 65"),
    Case("a column twice", _rows('{"prompt": "1=", "prompt": "2=", "label": "1"}'), "was specified twice in row 65"),
    Case("no label column", _file("rows.jsonl", '{"prompt": "1="}\n' * ROWS), "row 1 has no column 'label', it"),
    Case("a prompt that is a number", _file("rows.jsonl", _row(prompt=1) + "\n"), "has a number for a prompt"),
    Case("a prompt that is empty", _rows(_row(prompt="")), "row 65 has nothing for a prompt"),
    Case("a chat without a template", _file("rows.jsonl", _row(prompt=[{"role": "user", "content": "1="}]) + "\n"),
         "row 1 has a chat in column 'prompt'. Add --data.apply_chat_template"),
    Case("labels of two kinds", _rows(_row(label=21)), "to number in row 65"),
    Case("no label at all", _file("rows.jsonl", (_row(label="") + "\n") * ROWS), "no row has a label in 'label'"),
    Case("nan for labels", _file("rows.jsonl", (_row(label=float("nan")) + "\n") * ROWS), "no row has a label in"),
    Case("a packed file", _file("rows.jsonl.gz", "12="), "'.gz', by which OpenRLHF knows the format. Unpack or rename",
         "--data rows.jsonl.gz"),
    Case("more than the context", _rows(_row(prompt="1" * 40)), "row 65 has a prompt of 40 tokens, and"),
    Case("a line of 10 MB", _rows(_row(prompt="1" * 10_000_000)), "row 65 has a prompt of 10000000 bytes"),
]  # fmt: skip

CONFIG, WEIGHTS, TOKENIZER = "model/config.json", "model/model.safetensors", "model/tokenizer_config.json"
MODELS = [
    Case("model missing", _nothing, "model nowhere does not exist", "--model nowhere"),
    Case("model is a file", _nothing, "model rows.jsonl is a file. Give an existing folder", "--model rows.jsonl"),
    Case("a hub id out of reach", _nothing, "no folder here, not in the cache, and the hub cannot be asked",
         "--model no/such-model"),
    Case("no configuration", _gone(CONFIG), "is a folder without config.json"),
    Case("a broken configuration", _file(CONFIG, "{"), "config.json is not JSON"),
    Case("a configuration that is a list", _file(CONFIG, "[]"), "config.json is not a JSON object"),
    Case("no weights", _gone(WEIGHTS), "has neither model.safetensors nor model.safetensors.index.json"),
    Case("pickled weights", lambda folder: (folder / WEIGHTS).rename(folder / "model/pytorch_model.bin"),
         "weights are Python pickles (pytorch_model.bin), which can run code"),
    Case("a model of another owner", lambda folder: (folder / "model").chmod(0o700),
         "model/config.json: Permission denied", nobody=True),
    Case("weights cut off", _cut(WEIGHTS, -1000), "or it is cut off ("),
    Case("a header cut off", _cut(WEIGHTS, 100), "is not a safetensors file, or it is cut off"),
    Case("offsets that are none", _file(WEIGHTS, struct.pack("<Q", 8) + b'{"a": 1}'), "is not a safetensors file"),
    Case("a missing shard", _sharded(weight_map={"a": "model-1.safetensors", "b": "model-2.safetensors"}),
         "model-2.safetensors, which model.safetensors.index.json names, is missing"),
    Case("a shard elsewhere", _sharded(weight_map={"a": "../rows.jsonl"}), "../rows.jsonl, which"),
    Case("an index without a map", _sharded(metadata={}), "has no weight_map. Download the model again"),
    Case("a tied head that is not", _without_head, "no file has lm_head.weight: the head would be random"),
    Case("weights of another model", _json_of(CONFIG, vocab_size=999), "and config.json says vocab_size 999"),
    Case("no tokenizer", _gone("model/tokenizer.json"), "it has no tokenizer (tokenizer.json"),
    Case("a tokenizer that does not fit", _json_of("model/tokenizer.json", added_tokens=[{"id": 5000}]),
         "its tokenizer has token 5000, and config.json says vocab_size"),
    Case("nothing to pad with", _json_of(TOKENIZER, pad_token=None, eos_token=None), "has no pad_token and no eos"),
    Case("a context too short", _json_of(CONFIG, max_position_embeddings=16), "it was made for 16 tokens"),
    Case("heads that vLLM's CPU attention lacks", _json_of(CONFIG, head_dim=16),
         "its heads are 16 wide, and vLLM's attention on CPU takes 32, 64, 80,"),
    Case("no chat template", _gone("model/chat_template.jinja"), "it has no chat template, which --data.apply_chat",
         "--recipe qwen1.5b-1gpu"),
]  # fmt: skip

NAMED, RESUMED = "--run-name mine", "--run-name mine --resume"
FOLDERS = [
    Case("runs in a file", _file("runs", ""), "runs is not a folder. Name another --runs-dir"),
    Case("runs below a file", _nothing, "rows.jsonl is not a folder", "--runs-dir rows.jsonl/runs"),
    Case("runs of another owner", _folder("runs"), "nothing can be written to", nobody=True),
    Case("runs in /proc", _nothing, "no folder can be made in /proc", "--runs-dir /proc/x"),
    Case("a run that is larger than the disk", _nothing, "the run folder will take ",
         "--max-steps 10000000 --ckpt.save_steps 1 --ckpt.max_num 10000000"),
    Case("a name out of the folder", _nothing, "--run-name '..': use letters", "--run-name .."),
    Case("a name of 300 letters", _nothing, "--run-name has 300 letters: use 200 at most", f"--run-name {'x' * 300}"),
    Case("a name that is taken", _folder("runs/mine"), "runs/mine exists, and is not a run. Move it away", NAMED),
    Case("a name of another run", _run(), "runs/mine exists already. Continue it with --resume", NAMED),
    Case("a run without a record", _folder("runs/mine"), "has no run.json, so it is not a run", RESUMED),
    Case("a record that is no JSON", _run("{"), "run.json is not JSON", RESUMED),
    Case("a record that is a list", _run("[]"), "run.json lacks recipe", RESUMED),
    Case("a record with a list for a seed", _run(seed=[1]), "run.json lacks seed", RESUMED),
    Case("a record of another method", _run(algo="grpo"), "is a run of cpu-grpo-s42, not of", RESUMED),
]  # fmt: skip


def _reward(what: str, text: bytes | str, expected: str) -> Case:
    return Case(f"reward {what}", _file("reward.py", text), expected, "--reward.remote_url reward.py")


REWARDS = [
    Case("reward missing", _nothing, "reward.py does not exist", "--reward.remote_url reward.py"),
    _reward("broken", "def reward_func(:\n", "is not Python (line 1"),
    _reward("binary", b"\x00\xff" * 99, "reward.py "),
    _reward("of another name", "def reward(queries, prompts, labels): ...", "has no reward_func"),
    _reward("of two arguments", "def reward_func(a, b): ...", "that cannot be called with three arguments"),
    _reward("that is async", "async def reward_func(a, b, c): ...", "has an async reward_func"),
    _reward("nested too deep", "(" * 100_000, "reward.py is not Python"),
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
    case.spoil(world)
    before = contents(world)
    for more in (" --dry-run", ""):  # a dry run says what the run says
        with as_nobody(case.nobody):
            code = train(case.words + more)
        printed = capsys.readouterr()
        assert code == 2, printed.out + printed.err
        told = [line for line in printed.err.splitlines() if case.expected in line]
        assert len(told) == 1 and told[0].startswith(("  - ", "real-openrlhf train: error: ")), printed.err
        assert "Traceback" not in printed.out + printed.err and len(told[0]) < 2500
        assert contents(world) == before


def test_what_is_not_spoiled_is_accepted_and_weak_rows_are_told(world, capsys):
    """Otherwise the table would prove nothing."""
    assert train("--dry-run") == 0, capsys.readouterr().err
    rows = [GOOD | {"prompt": f"{number}="} for number in range(ROWS)] + [GOOD | {"prompt": "1=", "label": None}]
    (world / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert train("--dry-run") == 0
    said = rejoined(capsys.readouterr().out)
    assert "model: " in said and " parameters" in said  # of the model in the folder
    assert "rows.jsonl: 1 of 65 rows have no label" in said and "rows.jsonl: 1 of 65 rows repeat a prompt" in said


@pytest.mark.parametrize("there", [False, True])  # else the run would make it
def test_where_the_recipes_validation_lacks_ones_own_columns_the_way_out_is_named(world, capsys, there):
    (world / "rows.jsonl").write_text('{"question": "12=", "answer": "21"}\n' * ROWS)
    mine = "--data.input_key question --data.label_key answer --dry-run"
    validation = TASK.folder() / "eval.jsonl"
    if there:
        validation.parent.mkdir(parents=True)
        validation.write_text(json.dumps(GOOD) + "\n")
    assert train(mine) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  - --eval.dataset")]
    assert told and all("give --eval.dataset FILE with the columns of" in line for line in told), told
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
    for number, expected in [
        (1, "no column 'prompt', it has messages, answer. Is it --data.input_key messages? (89 more like it)"),
        (1, "a chat in column 'messages'. Add --data.apply_chat_template, or write the prompt as text. (89 more"),
        (1, "no column 'label', it has messages, answer. Is it --data.label_key answer? (89 more like it)"),
        (2, "a prompt of 40 tokens, and --data.max_len 32 less --rollout.max_new_tokens 14 leaves 18."),
        (3, "nothing for a prompt in column 'messages'. A prompt is a text, and not empty. (29 more like it)"),
    ]:
        assert sum(f"row {number} has {expected}" in line for line in told) == 1, (expected, told)
    assert len(told) == 5


@pytest.mark.parametrize("name", ["rows.parquet", "rows.json", "rows.csv"])
def test_tables_and_lists_are_read_as_lines_are(world, capsys, name):
    rows = [GOOD | {"prompt": f"{number}="} for number in range(300)]
    if name == "rows.json":
        (world / name).write_text(json.dumps(rows))
    elif name == "rows.csv":
        (world / name).write_text("prompt,label\n" + "".join(f"{row['prompt']},{row['label']}\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), world / name)
    assert train(f"--data {name} --max-steps 18 --dry-run --all") == 0, capsys.readouterr().err
    assert "--train.num_episodes 2" in (said := rejoined(capsys.readouterr().out)) and "passes over 300 rows" in said
    assert "were not checked" not in said


def test_an_option_that_nothing_reads_is_noted(world, capsys):
    assert train("--working-dir missing --dry-run") == 0
    assert "--working-dir is read by `ray job submit` only" in rejoined(capsys.readouterr().out)


def test_a_set_of_the_hub_keeps_its_name(world, capsys, monkeypatch):
    from huggingface_hub import HfApi

    asked = []
    monkeypatch.setattr(HfApi, "dataset_info", lambda self, name, timeout: asked.append(name))
    assert train("--data openai/gsm8k@main --train.num_episodes 1 --dry-run --all") == 0, capsys.readouterr().err
    said = rejoined(capsys.readouterr().out)
    assert asked == ["openai/gsm8k"] and "--data.prompt_dataset openai/gsm8k@main " in said
    assert (
        "comes from the hub and its rows were not checked" in said and "real-openrlhf data openai/gsm8k --out" in said
    )
