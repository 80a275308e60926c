"""A run on the terminal: one line per step while it trains, a summary and a picture at its end."""

import contextlib
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.base.files import parsed
from real_openrlhf.base.run_files import METRICS, NOTES, PHASE
from real_openrlhf.rewards.calls import FAILED, WARNING
from real_openrlhf.runs import run_folder

COLOUR = re.compile(r"\x1b\[\d+m")
# What Ray sets before an actor's line
ACTOR = re.compile(r"^\(\w+ pid=\d+[^)]*\) *")
PROGRESS_BAR = re.compile(r"\d%\|")
OUT_OF_MEMORY = "ray.exceptions.OutOfMemoryError"
LONGEST = 300  # characters of a reason that is not ours; the log has all of it
OURS = re.compile(r"^(real_openrlhf\.|(ValueError|UserError|RuntimeError): .*--)")  # it ends with what to type
NO_MEASURE = {"policy_loss": " (may rise: no measure of progress)"}
OTHERWISE = {"rollout/entropy": "entropy_loss"}  # as OpenRLHF's own batching logs it
MINUTE = 60.0
AT_THE_END = {"checkpoint": "saving", "evaluation": "evaluating", "generation and rewards": "evaluating"}  # by phase
# The parts of a line, in this order: name, key in metrics.jsonl, format.
SHOWN = (
    ("pass rate", "rollout/pass_rate", ".3f"),
    ("loss", "policy_loss", ".4f"),
    ("entropy", "rollout/entropy", ".3f"),
    ("grad norm", "actor_grad_norm", ".2f"),
)


def logged(key: str, lines: list[dict]) -> str:
    return key if all(key in line for line in lines) else OTHERWISE.get(key, key)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


class Progress:
    """Follows metrics.jsonl. `update` prints new lines, but none that a resumed run logged before its resume."""

    def __init__(self, run_dir: Path, total_steps: int | None, log: Path) -> None:
        self.path = run_dir / METRICS
        self.total = total_steps
        self.log = log
        self.first_step_at: tuple[int, float] | None = None
        self.notes = run_dir / NOTES
        self.told: set[str] = set()
        self.phase = run_dir / PHASE
        self.began_at = time.monotonic()
        self.tell_at = self.began_at + MINUTE  # that it still starts
        self.last_step = 0
        self.offsets = {path: _size(path) for path in (self.path, self.notes, log)}
        self.began = self.offsets[log]
        print(f"starting Ray, the vLLM engine and the policy; their output goes to {log}")
        print("this takes about 40 s on two free cores, minutes on busy ones or with a large model", flush=True)

    def update(self) -> None:
        for output in _text(self.new_lines(self.log)).splitlines():
            if WARNING in output:
                self.tell_once("failure", f"{WARNING}{output.partition(WARNING)[2]}. Further ones: {self.log}")
        for note in self.new_lines(self.notes).splitlines():
            with contextlib.suppress(ValueError, TypeError, LookupError):
                print(parsed(note)["say"], flush=True)
        for line in run_folder.logged_rows(self.new_lines(self.path)):
            self.tell_at = math.inf
            if line.get("phase") == "eval":
                print(f"evaluation at step {line['step']}: {evaluation(line)}", flush=True)
            else:
                print(self.step_line(line), flush=True)
                self.tell_lost(line)
                self.last_step = line["step"]
        self.tell_alive()

    def tell_alive(self) -> None:
        """A line each minute before the first number, and what is done after the last step."""
        if (now := time.monotonic()) >= self.tell_at:
            self.tell_at = now + MINUTE
            with self.log.open("rb") as log:
                log.seek(self.began)
                *_, last = ["no output yet", *filter(str.strip, _text(log.read()).splitlines())]
            print(f"starting since {duration(now - self.began_at)}; its output ends: {last.strip()[:99]}", flush=True)
        if self.total and self.last_step >= self.total and self.phase.exists():
            if doing := AT_THE_END.get(self.phase.read_text()):
                self.tell_once(doing, doing)

    def tell_once(self, kind: str, text: str) -> None:
        if kind not in self.told:
            self.told.add(kind)
            print(text, flush=True)

    def tell_lost(self, line: dict) -> None:
        """What keeps responses of a step from training: most of them cannot be graded, or all are cut."""
        share = line.get("rollout/frac_ungraded", 0)
        if share > 0.5:
            kinds = [key for key in line if ("/failed_" in key or "/ignored_" in key) and line[key] > 0]
            why = f", {max(kinds, key=lambda key: line[key])}" if kinds else ""
            ungraded = f"{share:.0%} of this step's responses are ungraded{why}, and train nothing. See {self.log}"
            self.tell_once("ungraded", ungraded)
        if line.get("rollout/truncated_rate") == 1:
            limits = "--rollout.max_new_tokens or --data.max_len"
            self.tell_once("cut", f"all responses of this step are cut at the length limit. Raise {limits}")

    def new_lines(self, path: Path) -> bytes:
        """New complete lines; a line that is still being written is read next time. A resume shortens the file."""
        self.offsets[path] = min(self.offsets[path], _size(path))
        if not path.exists():
            return b""
        with path.open("rb") as file:
            file.seek(self.offsets[path])
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.offsets[path] += len(whole)
        return whole

    def step_line(self, line: dict) -> str:
        step, now = line["step"], line["time"]
        parts = [f"step {step:>4.0f}" + (f"/{self.total}" if self.total else "")]
        shown = ((name, logged(key, [line]), form) for name, key, form in SHOWN)
        parts += [f"{name} {line[key]:{form}}" for name, key, form in shown if key in line]
        parts.append(f"{line.get('timing/step_total', 0):.1f} s")
        self.first_step_at = self.first_step_at or (step, now)
        done, elapsed = step - self.first_step_at[0], now - self.first_step_at[1]
        if self.total and done and step < self.total:
            parts.append(f"{duration(elapsed / done * (self.total - step))} left")
        return "  ".join(parts)

    close = update


