"""All that a command knows before it checks and starts a run, read once: the resolved run, its place, its machine."""

from dataclasses import dataclass
from typing import Any

from real_openrlhf.patching import assert_applied
from real_openrlhf.recipes.run import Run
from real_openrlhf.runs import run_folder
from real_openrlhf.runs.provenance import variables
from real_openrlhf.runs.run_record import changed_flags
from real_openrlhf.training.launch_target import LaunchTarget
from real_openrlhf.training.request import Request


@dataclass(frozen=True)
class Start:
    request: Request
    run: Run
    target: LaunchTarget
    environment: dict[str, str]  # of the run's processes
    variables: dict[str, str]  # of these the ones that change results, as a record has them
    lacking: list[str]  # why the run cannot start on this machine, or on the cluster
    before: dict[str, Any] | None  # the record of the run that it continues
    changed: dict[str, tuple]  # {flag: (value in that record, value now)}

    @classmethod
    def of(cls, request: Request) -> "Start":
        assert_applied()
        run, target = request.run, LaunchTarget.for_recipe(request.recipe)
        before = run_folder.state(request.resumed) if request.resumed else None
        changed = changed_flags(before, run) if before else {}
        environment = target.environment(run) | request.secrets
        lacking = [*target.launch_problems(run)]
        return cls(request, run, target, environment, variables(environment), lacking, before, changed)

    @property
    def elsewhere(self) -> str:
        """What this machine lacks for the run, so that a dry run must be for another machine; else an empty text."""
        for_another = self.request.args.dry_run and self.target.address is None and self.lacking
        return (self.target.lacks(self.run) or "see the notes") if for_another else ""

    @property
    def is_finished(self) -> bool:
        return self.before is not None and self.before["status"] == "finished" and not self.changed
