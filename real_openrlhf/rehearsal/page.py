"""What a rehearsal found, as a page and as rehearsal.json."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from real_openrlhf.base.files import write_json, write_text
from real_openrlhf.base.parsing import number_of
from real_openrlhf.forecast import duration
from real_openrlhf.recipes.run import PLACES, Run
from real_openrlhf.recipes.shrink import Change
from real_openrlhf.rehearsal.rows import Finding
from real_openrlhf.training.start import Start

# of a file that the reward opens
RELATIVE = re.compile(r"No such file or directory: '([^/'][^']*)'")
ABSOLUTE = r"\g<0>. A run starts elsewhere: open Path(__file__).parent / '\1'"
NOT_SHOWN = "memory, speed, NCCL, sleep, compiled graphs, several ranks, long responses, whether the model learns"


@dataclass
class Page:
    start: Start  # of the run as it is typed
    folder: Path
    findings: list[Finding] = field(default_factory=list)
    dry: list[str] = field(default_factory=list)  # notes of the dry run
    notes: list[str] = field(default_factory=list)  # what else was tried, and what could not be
    found: dict[str, Any] = field(default_factory=dict)  # by the trial
    seconds: dict[str, float] = field(default_factory=dict)
    crash: str = ""

    def find(self, text: str, share: float = 1.0, stops: bool = False, cost: str = "") -> None:
        self.findings.append(Finding(share, RELATIVE.sub(ABSOLUTE, text), stops, cost))
        self.findings.sort(key=lambda finding: (not finding.stops, -finding.share))

    @property
    def stops(self) -> list[str]:
        return [str(number) for number, finding in enumerate(self.findings, 1) if finding.stops]

    def write(self) -> None:
        findings = [finding._asdict() | {"cost": self.cost(finding)} for finding in self.findings]
        every = {"crash": self.crash, "findings": findings, "notes": self.notes, "dry_run": self.dry}
        write_json(self.folder / "rehearsal.json", every | {"trial": self.found, "seconds": self.seconds})
        lines = "\n".join(self.lines())
        write_text(self.folder / "rehearsal.txt", [f"{lines}\n"])
        print(f"\n{lines}", flush=True)

    def cost(self, finding: Finding) -> str:
        """At the real size."""
        bill = next((bill for note in self.dry if (bill := getattr(note, "bill", None))), None)
        share = "all of the run" if finding.share == 1 else f"{finding.share:.0%} of the run"
        if finding.cost or bill is None:
            return finding.cost or share
        spans = ((low * finding.share, high * finding.share) for low, high in (bill.hours, bill.dollars))
        return f"{share}, {' hours and $'.join(map(duration.text, spans))}"

    def lines(self) -> Iterator[str]:
        request, rollout, trial = self.start.request, self.start.run.args.rollout, self.found.get("trial", {})
        count = number_of(len(self.findings), "finding") if self.findings else "no findings"
        seconds = f"{sum(self.seconds.values()):.0f} s"
        yield f"REHEARSED {request.recipe.name} with {request.args.algo} in {seconds}: {count}"
        if self.crash:
            yield f"THE REHEARSAL ITSELF FAILED and is not complete: {self.crash}"
        for number, finding in enumerate(self.findings, 1):
            yield f"  {number}. {finding.text}"
            yield f"     cost: {self.cost(finding)}"
        yield "tried"
        if "rows" in self.found:
            yield f"  rows, {self.found['rows']}"
        if "calls" in trial:
            step = rollout.batch_size * rollout.n_samples_per_prompt
            yield f"  reward: {trial['calls']}"
            yield f"  reward: {trial['seconds'] * 1e3:.1f} ms a call, at most {trial['slowest']}"
            yield f"    {trial['rate']:,.0f} calls/s here, {step / trial['rate']:,.1f} s for {step:,} of a step"
        if self.stops:
            yield f"  steps: none, before {', '.join(self.stops)} is mended. Then rehearse again"
        yield from (f"  {note}" for note in self.notes)
        yield "your run, as a dry run tells it"
        yield from (f"  {note}" for note in self.dry)
        yield f"not shown on a CPU: {NOT_SHOWN}"
        yield f"seconds: {', '.join(f'{part} {seconds:.0f}' for part, seconds in self.seconds.items())}"
        yield f"this page, rehearsal.json, the small run: {self.folder}"


def flat(args: SimpleNamespace, before: str = "--") -> dict[str, Any]:
    """Resolved arguments by their flags."""
    every: dict[str, Any] = {}
    for name, value in vars(args).items():
        every |= flat(value, f"{before}{name}.") if isinstance(value, SimpleNamespace) else {before + name: value}
    every.pop("--derived", None)  # follows from these
    return every


def table(before: Run, after: Run, changes: Iterable[Change]) -> Iterator[str]:
    """Each resolved argument that is not the run's, with its reason."""
    old, new = flat(before.args), flat(after.args)
    why = {flag: setting.note for flag, setting in after.flags.items()} | {flag: why for flag, _, why in changes}
    skipped = {*PLACES, "--logger.wandb.run_name"}  # the last has the time in it
    differ = [flag for flag in old if old[flag] != new[flag] and flag not in skipped]
    yield f"\n{len(old) - len(differ)} of {len(old)} arguments are your run's. These are not, nor is the run's folder:"
    for flag in differ:
        was, now = (str(value)[-26:] for value in (old[flag], new[flag]))
        yield f"  {flag:34} {was:>26} -> {now:26}  {why.get(flag) or 'follows'}"
