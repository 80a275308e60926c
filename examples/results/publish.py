"""Publish runs as a campaign: small enough to commit, without paths of this machine, of committed code only.

python examples/results/publish.py RUNS OUT [--compact]

RUNS is a folder of run folders. Interrupted runs are left out, because their records change when they go on. --compact
keeps only the metrics that check.py reads. What OUT has, perhaps of another machine, is added to, never overwritten.
"""

import csv
import hashlib
import json
import re
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet

from real_openrlhf.base.errors import UserError
from real_openrlhf.runs import run_folder
from real_openrlhf.training.tiny_task import cache_folder

COMPACT = ("eval_", "ppo_", "kl_old", "rollout/", "real/score_std", "real/weight_", "update/frac_clipped", "timing/")
OWN_FOLDERS = ("--train.run_dir", "--ckpt.path", "--ckpt.output_dir", "--logger.tensorboard_dir")


def flat(record: dict) -> dict[str, str]:
    """{key, or key/inner key: value as JSON}, without the command, which the flags say, and the run's own folders."""
    pairs: dict[str, object] = {}
    for key, value in record.items():
        pairs |= {f"{key}/{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {key: value}
    left_out = {"name", "command", *(f"flags/{flag}" for flag in OWN_FOLDERS)}
    return {key: json.dumps(value, ensure_ascii=False) for key, value in pairs.items() if key not in left_out}


def refuse_unknown_code(name: str, record: dict) -> None:
    for part in (record, *record.get("earlier_code", ())):
        if str(part.get("code_version")).endswith("-dirty"):
            sys.exit(f"{name} ran code that no commit has. Commit the changes, then make the runs again.")
        if not re.fullmatch("[0-9a-f]{40,64}", str(part.get("tree") or part.get("package_sha256"))):
            sys.exit(f"{name} does not name the tree that it ran, so nobody can get that code.")


def publish(runs: Path, out: Path, *, compact: bool = False) -> int:
    """Write the three files, and return how many runs they have."""
    records, lines, before = published(out)
    sources = {}
    for path in sorted(runs.glob("*/run.json")):
        name, log = path.parent.name, path.parent / "metrics.jsonl"
        run_folder.record_ending(path.parent)  # else the record of a run that nobody watched still says running
        record = run_folder.state(path.parent)
        if record["status"] == "running" or str(record.get("reason")).startswith("interrupted"):
            print(f"not published, because it has not ended: {path.parent}")
            continue
        refuse_unknown_code(name, record)
        text = json.dumps(record)
        for here, there in ((f"{runs}/", "runs/"), (str(cache_folder()), "CACHE"), (f"{Path.cwd()}/", "")):
            text = text.replace(here, there)
        sources |= {f"{name}/{one.name}": hashlib.sha256(one.read_bytes()).hexdigest() for one in (path, log)}
        if name in records:
            continue
        records[name] = flat(json.loads(text))
        for row in run_folder.logged_rows(log.read_bytes()):
            kept = {key: one for key, one in row.items() if not compact or key.startswith(COMPACT)}
            lines.append({**kept, "run": name, "phase": row["phase"], "step": row["step"]})
    if other := sorted(file for file, digest in sources.items() if before.get(file, digest) != digest):
        sys.exit(f"{out} has {len(other)} files of other runs, such as {other[0]}. Give another OUT, or remove {out}.")
    lines.sort(key=lambda line: line["run"])
    write(out, dict(sorted(records.items())), lines, before | sources)
    return len(records)


def published(out: Path) -> tuple[dict[str, dict[str, str]], list[dict], dict[str, str]]:
    """The records, logged lines and hashes that OUT has."""
    if not (out / "campaign.json").exists():
        return {}, [], {}
    campaign = json.loads((out / "campaign.json").read_text())
    common = flat(campaign["common"])
    with (out / "runs.csv").open(newline="", encoding="utf-8") as file:
        rows = [{key: one for key, one in row.items() if one} for row in csv.DictReader(file)]
    lines = pyarrow.parquet.read_table(out / "metrics.parquet").to_pylist()
    lines = [{key: one for key, one in line.items() if one is not None} for line in lines]
    return {row.pop("name"): common | row for row in rows}, lines, campaign["sources"]


def write(out: Path, records: dict[str, dict[str, str]], lines: list[dict], sources: dict[str, str]) -> None:
    """campaign.json: what all records share; runs.csv: a row a run; metrics.parquet: a row a logged line."""
    keys = dict.fromkeys(key for record in records.values() for key in record)
    varied = [key for key in keys if len({record.get(key) for record in records.values()}) > 1]
    common: dict = {}
    for key, value in next(iter(records.values())).items() if records else ():
        outer, slash, inner = key.partition("/")
        if key not in varied:
            (common.setdefault(outer, {}) if slash else common)[inner or outer] = json.loads(value)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["name", *varied])
        rows.writerows([name, *(record.get(key, "") for key in varied)] for name, record in records.items())
    metrics = sorted({key for line in lines for key in line} - {"run", "phase", "step"})
    types = {"run": pyarrow.string(), "phase": pyarrow.string(), "step": pyarrow.int64()}
    schema = pyarrow.schema([*types.items(), *((key, pyarrow.float64()) for key in metrics)])
    pyarrow.parquet.write_table(  # bytes of equal rank side by side halve what is left of measured numbers
        pyarrow.Table.from_pylist(lines, schema),
        out / "metrics.parquet",
        compression="zstd",
        compression_level=19,
        use_dictionary=[*types],
        use_byte_stream_split=metrics,
    )
    campaign = {"format": 1, "common": common, "sources": dict(sorted(sources.items()))}
    (out / "campaign.json").write_text(json.dumps(campaign, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(*words: str) -> int:
    folders = [Path(word).resolve() for word in words if word != "--compact"]
    if len(folders) != 2:
        sys.exit(__doc__)
    try:
        print(f"{publish(*folders, compact='--compact' in words)} runs published: {folders[1]}")
    except UserError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
