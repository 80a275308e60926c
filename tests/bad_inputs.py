"""Bad input as data: what is done to a folder in which a run would start, the command line, and the one line expected.

`fast` cases need no parser of OpenRLHF's; the others are checked in one process, which imports it once.
"""

import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors.numpy import load_file, save_file

ROWS = 64
GOOD = {"prompt": "12=", "label": "21"}
RUN = {
    "recipe": "cpu", "algo": "real", "seed": 42, "status": "failed", "started": "2026-01-01T00:00:00+00:00",
    "flags": {}, "objective": {}, "reason": None, "name": "mine",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    spoil: Callable[[Path], object]  # in a folder with rows.jsonl and model/
    expected: str  # in the line that is told
    words: str = ""
    nobody: bool = False  # asked by a user who may not do everything
    dry: bool = False  # asks OpenRLHF's parser

    @property
    def id(self) -> str:
        return self.name.replace(" ", "_")


def _row(**changes: object) -> str:
    return json.dumps(GOOD | changes)


def _rows(last: bytes | str) -> Callable[[Path], object]:
    """Good rows, and then this one."""
    text = last.encode() if isinstance(last, str) else last
    good = (json.dumps(GOOD).encode() + b"\n") * ROWS
    return lambda folder: (folder / "rows.jsonl").write_bytes(good + text + b"\n")


def _file(name: str, content: bytes | str) -> Callable[[Path], object]:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def _gone(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _folder(name: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return make


def _link(name: str, target: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to(target)


def _mode(name: str, mode: int) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).mkdir(exist_ok=True) if not (folder / name).exists() else None
        (folder / name).chmod(mode)

    return change


def _json_of(name: str, **changes: object) -> Callable[[Path], object]:
    """Keys of a JSON object set, or taken out where None is given."""

    def change(folder: Path) -> None:
        path = folder / name
        value = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: item for key, item in value.items() if item is not None}))

    return change


