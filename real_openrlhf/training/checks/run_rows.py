"""The rows of a data file as OpenRLHF's reader makes them: with these values, a run calls its reward function."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import parsed

if TYPE_CHECKING:
    import pyarrow

CHECKED = (".jsonl", ".json", ".parquet", ".csv")
CHUNK = 10_000  # rows of a CSV file whose first ones decide the kinds of all, as in `datasets`
DEEP = 500  # brackets in a line; Python's own reader gives up near a thousand levels
COUNTED = re.compile(r"in row (\d+)")  # by pyarrow, from 0


def rows_of(path: Path, columns: set[str]) -> Iterator[dict]:
    """Each row, of a parquet file with these columns if it has any of them; a UserError if OpenRLHF cannot read it."""
    import pyarrow
    import pyarrow.json
    import pyarrow.parquet

    kind, again = "JSON", "Write one object a line, with one kind of value in each column."
    try:
        if path.suffix == ".parquet":
            kind, again = "a parquet file", "Download it again."
            file = pyarrow.parquet.ParquetFile(path)
            names = [*file.schema_arrow.names]
            batches = file.iter_batches(columns=[name for name in names if name in columns] or names)
        else:
            content = path.read_bytes()
            content.decode()
            if path.suffix == ".csv":
                kind, again = "CSV", "Write a line with the columns' names, and as many values in each line after it."
                names, batches = [], _of_csv(content)
            else:
                if path.suffix == ".json" and content[:1] == b"[":
                    content = b"\n".join(json.dumps(one).encode() for one in parsed(content))
                _refuse_deep(path, content)
                whole = pyarrow.json.ReadOptions(block_size=len(content) + 1)  # else rows are counted anew in each
                table = pyarrow.json.read_json(io.BytesIO(content), whole) if content.strip() else pyarrow.table({})
                names, batches = table.column_names, iter(table.to_batches(max_chunksize=1000))
        for batch in batches:
            yield from ({**dict.fromkeys(names), **row} for row in batch.to_pylist())
    except UnicodeDecodeError as error:
        before = content[: error.start]
        where = f"line {before.count(10) + 1}, byte {error.start - before.rfind(10)}"
        raise UserError(f"{path} is not UTF-8 ({where}). Save the file as UTF-8.") from None
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        said = COUNTED.sub(lambda found: f"in row {int(found[1]) + 1}", last_line(error))
        raise UserError(f"{path} is not {kind} that OpenRLHF reads ({said}). {again}") from None


def _refuse_deep(path: Path, content: bytes) -> None:
    """pyarrow ends the whole process on a value of some ten thousand lists in lists."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.count(b"[") + line.count(b"{") > DEEP:
            try:
                json.loads(line)
            except RecursionError:
                raise UserError(f"{path}, line {number} is nested too deeply. Write it flatter.") from None
            except ValueError:
                pass  # pyarrow says it better


def _of_csv(content: bytes) -> Iterator["pyarrow.Table"]:
    import pandas
    import pyarrow

    schema = None
    for frame in pandas.read_csv(io.BytesIO(content), chunksize=CHUNK) if content.strip() else ():
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        schema = schema or table.schema
        yield table.cast(schema)
