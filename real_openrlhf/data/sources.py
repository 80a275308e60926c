"""Where rows come from: a dataset on the Hugging Face hub, a file or folder."""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import SURROGATE, parsed, sha256

HUB_NAMES = {  # of a model also NAME, as gpt2; of a set also OWNER/NAME@FOLDER, OpenRLHF's form for a folder of it
    "model": re.compile(r"[\w-][\w.-]*(/[\w.-]+)?"),
    "set": re.compile(r"[\w-][\w.-]*/[\w.-]+(@[\w./-]+)?"),
}
SUFFIXES = (".parquet", ".json", ".jsonl", ".csv")


def is_hub_name(text: str, kind: Literal["model", "set"] = "set") -> bool:
    """Whether a model or set of the hub can have this name, and nothing here has it."""
    file = kind == "set" and text.endswith((*SUFFIXES, ".arrow", ".py"))
    return HUB_NAMES[kind].fullmatch(text) is not None and not file and not os.path.exists(text)


@dataclass(frozen=True)
class HubDataset:
    repo: str
    split: str
    folder: str | None = None  # of its files; a set of several configurations has one for each
    rows: int | None = None  # that `data` writes of a training set, for a dry run without its file


TRAINING_SETS = {
    "deepscaler": HubDataset("agentica-org/DeepScaleR-Preview-Dataset", "train", rows=40_315),
    "dapo17k": HubDataset("BytedTsinghua-SIA/DAPO-Math-17k", "train", rows=17_398),  # has every row about 100 times
}


@dataclass(frozen=True)
class Rows:
    """Rows to read once, and where they came from, for the manifest."""

    rows: Iterable[dict]
    origin: dict


def read_hub(dataset: HubDataset) -> Rows:
    """Load a data set at the hub's current commit: from the local cache, else by download."""
    import datasets
    from huggingface_hub import HfApi

    revision = None
    with contextlib.suppress(Exception):  # where the hub does not answer, the cache may still hold the data set
        revision = HfApi().dataset_info(dataset.repo, timeout=20).sha
    try:
        rows = datasets.load_dataset(dataset.repo, split=dataset.split, revision=revision, data_dir=dataset.folder)
    except Exception as error:  # the hub's client raises a dozen unrelated types for one missing network
        if "Config name is missing" in str(error):
            raise UserError(
                f"{dataset.repo} has several configurations. Name the folder of one, as {dataset.repo}@main"
            ) from error
        raise UserError(
            f"cannot load {dataset.repo} from the hub ({first_line(error)}). "
            "Check the network, or give a local copy with --source"
        ) from error
    return Rows(rows, {"hub": dataset.repo, "split": dataset.split, "revision": revision})


def read_local(path: Path) -> Rows:
    """A parquet, JSON, JSONL or CSV file, or every such file of a folder in the order of their names."""
    if not path.exists():
        raise UserError(f"no file or folder {path}. Check the path")
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not files or any(file.suffix not in SUFFIXES for file in files):
        raise UserError(f"{path} has no rows to read: expected {', '.join(SUFFIXES)}. Convert it, or name another")
    return Rows(_read_files(files), {"files": {str(file): sha256(file) for file in files}})


def _read_files(files: list[Path]) -> Iterator[dict]:
    for file in files:
        rows = {".parquet": _read_parquet, ".csv": _read_csv}.get(file.suffix, _read_json)(file)
        number = 0
        try:
            for number, row in enumerate(rows, start=1):
                if not isinstance(row, dict):
                    raise ValueError(f"row {number} is a {type(row).__name__}, expected an object with columns")
                yield row
        except ValueError as error:  # also those of pyarrow, pandas, JSON and UTF-8
            raise UserError(f"{file} cannot be read ({first_line(error)}). Mend it, or download it again") from error
        if not number:
            raise UserError(f"{file} is empty. Download it again, or remove it")


def _read_parquet(file: Path) -> Iterator[dict]:
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(file).iter_batches():
        yield from batch.to_pylist()


def _read_csv(file: Path) -> Iterator[dict]:
    """With the kinds of values that `datasets`, and so a run, makes of it: whole numbers where all of a column are."""
    import pandas

    yield from pandas.read_csv(file).to_dict("records")


def _read_json(file: Path) -> Iterator[Any]:
    """A JSON list of objects, or one object a line; the first character tells which."""
    with file.open(encoding="utf-8-sig") as lines:  # some editors mark the beginning, which OpenRLHF skips too
        is_list = lines.read(1) == "["
        lines.seek(0)
        if is_list:
            yield from _whole(lines.read())
        for number, line in enumerate(() if is_list else lines, start=1):
            if line.strip():
                try:
                    yield _whole(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {getattr(error, 'msg', error)}") from None


def _whole(text: str) -> Any:
    """The parsed text; `datasets` would die of half a character, which JSON can spell and UTF-8 cannot."""
    value = parsed(text)
    if "\\u" in text and SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("half a character (a surrogate alone). Write whole characters")
    return value
