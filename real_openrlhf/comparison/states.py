"""How far each run of a comparison is, from the files that it leaves; anybody may ask, and nothing is started."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.files import parsed
from real_openrlhf.comparison import attempts
from real_openrlhf.comparison.evaluate import is_evaluated, sampled
from real_openrlhf.comparison.run_list import Entry, RunList
from real_openrlhf.recipes.records import flags_of
from real_openrlhf.runs import run_folder
from real_openrlhf.training.launch.progress import duration

FINISHED, HELD, FAILED, WAITING = "finished", "running", "failed", "waiting"
SIGNALS = (129, attempts.INTERRUPTED, 143)  # exit codes of what was asked to end
RECENT = 10  # steps whose time stands for the steps to come


@dataclass(frozen=True)
class State:
    """`attempt` is the number of the newest one; of a failed run `ended` is when."""

    kind: str
    about: str
    attempt: int = 0
    ended: float = 0.0


def state(runs: RunList, entry: Entry) -> State:
    """The attempt is read first: whoever then makes the next one knows that nobody worked on the run in between."""
    newest, path = attempts.newest(runs.out / "queue", entry.name), runs.path(entry)
    held = newest is not None and newest.is_held()
    number = newest.number if newest else 0
    trained = runs.trained(entry)
    if not held and trained and (runs.evaluation is None or is_evaluated(path, runs.evaluation)):
        return State(FINISHED, "", number)
    if held or run_folder.is_trained(path):
        host = f" on {newest.record['host']}" if newest and newest.record.get("host") else ""
        return State(HELD, (sampled(path) if trained else _trained(path)) + host, number)
    if newest and newest.ended and newest.record.get("code") not in (0, *SIGNALS):
        log = path / ("eval.log" if trained else "train.log")
        said = f"{newest.record.get('reason')}" + (f": {log}" if log.exists() else "")
        return State(FAILED, said, number, newest.ended)
    step = run_folder.last_step(path / "metrics.jsonl")
    return State(WAITING, "for its evaluation" if trained else f"after step {step}" if step else "", number)


def lines(runs: RunList, entries: Iterable[Entry]) -> list[str]:
    width = max(len(entry.name) for entry in runs.entries)
    found = ((entry, state(runs, entry)) for entry in entries)
    return [f"{entry.name:{width}}  {one.kind:8}  {one.about}".rstrip() for entry, one in found]


def _trained(path: Path) -> str:
    """`step 12 of 40, 3 min 10 s left`"""
    log, record = path / "metrics.jsonl", path / "run.json"
    text = log.read_text(errors="replace") if log.exists() else ""
    times = [float(found) for found in re.findall(r'"phase": "train".*?"time": ([\d.]+)', text)]
    step = run_folder.last_step(log)
    if not step or not record.exists():
        return "starting"
    total = flags_of(parsed(record.read_bytes())).get("--train.max_steps")
    recent = times[-RECENT:]
    if not isinstance(total, int) or not total or len(recent) < 2:
        return f"step {step}"
    left = (recent[-1] - recent[0]) / (len(recent) - 1) * (total - step)
    return f"step {step} of {total}, {duration(left)} left"
