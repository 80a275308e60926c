"""A run's flags: composed from a recipe, an algorithm and the user, each value with its origin; printed and recorded.

Standard library only. The order is: recipe, algorithm, the user's flags, then the flags that follow from all of these.
"""

import contextlib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import Objective, assignments, find
from real_openrlhf.base.errors import HIDDEN, REWARD, WANDB_KEY, hide
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.runs import run_folder

SET = "--algo.real.set"  # settings that only the chosen objective has, as NAME=VALUE words
PAPER, CODE, RECIPE, DERIVED, USER = "paper", "authors' code", "recipe", "derived", "user"
OBJECTIVE = "--algo.real.objective"
AGENT = "--train.agent_func_path"
FILTER = "--algo.dynamic_filtering_enable"
FILTERED = 20  # times as many passes with it: enough if 5 % of the prompts are kept; --max-steps ends the run
UTILIZATION = "--vllm.gpu_memory_utilization"
# Answers that an engine draws at once: as many as vLLM lets OpenRLHF's engines, and more if a step has them. Above the
# second number an engine mostly reads keys and values.
AT_ONCE = (128, 512)

# Flags with paths of a run, and the flag to resume it; they may differ between runs of one setting.
PLACES = {"--train.run_dir", "--logger.tensorboard_dir", "--ckpt.path", "--ckpt.output_dir", "--ckpt.load_enable"}

EARLIER_FLAGS = "earlier_flags"  # in run.json: the values that a resume changed


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
    settings: Mapping[str, FlagValue]
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
    settings: Mapping[str, FlagValue]
    family: str = ""  # the family of its objective; empty for OpenRLHF's own losses

    @property
    def kind(self) -> str:
        """One of KINDS."""
        paper, baselines, controls = KINDS
        return controls if self.about.startswith("control:") else paper if self.family == "REAL" else baselines


Change = tuple[str, FlagValue | None, FlagValue | None]  # a flag, before and after; None stands for OpenRLHF's default


@dataclass(frozen=True)
class RunFlags:
    """The flags of one run with their origins, and where the user overruled the recipe or the algorithm."""

    settings: dict[str, FlagValue]
    changes: list[Change]

    def text(self, flag: str) -> str:
        """A flag's words; OpenRLHF's default if the run lacks the flag; else an empty text."""
        return self.settings[flag].text if flag in self.settings else openrlhf_parser.defaults().get(flag, "")

    @property
    def args(self) -> SimpleNamespace:
        """The run's arguments as OpenRLHF nests them, before its checks; a UserError if a flag is wrong."""
        return openrlhf_parser.arguments(tuple(self.argv()))

    def argv(self) -> list[str]:
        return [word for flag in self.settings for word in self.typed(flag)]

    def typed(self, flag: str) -> list[str]:
        """A flag as it is typed; with `=` where argparse would take a value such as -1e-3 for a flag."""
        words = self.settings[flag].words
        return [f"{flag}={words[0]}"] if len(words) == 1 and words[0].startswith("-") else [flag, *words]

    def number(self, flag: str) -> int:
        """A whole number; 0 where neither the run nor OpenRLHF has one."""
        return int(self.text(flag) or 0)

    @property
    def nodes(self) -> int:
        return self.number("--actor.num_nodes")

    @property
    def ranks(self) -> int:
        """The policy's, one on each of its GPUs."""
        return self.nodes * self.number("--actor.num_gpus_per_node")

    @property
    def needs_reference(self) -> bool:
        """Whether OpenRLHF starts a reference model: for a KL penalty, or because the objective's score needs it."""
        kl_penalty = float(self.text("--algo.kl.init_coef") or 0.01) > 0
        return kl_penalty or (self.objective is not None and self.objective.needs_reference)

    @property
    def objective(self) -> Objective | None:
        with contextlib.suppress(ValueError):  # the checks report a wrong objective
            return find(self.text(OBJECTIVE)) if self.text("--actor.policy_loss_type") == "real" else None
        return None

    @property
    def in_waves(self) -> bool:
        """Whether graphs are kept while ranks exchange scores."""
        scores = self.objective is not None and not self.objective.of_tokens
        return scores and self.text("--algo.real.max_live_micro_batches") != "0"

    @property
    def colocated(self) -> bool:
        """Whether vLLM's engines are on the policy's GPUs; with --train.async_enable they have other GPUs."""
        return "--train.colocate_all" in self.settings and "--train.async_enable" not in self.settings

    @property
    def engine_gpus(self) -> int:
        """The number of GPUs that only vLLM uses."""
        return 0 if self.colocated else self.number("--vllm.num_engines") * self.number("--vllm.tensor_parallel_size")

    @property
    def gpus(self) -> int:
        """The GPUs that Ray must offer for all roles together."""
        beside = {
            "--train.colocate_all",
            "--train.colocate_actor_ref",
        } & self.settings.keys() or not self.needs_reference
        return self.ranks + self.engine_gpus + (0 if beside else self.ranks)


