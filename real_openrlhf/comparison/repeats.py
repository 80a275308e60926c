"""Settings of a comparison that train the same as another one, such as GRPO at each tau: one of them is trained."""

import contextlib
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from real_openrlhf.base.errors import UserError
from real_openrlhf.comparison.run_list import Entry, RunList
from real_openrlhf.recipes.plan import PLACES


def without_repeats(runs: RunList) -> tuple[RunList, list[str]]:
    """(the comparison without repeats, a note on them). Each begun run stays, so an older comparison goes on."""
    first = {_setting(entry): entry for entry in reversed(runs.entries)}
    trained = {setting: _trained(runs, entry) for setting, entry in first.items()}
    begun = {entry for entry in runs.entries if (runs.path(entry) / "run.json").exists()}
    count = Counter(map(_setting, begun))
    trains: dict[Hashable, Entry] = {}  # of runs that train the same a begun one, else one whose setting has begun
    for entry in sorted(runs.entries, key=lambda entry: (entry not in begun, -count[_setting(entry)])):
        trains.setdefault((trained[_setting(entry)], entry.seed), entry)
    kept = begun | {*trains.values()}
    if not (left_out := [entry for entry in runs.entries if entry not in kept]):
        return runs, []
    pairs = [(entry, trains[trained[_setting(entry)], entry.seed]) for entry in left_out]
    named = ", ".join(dict.fromkeys(" as ".join(map(_setting, pair)) for pair in pairs))
    they = "1 run is" if len(left_out) == 1 else f"{len(left_out)} runs are"
    said = f"{they} left out, as others train the same: {named}"
    return replace(runs, entries=[entry for entry in runs.entries if entry in kept]), [said]


def _setting(entry: Entry) -> str:
    return entry.name.removesuffix(f"-s{entry.seed}")


def _trained(runs: RunList, entry: Entry) -> Hashable:
    """What a setting trains: its method, and its arguments without paths and without flags that nothing reads."""
    with contextlib.suppress(UserError):  # the checks report a wrong flag
        request = runs.request(entry)
        flags = request.flags
        read = replace(flags, settings={flag: it for flag, it in flags.settings.items() if flag not in PLACES})
        return entry.algo, request.recipe.name, repr(read.args)
    return entry.name
