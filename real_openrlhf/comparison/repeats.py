"""Settings of a comparison that train the same as another one, such as GRPO at each tau: one of them is trained."""

import contextlib
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from real_openrlhf.base.errors import UserError
from real_openrlhf.comparison.run_list import Entry, RunList
from real_openrlhf.recipes.plan import PLACES
from real_openrlhf.training.checks import flag_checks


def without_repeats(runs: RunList) -> tuple[RunList, list[str]]:
    """(the comparison without repeats, a note on them). Each begun run stays, so an older comparison goes on."""
    named = {_setting(entry): entry for entry in reversed(runs.entries)}
    trained = {name: _trained(runs, entry) for name, entry in named.items()}
    begun = [entry for entry in runs.entries if (runs.path(entry) / "run.json").exists()]
    count = Counter(map(_setting, begun))
    chosen: dict[Hashable, str] = {}  # of settings that train the same the one with most begun runs, else the first
    for name in sorted(dict.fromkeys(map(_setting, runs.entries)), key=lambda name: -count[name]):
        chosen.setdefault(trained[name], name)
    has_run = {(trained[_setting(entry)], entry.seed) for entry in begun}
    kept, left_out = [], []
    for entry in runs.entries:
        name = _setting(entry)
        new = chosen[trained[name]] == name and (trained[name], entry.seed) not in has_run
        (kept if new or entry in begun else left_out).append(entry)
    pairs = dict.fromkeys(f"{name} as {chosen[trained[name]]}" for name in map(_setting, left_out))
    said = f"{len(left_out)} runs are left out, which would train the same as others: {', '.join(pairs)}"
    return replace(runs, entries=kept), [said] if left_out else []


def _setting(entry: Entry) -> str:
    return entry.name.removesuffix(f"-s{entry.seed}")


def _trained(runs: RunList, entry: Entry) -> Hashable:
    """What a setting trains: its method, and its arguments without paths and without flags that nothing reads."""
    with contextlib.suppress(UserError):  # the checks report a wrong flag
        request = runs.request(entry)
        plan = request.plan()
        unread = {*PLACES, *flag_checks.unread_flags(plan)}
        read = replace(plan, flags={flag: setting for flag, setting in plan.flags.items() if flag not in unread})
        return entry.algo, request.recipe.name, repr(read.args)
    return entry.name