def compose(
    recipe: Recipe,
    algorithm: Algorithm,
    user: Mapping[str, tuple[str, ...]],
    removed: Iterable[str] = (),
    launcher: Mapping[str, FlagValue] | None = None,
    rows: int | None = None,
) -> RunFlags:
    """The run's flags; `launcher` has the flags of run folder and data, `rows` is the size of the training set."""
    method = dict(algorithm.settings)
    if OBJECTIVE in user and OBJECTIVE in method and user[OBJECTIVE] != method[OBJECTIVE].words:
        for flag in (SET, "--algo.real.tau"):
            method.pop(flag, None)  # the constants of another objective
    settings = {
        "--actor.model_name_or_path": own(recipe.model),
        "--actor.num_nodes": own("1"),
        "--actor.num_gpus_per_node": own(str(recipe.gpus)),
        **(launcher or {}),
        **recipe.settings,
        **method,
    }
    changes: list[Change] = []
    for flag, words in user.items():
        before, after = settings.get(flag), FlagValue(tuple(words), USER)
        if before is None or before.words != after.words:
            changes.append((flag, before, after))
            settings[flag] = after
    for flag in removed:
        changes.append((flag, settings.pop(flag, None), None))
    if AGENT in settings and REWARD in settings and REWARD not in user:
        settings[REWARD] = replace(settings[REWARD], note="not called: the agent gives the rewards")
    flags = RunFlags(settings, changes)
    if not (flags.colocated or recipe.on_cpu or UTILIZATION in user) and UTILIZATION in settings:
        settings[UTILIZATION] = derived("0.9", "engines have GPUs of their own")
    for flag, setting in _derived(flags, rows).items():
        if flag not in removed and (flag == SET or flag not in settings):
            settings[flag] = setting
    return flags


def _own_settings(flags: RunFlags) -> dict[str, FlagValue]:
    """The flag --algo.real.set with all settings of the objective: the user's values, else the defaults."""
    with contextlib.suppress(ValueError):
        if flags.objective and flags.objective.settings:
            given = assignments(flags.settings[SET].words) if SET in flags.settings else {}
            words = tuple(f"{name}={value}" for name, value in (flags.objective.spelled_out | given).items())
            default = FlagValue(words, DERIVED, "its defaults")
            return {SET: replace(flags.settings[SET], words=words) if given else default} if words else {}
    return {}


def _derived(flags: RunFlags, rows: int | None) -> dict[str, FlagValue]:
    """Flags that follow from the layout, the number of steps and the size of the data."""
    settings = _own_settings(flags)
    try:
        settings["--ref.num_nodes"] = derived(str(flags.nodes), "as the policy")
        settings["--ref.num_gpus_per_node"] = derived(str(flags.ranks // flags.nodes), "as the policy")
        engines = flags.ranks // flags.number("--vllm.tensor_parallel_size")
        settings["--vllm.num_engines"] = derived(str(engines), "one for each tensor-parallel group of GPUs")
        steps, prompts = flags.number("--train.max_steps"), flags.number("--rollout.batch_size")
        engines = flags.number("--vllm.num_engines") or engines
        share = math.ceil(prompts * flags.number("--rollout.n_samples_per_prompt") / engines)
        at_once = min(max(share, AT_ONCE[0]), AT_ONCE[1])
        about = "rollouts of a step / engines, from {} to {}".format(*AT_ONCE)
        settings["--vllm.max_num_seqs"] = derived(str(at_once), about)
        if rows and steps:
            rows, filters = used_rows(flags, rows), FILTER in flags.settings
            passes = math.ceil(steps / max(rows // prompts, 1)) * (FILTERED if filters else 1)
            why = f"passes over {rows:,} rows for all steps{', of which filtering drops most' * filters}"
            settings["--train.num_episodes"] = derived(str(passes), why)
    except (ValueError, ZeroDivisionError):
        pass  # the parser reports such a value, with all others
    return settings


def used_rows(flags: RunFlags, rows: int) -> int:
    """Rows of the training set that a run reads: --data.max_samples bounds them."""
    return min(rows, flags.number("--data.max_samples") or rows)


# On the terminal and in run.json


def recorded_flags(flags: RunFlags) -> dict:
    return {
        flag: HIDDEN if flag == WANDB_KEY else run_folder.json_value(s.words) for flag, s in flags.settings.items()
    }


def flags_of(record: dict) -> dict:
    """A record's flags; {} if it has none (old or foreign record)."""
    recorded = record.get("flags")
    return recorded if isinstance(recorded, dict) else {}


def changed_flags(record: dict, flags: RunFlags) -> dict[str, tuple]:
    """{flag: (value in the record, value now)} for flags that differ, without PLACES."""
    before, now = flags_of(record), recorded_flags(flags)
    both = {flag: (before.get(flag), now.get(flag)) for flag in sorted({*before, *now} - PLACES)}
    return {flag: (old, new) for flag, (old, new) in both.items() if old != new}


def is_finished(path: Path, flags: RunFlags) -> bool:
    """Whether the run in this folder finished with these flags."""
    record = run_folder.state(path)
    return record["status"] == "finished" and not changed_flags(record, flags)


def typed() -> list[str]:
    """The command line as it was typed, without secrets."""
    return hide(["real-openrlhf", *sys.argv[1:]])