def _text(log: bytes) -> str:
    return COLOUR.sub("", log.decode(errors="replace"))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def evaluation(line: dict) -> str:
    """`eval_reverse_pass1` 0.117 -> reverse pass@1 0.117; other pass@k likewise."""
    scores = {key: value for key, value in line.items() if key.startswith("eval_") and "_pass" in key}
    names = ((*key.removeprefix("eval_").rsplit("_pass", 1), value) for key, value in sorted(scores.items()))
    return ", ".join(f"{name} pass@{k} {value:.3f}" for name, k, value in names)


def summary(run_dir: Path) -> str:
    """The table at the end of a run: the first and the last value of its main numbers."""
    lines = list(run_folder.logged_rows((run_dir / METRICS).read_bytes()))
    steps = [line for line in lines if line["phase"] == "train"]
    evaluations = [line for line in lines if line["phase"] == "eval"]
    rows: list[tuple[str, str, str]] = []
    if evaluations:
        first, last = evaluations[0], evaluations[-1]
        for key in sorted(key for key in first if key.startswith("eval_") and key.endswith("_pass1")):
            name = key.removeprefix("eval_").removesuffix("_pass1")
            rows.append((f"held-out pass@1 ({name})", f"{first[key]:.3f}", f"{last.get(key, float('nan')):.3f}"))
    for name, key, form in SHOWN[:3]:
        key = logged(key, steps)
        if known := [step[key] for step in steps if key in step]:  # a step that trains nothing lacks some
            rows.append((f"{name}{NO_MEASURE.get(key, '')}", f"{known[0]:{form}}", f"{known[-1]:{form}}"))
    width = max((len(name) for name, _, _ in rows), default=0)
    header = f"{'':{width}}  {'first':>8}  {'last':>8}"
    failed = sorted({key for step in steps for key in step if key.startswith(FAILED)})
    shares = {key: sum(step.get(key, 0) for step in steps) / len(steps) for key in failed}
    return "\n".join(
        [
            header,
            *(f"{name:{width}}  {a:>8}  {b:>8}" for name, a, b in rows),
            *(
                f"ungraded, {WARNING}{key.removeprefix(FAILED)}): {share:.1%} of all responses"
                for key, share in shares.items()
            ),
            *_last_notes(run_dir / NOTES, steps[-1]["step"] if steps else 0),
        ]
    )


def _last_notes(path: Path, step: int) -> Iterator[str]:
    """What the run's log said of its end, and not of an earlier one that was resumed."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, TypeError, LookupError):
            note = parsed(line)
            if note["step"] == step:
                yield str(note["last"])


def end_unwatched(path: Path) -> str | None:
    """For an ended run that no command watched: record its end, return a line to print; else None."""
    if (ending := run_folder.record_ending(path)) is None:
        return None
    line, finished = ending
    return f"{line}\n{final_summary(path)}" if finished else line


def final_summary(path: Path) -> str:
    from real_openrlhf.report.figures import training_curves  # matplotlib takes a second

    picture = path / "curves.png"
    training_curves(path, picture)
    return f"{summary(path)}\n\npicture of the training curves: {picture}"


def last_error(log: Path, start: int = 0) -> str:
    """The log line that most likely says why a run failed; before the byte `start` an earlier attempt wrote."""
    text = _text(log.read_bytes()[start:] if log.exists() else b"")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line.split(":", 1)[0].rsplit(" ", 1)[-1] and ":" in line]
    others = (line for line in reversed(lines) if not PROGRESS_BAR.search(line) and not ACTOR.search(line))
    reason = ACTOR.sub("", named[-1]) if named else next(others, "no output")
    if OUT_OF_MEMORY in reason:  # Ray's text goes on with the command lines of other programs
        used = re.search(r"was ([\d.]+) ?GB / ([\d.]+) ?GB", reason)
        full = f", {used[1]} of {used[2]} GB used" if used else ""
        return (
            f"Ray ended a process of the run because the machine's memory was full{full}. Close other programs, or "
            "take less memory (docs/use/troubleshooting.md), then the same command with --resume"
        )
    return reason if len(reason) <= LONGEST or OURS.match(reason) else f"{reason[:LONGEST]} ..."