def _cut(name: str, keep: int) -> Callable[[Path], object]:
    """A file's first bytes, or without its last ones."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def _pickled(folder: Path) -> None:
    (folder / "model/model.safetensors").rename(folder / "model/pytorch_model.bin")


def _sharded(**index: object) -> Callable[[Path], object]:
    def shard(folder: Path) -> None:
        (folder / "model/model.safetensors").rename(folder / "model/model-1.safetensors")
        (folder / "model/model.safetensors.index.json").write_text(json.dumps(index))

    return shard


def _without_head(folder: Path) -> None:
    """As a model with a tied head is saved."""
    path = folder / "model/model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if name != "lm_head.weight"}, path)


def _run(text: str | bytes = "", **changes: object) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / "runs/mine").mkdir(parents=True)
        record = {key: value for key, value in (RUN | changes).items() if value is not ...}
        data = text.encode() if isinstance(text, str) else text
        (folder / "runs/mine/run.json").write_bytes(data or json.dumps(record).encode())

    return make


def _taken(folder: Path) -> None:
    (folder / "runs/mine").mkdir(parents=True)


def _nothing(folder: Path) -> None:
    pass


DATA = [
    Case("data missing", _gone("rows.jsonl"), "rows.jsonl does not exist. Name a file that does"),
    Case("data empty", _file("rows.jsonl", ""), "rows.jsonl is empty. Prepare it again"),
    Case("data is a folder", _folder("rows.jsonl"), "rows.jsonl is a folder. Name a file in it"),
    Case("data of one row", _file("rows.jsonl", _row() + "\n"), "1 rows of training data do not fill one"),
    Case("data unreadable", _mode("rows.jsonl", 0), "rows.jsonl cannot be read (Permission denied)", nobody=True),
    Case("a table that is missing", _nothing, "rows.parquet does not exist", "--data rows.parquet"),
    Case("a set that nobody knows", _nothing, "dapo17 does not exist. Name a file that does", "--data dapo17"),
    Case("not JSON", _rows("not json"), "line 65 is not JSON"),
    Case("a line cut off", _rows('{"prompt": "1=", "lab'), "line 65 is not JSON"),
    Case("a blank line", _rows(""), "line 65 is not JSON"),
    Case("a list for a row", _rows('["12=", "21"]'), "line 65 is not a JSON object"),
    Case("a number for a row", _rows("7"), "line 65 is not a JSON object"),
    Case("a million brackets", _rows("[" * 1_000_000), "line 65 is not JSON (it is nested too deep)"),
    Case("a number of 5,000 digits", _rows(f'{{"prompt": "1=", "label": {"9" * 5000}}}'), "line 65 is not JSON"),
    Case("compressed data", _file("rows.jsonl", b"\x1f\x8b\x08\x00" + bytes(range(256))), "line 1 is not UTF-8"),
    Case("broken UTF-8", _rows(b'{"prompt": "1=\xff", "label": "1"}'), "line 65 is not UTF-8 (byte 15). Save the"),
    Case("UTF-16", _file("rows.jsonl", (_row() + "\n").encode("utf-16")), "line 1 is not UTF-8"),
    Case("a byte order mark", _file("rows.jsonl", "\ufeff" + _row() + "\n"), "line 1 begins with a byte order mark"),
    Case("half a character", _rows(_row(prompt="1\ud800=")), "line 65 has half a character"),
    Case("a number that JSON lacks", _rows('{"prompt": "1=", "label": NaN}'), "line 65 has NaN, which JSON does not"),
    Case("a column twice", _rows('{"prompt": "1=", "prompt": "2=", "label": "1"}'), "line 65 has a column twice"),
    Case("no label column", _rows('{"prompt": "1="}'), "line 65 has no column 'label', it has prompt. Name"),
    Case("an empty object", _rows("{}"), "line 65 has no column 'prompt', it has none"),
    Case("a prompt that is a number", _file("rows.jsonl", _row(prompt=1) + "\n"), "has a number for a prompt"),
    Case("a prompt that is null", _rows(_row(prompt=None)), "line 65 has nothing for a prompt"),
    Case("a prompt that is empty", _rows(_row(prompt="")), "line 65 has nothing for a prompt"),
    Case("a prompt that is an object", _file("rows.jsonl", _row(prompt={}) + "\n"), "has an object for a prompt"),
    Case("a chat without a template", _file("rows.jsonl", _row(prompt=[{"role": "user", "content": "1="}]) + "\n"),
         "line 1 has a chat in column 'prompt'. Add --data.apply_chat_template"),
    Case("labels of two kinds", _rows(_row(label=21)), "line 65 has a number in column 'label', line 1 has text"),
    Case("no label at all", _file("rows.jsonl", (_row(label="") + "\n") * ROWS), "no row has a label in 'label'"),
    Case("more than the context", _rows(_row(prompt="1" * 40)), "line 65 has a prompt of 40 tokens, and"),
    Case("a line of 10 MB", _rows(_row(prompt="1" * 10_000_000)), "line 65 has a prompt of 10000000 bytes"),
]  # fmt: skip

CONFIG, WEIGHTS, INDEX = "model/config.json", "model/model.safetensors", "model/model.safetensors.index.json"
TOKENIZER = "model/tokenizer_config.json"
MODELS = [
    Case("model missing", _nothing, "model nowhere does not exist", "--model nowhere"),
    Case("model is a file", _nothing, "model rows.jsonl does not exist. Give a folder", "--model rows.jsonl"),
    Case("a hub id out of reach", _nothing, "which is not in the cache", "--model no/such-model"),
    Case("no configuration", _gone(CONFIG), "is a folder without config.json"),
    Case("a broken configuration", _file(CONFIG, "{"), "config.json is not JSON"),
    Case("a configuration that is a list", _file(CONFIG, "[]"), "config.json is not a JSON object"),
    Case("a configuration nested too deep", _file(CONFIG, "[" * 200_000), "is not JSON (it is nested too deep)"),
    Case("no weights", _gone(WEIGHTS), "has neither model.safetensors nor model.safetensors.index.json"),
    Case("pickled weights", _pickled, "weights are Python pickles (pytorch_model.bin), which can run code"),
    Case("a model of another owner", _mode("model", 0o700), "model/config.json: Permission denied", nobody=True),
    Case("weights cut off", _cut(WEIGHTS, -1000), "or it is cut off ("),
    Case("a header cut off", _cut(WEIGHTS, 100), "is not a safetensors file, or it is cut off"),
    Case("weights of zeros", _file(WEIGHTS, bytes(4096)), "is not a safetensors file"),
    Case("an empty file of weights", _file(WEIGHTS, ""), "is not a safetensors file"),
    Case("a header longer than the file", _file(WEIGHTS, b"\xff" * 64), "is not a safetensors file"),
    Case("offsets that are none", _file(WEIGHTS, struct.pack("<Q", 8) + b'{"a": 1}'), "is not a safetensors file"),
    Case("a missing shard", _sharded(weight_map={"a": "model-1.safetensors", "b": "model-2.safetensors"}),
         "model-2.safetensors, which model.safetensors.index.json names, is missing"),
    Case("a shard elsewhere", _sharded(weight_map={"a": "../rows.jsonl"}), "../rows.jsonl, which"),
    Case("an index without a map", _sharded(metadata={}), "has no weight_map. Download the model again"),
    Case("a tied head that is not", _without_head, "no file has lm_head.weight: the head would be random"),
    Case("weights of another model", _json_of(CONFIG, vocab_size=999), "and config.json says vocab_size 999"),
    Case("no tokenizer", _gone("model/tokenizer.json"), "it has no tokenizer (tokenizer.json"),
    Case("a broken tokenizer", _file("model/tokenizer.json", "{"), "tokenizer.json is not JSON"),
    Case("a tokenizer that does not fit", _json_of("model/tokenizer.json", added_tokens=[{"id": 5000}]),
         "its tokenizer has token 5000, and config.json says vocab_size"),
    Case("nothing to pad with", _json_of(TOKENIZER, pad_token=None, eos_token=None), "has no pad_token and no eos"),
    Case("a context too short", _json_of(CONFIG, max_position_embeddings=16), "it was made for 16 tokens"),
    Case("no chat template", _gone("model/chat_template.jinja"), "it has no chat template, which --data.apply_chat",
         "--recipe qwen1.5b-1gpu"),
]  # fmt: skip

NAMED, RESUMED = "--run-name mine", "--run-name mine --resume"
FOLDERS = [
    Case("runs in a file", _file("runs", ""), "runs is not a folder. Name another --runs-dir"),
    Case("runs below a file", _nothing, "rows.jsonl is not a folder", "--runs-dir rows.jsonl/runs"),
    Case("runs in a link to itself", _link("runs", "runs"), "runs is not a folder"),
    Case("runs of another owner", _mode("runs", 0o755), "nothing can be written to", nobody=True),
    Case("a folder that is read only", _mode("runs", 0o555), "nothing can be written to", nobody=True),
    Case("a name with a path", _nothing, "--run-name 'a/b': use letters", "--run-name a/b"),
    Case("a name out of the folder", _nothing, "--run-name '..': use letters", "--run-name .."),
    Case("a name that is taken", _taken, "runs/mine exists already. Continue it with --resume", NAMED),
    Case("a name of 300 letters", _nothing, "--run-name has 300 letters: use 200 at most", f"--run-name {'x' * 300}"),
    Case("a link to nothing for a name", lambda folder: (_folder("runs")(folder), _link("runs/mine", "no")(folder)),
         "runs/mine exists already", NAMED),
    Case("a run without a record", _taken, "has no run.json, so it is not a run", RESUMED),
    Case("a record that is no JSON", _run("{"), "run.json is not JSON", RESUMED),
    Case("a record that is a list", _run("[]"), "run.json lacks recipe", RESUMED),
    Case("a record that is binary", _run(b"\xff\xfe\x00"), "run.json is not JSON", RESUMED),
    Case("a record of an earlier version", _run(recipe=...), "run.json lacks recipe, or they are of", RESUMED),
    Case("a record with a list for a seed", _run(seed=[1]), "run.json lacks seed", RESUMED),
    Case("a record of another method", _run(algo="grpo"), "is a run of cpu-grpo-s42, not of", RESUMED),
    Case("an objective that is gone", _run(objective={"mine.py": "0" * 64}), "began with another objective",
         RESUMED),
]  # fmt: skip


def _reward(what: str, text: bytes | str, expected: str) -> Case:
    return Case(f"reward {what}", _file("reward.py", text), expected, "--reward.remote_url reward.py", dry=True)


REWARDS = [
    Case("reward missing", _nothing, "reward.py does not exist", "--reward.remote_url reward.py", dry=True),
    _reward("empty", "", "reward.py has no reward_func"),
    _reward("broken", "def reward_func(:\n", "is not Python (line 1"),
    _reward("binary", b"\x00\xff" * 99, "reward.py "),
    _reward("of another name", "def reward(queries, prompts, labels): ...", "has no reward_func"),
    _reward("of two arguments", "def reward_func(a, b): ...", "that cannot be called with three arguments"),
    _reward("that is async", "async def reward_func(a, b, c): ...", "has an async reward_func"),
    _reward("nested too deep", "(" * 100_000, "reward.py is not Python"),
]


def _flag(words: str, expected: str) -> Case:
    return Case(words.removeprefix("--"), _nothing, expected, words, dry=True)


FLAGS = [
    _flag("--actor.adam.lr -1", "--actor.adam.lr -1: give more than 0"),
    _flag("--actor.adam.lr nan", "--actor.adam.lr nan: give more than 0"),
    _flag("--actor.adam.lr inf", "--actor.adam.lr inf: give more than 0"),
    _flag("--actor.adam.betas 0.9 1.5", "--actor.adam.betas 0.9 1.5: give 0 or more, and 1 at most"),
    _flag("--rollout.temperature 0", "--rollout.temperature 0: give more than 0"),
    _flag("--rollout.top_p 1.5", "--rollout.top_p 1.5: give more than 0, and 1 at most"),
    _flag("--vllm.gpu_memory_utilization 90", "give more than 0, and 1 at most"),
    _flag("--actor.eps_clip -0.2", "--actor.eps_clip -0.2: give more than 0"),
    _flag("--actor.max_norm -1", "--actor.max_norm -1: give 0 or more"),
    _flag("--actor.lr_warmup_ratio 3", "--actor.lr_warmup_ratio 3: give 0 or more, and 1 at most"),
    _flag("--train.seed -1", "--train.seed -1: give 0 or more"),
    _flag("--rollout.max_new_tokens 0", "--rollout.max_new_tokens 0: nothing can be done with that"),
    _flag("--data.max_len 0", "--data.max_len 0: nothing can be done with that"),
    _flag("--data.max_samples 0", "--data.max_samples 0: nothing can be done with that"),
    _flag("--train.max_steps -3", "--train.max_steps -3 is negative"),
    _flag("--train.max_steps 1e3", "invalid int value: '1e3'. Give it a whole number"),
    _flag("--ckpt.max_num 0", "--ckpt.max_num 0: nothing can be done with that"),
    _flag("--ds.zero_stage 7", "--ds.zero_stage 7: REAL's trainer needs ZeRO stage 1, 2 or 3"),
    _flag("--algo.real.tau 0", "--algo.real.tau 0.0: it must be a positive number"),
    _flag("--algo.real.tau nan", "--algo.real.tau nan: it must be a positive number"),
    _flag("--algo.real.label_threshold nan", "--algo.real.label_threshold nan"),
    _flag("--algo.real.scoring deferred", "invalid choice: 'deferred'"),
    _flag("--train.no_such_flag 1", "unknown flag --train.no_such_flag"),
]

CASES = [*DATA, *MODELS, *FOLDERS, *REWARDS, *FLAGS]


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file, link and folder below, as it is."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }
