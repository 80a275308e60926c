"""A run, composed from a recipe, an algorithm and the user, resolved once, each value with its origin.

Standard library only. The order is: recipe, algorithm, the user's flags, then the flags that follow from all of these.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

from real_openrlhf.algorithm.settings import ObjectiveSettings, assignments
from real_openrlhf.base.secrets import REWARD
from real_openrlhf.flags import parser
from real_openrlhf.flags.arguments import complete
from real_openrlhf.flags.derived import Layout, known_objective
from real_openrlhf.flags.rules import unread
from real_openrlhf.flags.words import as_typed, wrong_flags

MODEL, TRAINING, VALIDATION = "--actor.model_name_or_path", "--data.prompt_dataset", "--eval.dataset"
RUN_DIR, TENSORBOARD = "--train.run_dir", "--logger.tensorboard_dir"
SET = "--algo.real.set"  # settings that only the chosen objective has, as NAME=VALUE words
PAPER, CODE, RECIPE, DERIVED, USER = "paper", "authors' code", "recipe", "derived", "user"
OBJECTIVE = "--algo.real.objective"
AGENT = "--train.agent_func_path"
LOSS = "--actor.policy_loss_type"
FILTERED = 20  # times as many passes with it: enough if 5 % of the prompts are kept; --max-steps ends the run
UTILIZATION = "--vllm.gpu_memory_utilization"
# Answers that an engine draws at once: as many as vLLM lets OpenRLHF's engines, and more if a step has them. Above the
# second number an engine mostly reads keys and values.
AT_ONCE = (128, 512)

# Flags with paths of a run, and the flag to resume it; they may differ between runs of one setting.
PLACES = {RUN_DIR, TENSORBOARD, "--ckpt.path", "--ckpt.output_dir", "--ckpt.load_enable"}


@dataclass(frozen=True)
class FlagValue:
    """One flag's value as the words after it (none for a switch), and where it comes from."""

    words: tuple[str, ...]
    origin: str
    note: str = ""

    @classmethod
    def of_text(cls, origin: str, value: str, note: str = "") -> "FlagValue":
        return cls(tuple(value.split()), origin, note)

    @property
    def text(self) -> str:
        return " ".join(self.words)


paper, code, own, derived = (partial(FlagValue.of_text, origin) for origin in (PAPER, CODE, RECIPE, DERIVED))


@dataclass(frozen=True)
class Recipe:
    """A model, its data and everything that is the same for every algorithm."""

    name: str
    about: str
    model: str
    train_data: str
    eval_data: str
    flags: Mapping[str, FlagValue]
    gpus: int = 8
    gpu_gb: float = 80.0  # memory of each GPU, for a dry run on a machine without it
    on_cpu: bool = False  # runs on a machine without a GPU, where Ray gets logical GPUs


KINDS = ("the paper's method and its ablations", "baselines", "controls")  # headings of `train --help`


@dataclass(frozen=True)
class Algorithm:
    """The flags of one method, and its description."""

    name: str
    label: str  # in figures and tables
    about: str
    source: str  # the paper or code that it comes from
    flags: Mapping[str, FlagValue]
    family: str = ""  # the family of its objective; empty for OpenRLHF's own losses

    @property
    def kind(self) -> str:
        """One of KINDS."""
        paper, baselines, controls = KINDS
        return controls if self.about.startswith("control:") else paper if self.family == "REAL" else baselines


Change = tuple[str, FlagValue | None, FlagValue | None]  # a flag, before and after; None stands for OpenRLHF's default


@dataclass(frozen=True)
class Run:
    """One run, resolved: its flags with their origins, and the arguments that its processes get from them.

    `args.derived` says what follows from these. The command line is an output: nothing reads its words again.
    """

    flags: dict[str, FlagValue]
    changes: list[Change]  # where the user overruled the recipe or the algorithm
    args: SimpleNamespace
    problems: list[str]  # objections to flags and to their combination
    unread: dict[str, str]  # {flag that this run does not read: what it would need}

    @property
    def layout(self) -> Layout:
        return self.args.derived.layout

    def text(self, flag: str) -> str:
        """A flag's words as they are typed; an empty text if the run has none."""
        return self.flags[flag].text if flag in self.flags else ""

    def given(self, flag: str) -> bool:
        """Whether the user typed it."""
        return flag in self.flags and self.flags[flag].origin == USER

    def argv(self) -> list[str]:
        return argv(self.flags)


def argv(flags: Mapping[str, FlagValue]) -> list[str]:
    return [word for flag, setting in flags.items() for word in as_typed(flag, setting.words)]


