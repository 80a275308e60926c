"""What `train` prints before a run, and the page of a dry run: 80 columns and 60 lines, or everything with --all."""

from collections.abc import Iterator

from real_openrlhf import __version__
from real_openrlhf.base.lines import short_path, wrapped
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import LABELS, OBJECTIVE, REWARD, SET, USER, Plan, Setting
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks.findings import Findings
from real_openrlhf.training.launch.place import TRAINER, Place, process_table
from real_openrlhf.training.run_inputs import Request

# Of a run's sixty flags those that a reader looks for first.
MAIN = (
    *(run_inputs.MODEL, run_inputs.TRAINING, run_inputs.VALIDATION, REWARD, "--actor.num_gpus_per_node"),
    *("--rollout.batch_size", "--rollout.n_samples_per_prompt", "--train.batch_size", "--rollout.max_new_tokens"),
    *("--rollout.temperature", "--actor.adam.lr", "--actor.max_norm", "--train.max_steps", "--train.seed"),
    *("--actor.policy_loss_type", OBJECTIVE, SET, LABELS, "--algo.real.tau", "--algo.kl.init_coef"),
)


def show(request: Request, place: Place) -> None:
    plan, recipe, algorithm, args = request.plan(), request.recipe, ALGORITHMS[request.args.algo], request.args
    print(f"real_openrlhf {__version__}")
    for name, about in (
        ("recipe", f"{recipe.name}: {recipe.about}"),
        ("algorithm", f"{algorithm.name}: {algorithm.about}"),
        ("where", place.about),
        *([("threads", place.threads(plan))] if args.dry_run else []),
    ):
        print(wrapped(about, f"  {name:9}  "))
    print()
    if args.dry_run:
        print("\n".join([*_all_of(plan, place)] if args.all else [*_main(plan)]) + "\n")
    if plan.changes:
        print("changed by you:")
        for flag, before, after in plan.changes:
            print(wrapped(f"{flag}: {_in_words(flag, before)} -> {_in_words(flag, after)}", "  "))
        print()


def _main(plan: Plan) -> Iterator[str]:
    width = max(len(flag) for flag in MAIN)
    for flag in MAIN:
        if flag in plan.flags:
            setting = plan.flags[flag]
            value = ",".join(map(short_path, setting.text.split(","))) or "on"
            yield wrapped(f"{value}  ({setting.origin})", f"  {flag:{width}}  ")
    yield wrapped(f"all {len(plan.flags)} flags with their origins, the processes and their variables: --all")


def _all_of(plan: Plan, place: Place) -> Iterator[str]:
    yield " ".join(place.command([*TRAINER]))
    words = {flag: f"{flag} {setting.text}".strip() for flag, setting in plan.flags.items()}
    left = min(max(map(len, words.values())), 46)
    middle = max(len(setting.origin) for setting in plan.flags.values())
    for flag, setting in plan.flags.items():
        yield wrapped(setting.note, f"  {words[flag]:{left}}  {setting.origin:{middle}}  ").rstrip()
    yield ""
    yield from (wrapped(line.strip(), "  " if line.startswith(" ") else "") for line in process_table(plan, place))


def _in_words(flag: str, setting: Setting | None) -> str:
    if setting is None:
        return _default_of(flag)
    value = setting.text or "on"
    return value if setting.origin == USER else f"{value} ({setting.origin})"


def _default_of(flag: str) -> str:
    """A flag that is not given: a switch is off, a value is that of OpenRLHF's parser."""
    default = openrlhf_parser.defaults().get(flag)
    return "not given" if default is None else f"{default} (OpenRLHF's default)" if default else "off"


def page(findings: Findings, everything: bool) -> Iterator[str]:
    """The lines of a dry run's findings; without `everything`, sums without their parts."""
    for line in findings.lines:
        if everything or not line.startswith("  "):
            yield wrapped(line.strip(), "    " if line.startswith("  ") else "")


def verdict(findings: Findings) -> str:
    """The last line of a dry run in which nothing is wrong."""
    count = len(findings.notes)
    notes = f", {count} note{'s' * (count != 1)}" if count else ""
    here = "; not for this machine" if findings.elsewhere else ""
    return f"dry run: nothing is wrong{notes}{here}; nothing was started"