def compose(
    recipe: Recipe,
    algorithm: Algorithm,
    user: Mapping[str, tuple[str, ...]],
    removed: Iterable[str] = (),
    launcher: Mapping[str, FlagValue] | None = None,
    rows: int | None = None,
) -> Run:
    """The run; `launcher` has the flags of run folder and data, `rows` is the size of the training set.

    A wrong flag of the user's is a problem, and left out: the other checks go on with the recipe's value.
    """
    wrong = wrong_flags(user, removed)
    loss = algorithm.flags[LOSS]
    if LOSS in removed or user.get(LOSS, loss.words) != loss.words:  # another method under this name
        another = f"{LOSS}: --algo {algorithm.name} trains with {loss.text}. Choose another method by --algo."
        wrong.setdefault(LOSS, another)
    user = {flag: words for flag, words in user.items() if flag not in wrong}
    removed = [flag for flag in removed if flag not in wrong]
    method = dict(algorithm.flags)
    if OBJECTIVE in user and OBJECTIVE in method and user[OBJECTIVE] != method[OBJECTIVE].words:
        for flag in (SET, "--algo.real.tau"):
            method.pop(flag, None)  # the constants of another objective
    flags = {
        MODEL: own(recipe.model),
        "--actor.num_nodes": own("1"),
        "--actor.num_gpus_per_node": own(str(recipe.gpus)),
        **(launcher or {}),
        **recipe.flags,
        **method,
    }
    changes: list[Change] = []
    for flag, words in user.items():
        before, after = flags.get(flag), FlagValue(tuple(words), USER)
        if before is None or before.words != after.words:
            changes.append((flag, before, after))
            flags[flag] = after
    for flag in removed:
        changes.append((flag, flags.pop(flag, None), None))
    if AGENT in flags and REWARD in flags and REWARD not in user:
        flags[REWARD] = replace(flags[REWARD], note="not called: the agent gives the rewards")
    typed = complete(parser.raw(argv(flags)))
    if not (typed.derived.layout.colocated or recipe.on_cpu or UTILIZATION in user) and UTILIZATION in flags:
        flags[UTILIZATION] = derived("0.9", "engines have GPUs of their own")
    for flag, setting in _following(typed, flags.get(SET), rows).items():
        if flag not in removed and (flag == SET or flag not in flags):
            flags[flag] = setting
    args, problems = parser.resolved(argv(flags))
    idle = unread(flags, args)
    of_user = [flag for flag in idle if flags[flag].origin == USER]
    useless = [
        f"{flag} is not read by this run: it needs {idle[flag]}. Leave it out; if a resumed run began with it, "
        f"add --no-{flag[2:]}."
        for flag in of_user
    ]
    return Run(flags, changes, args, [*wrong.values(), *useless, *problems], idle)


def _following(args: SimpleNamespace, given: FlagValue | None, rows: int | None) -> dict[str, FlagValue]:
    """Flags that follow from the objective, the layout, the number of steps and the size of the data."""
    layout, steps, prompts = args.derived.layout, args.train.max_steps, args.rollout.batch_size
    flags = _own_settings(known_objective(args), given)
    flags["--ref.num_nodes"] = derived(str(layout.policy_nodes), "as the policy")
    flags["--ref.num_gpus_per_node"] = derived(str(layout.ranks // layout.policy_nodes), "as the policy")
    engines = max(layout.ranks // args.vllm.tensor_parallel_size, 1)
    flags["--vllm.num_engines"] = derived(str(engines), "one for each tensor-parallel group of GPUs")
    each = math.ceil(prompts * args.rollout.n_samples_per_prompt / (args.vllm.num_engines or engines))
    about = "rollouts of a step / engines, from {} to {}".format(*AT_ONCE)
    flags["--vllm.max_num_seqs"] = derived(str(min(max(each, AT_ONCE[0]), AT_ONCE[1])), about)
    if rows and steps:
        rows, filters = used_rows(args, rows), args.algo.dynamic_filtering_enable
        passes = math.ceil(steps / max(rows // prompts, 1)) * (FILTERED if filters else 1)
        why = f"passes over {rows:,} rows for all steps{', of which filtering drops most' * filters}"
        flags["--train.num_episodes"] = derived(str(passes), why)
    return flags


def _own_settings(settings: ObjectiveSettings | None, given: FlagValue | None) -> dict[str, FlagValue]:
    """The flag --algo.real.set with all settings of the objective: the user's values, else the defaults."""
    with contextlib.suppress(ValueError):
        if settings and settings.objective.settings:
            own = assignments(given.words) if given else {}
            words = tuple(f"{name}={value}" for name, value in (settings.objective.spelled_out | own).items())
            default = FlagValue(words, DERIVED, "its defaults")
            return {SET: replace(given, words=words) if given and own else default} if words else {}
    return {}


def used_rows(args: SimpleNamespace, rows: int) -> int:
    """Rows of the training set that a run reads: --data.max_samples bounds them."""
    return min(rows, args.data.max_samples or rows)
