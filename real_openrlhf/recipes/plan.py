"""One run's flags from a recipe, an algorithm and the user, each with its origin. Standard library only.

Composition is in one direction: recipe, then algorithm, then the user's flags, then what follows from all of these.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from real_openrlhf.algorithm.formulas import SETTINGS, Objective, assignments
from real_openrlhf.algorithm.lookup import find
from real_openrlhf.recipes.setting import DERIVED, SET, USER, Algorithm, Recipe, Setting, own

OBJECTIVE, LABELS = "--algo.real.objective", "--algo.real.labels"
AGENT, REWARD = "--train.agent_func_path", "--reward.remote_url"

# OpenRLHF's own, where something here reads a flag that a recipe need not set; a test asks its parser for each.
OPENRLHF_DEFAULTS = {
    "--actor.num_nodes": "1",
    "--actor.num_gpus_per_node": "8",
    "--rollout.batch_size": "1024",
    "--rollout.n_samples_per_prompt": "1",
    "--rollout.micro_batch_size": "1",
    "--train.batch_size": "128",
    "--train.micro_batch_size": "1",
    "--train.max_tokens_per_gpu": "16192",
    "--train.num_episodes": "1",
    "--train.max_epochs": "1",
    "--train.seed": "42",
    "--train.hung_minutes": "120.0",
    "--data.max_len": "2048",
    "--data.input_key": "input",
    "--ds.zero_stage": "2",
    "--ds.attn_implementation": "flash_attention_2",
    "--vllm.tensor_parallel_size": "1",
    "--vllm.gpu_memory_utilization": "0.95",
    "--ckpt.save_steps": "-1",
    "--ckpt.max_num": "3",
}

Change = tuple[str, Setting | None, Setting | None]  # a flag, before and after; None stands for OpenRLHF's default


@dataclass(frozen=True)
class Plan:
    """The flags of one run with their origins, and where the user overruled the recipe or the algorithm."""

    flags: dict[str, Setting]
    changes: list[Change]

    def text(self, flag: str) -> str:
        """A flag's words, OpenRLHF's default where the plan has none, or nothing."""
        return self.flags[flag].text if flag in self.flags else OPENRLHF_DEFAULTS.get(flag, "")

    def argv(self) -> list[str]:
        return [word for flag in self.flags for word in self.typed(flag)]

    def typed(self, flag: str) -> list[str]:
        """A flag as it is typed; with `=` where argparse would take a value such as -1e-3 for a flag."""
        words = self.flags[flag].words
        return [f"{flag}={words[0]}"] if len(words) == 1 and words[0].startswith("-") else [flag, *words]

    def number(self, flag: str) -> int:
        """A whole number; 0 where neither the plan nor OpenRLHF has one."""
        return int(self.text(flag) or 0)

    @property
    def layout(self) -> tuple[int, int]:
        """(nodes, GPUs a node) of the policy."""
        return self.number("--actor.num_nodes"), self.number("--actor.num_gpus_per_node")

    @property
    def needs_reference(self) -> bool:
        """OpenRLHF starts a reference model for a KL to it; some objectives measure their scores against one."""
        if float(self.text("--algo.kl.init_coef") or 0.01) > 0:
            return True
        return self.objective is not None and self.objective.needs_reference

    @property
    def objective(self) -> Objective | None:
        with contextlib.suppress(ValueError):  # the checks report a wrong objective
            return find(self.text(OBJECTIVE)) if self.text("--actor.policy_loss_type") == "real" else None
        return None

    @property
    def colocated(self) -> bool:
        """Whether vLLM's engines are on the policy's GPUs; those that draw while the policy trains have their own."""
        return "--train.colocate_all" in self.flags and "--train.async_enable" not in self.flags

    @property
    def engine_gpus(self) -> int:
        """GPUs that only vLLM has."""
        engines = self.number("--vllm.num_engines") * self.number("--vllm.tensor_parallel_size")
        return 0 if self.colocated else engines

    @property
    def gpus(self) -> int:
        """The GPUs that Ray must offer for all roles together."""
        policy = math.prod(self.layout)
        beside = {"--train.colocate_all", "--train.colocate_actor_ref"} & self.flags.keys() or not self.needs_reference
        return policy + self.engine_gpus + (0 if beside else policy)


def compose(
    recipe: Recipe,
    algorithm: Algorithm,
    user: Mapping[str, tuple[str, ...]],
    removed: Iterable[str] = (),
    launcher: Mapping[str, Setting] | None = None,
    rows: int | None = None,
) -> Plan:
    """The run's flags; `launcher` has those of the run folder and data, `rows` is the size of the training set."""
    flags = {
        "--actor.model_name_or_path": own(recipe.model),
        "--actor.num_nodes": own("1"),
        "--actor.num_gpus_per_node": own(str(recipe.gpus)),
        **(launcher or {}),
        **recipe.settings,
        **_method(algorithm, user),
    }
    changes: list[Change] = []
    for flag, words in user.items():
        before, after = flags.get(flag), Setting(tuple(words), USER)
        if before is None or before.words != after.words:
            changes.append((flag, before, after))
            flags[flag] = after
    for flag in removed:
        changes.append((flag, flags.pop(flag, None), None))
    if AGENT in flags and REWARD in flags and REWARD not in user:
        flags[REWARD] = replace(flags[REWARD], note="not called: the agent rewards")
    plan = Plan(flags, changes)
    for flag, setting in _derived(plan, rows).items():
        if flag not in removed and (flag == SET or flag not in flags):
            flags[flag] = setting
    return plan


def _method(algorithm: Algorithm, user: Mapping[str, tuple[str, ...]]) -> dict[str, Setting]:
    """The algorithm's flags; an objective that the user puts in its place comes with constants of its own."""
    method = dict(algorithm.settings)
    if OBJECTIVE in user and OBJECTIVE in method and user[OBJECTIVE] != method[OBJECTIVE].words:
        for flag in (SET, *(f"--algo.real.{name}" for name in SETTINGS)):
            method.pop(flag, None)
    return method


def _own_settings(plan: Plan) -> dict[str, Setting]:
    """Every setting of the objective's own with its value, also those that the user has not typed."""
    with contextlib.suppress(ValueError):
        if plan.objective and plan.objective.settings:
            typed = assignments(plan.flags[SET].words) if SET in plan.flags else {}
            values = plan.objective.spelled_out | typed
            words = tuple(f"{name}={value}" for name, value in values.items())
            if not words:
                return {}
            return {SET: replace(plan.flags[SET], words=words) if typed else Setting(words, DERIVED, "its defaults")}
    return {}


def _derived(plan: Plan, rows: int | None) -> dict[str, Setting]:
    """Flags that follow from the layout, the number of steps and the size of the data."""
    derived = _own_settings(plan)
    try:
        nodes, gpus = plan.layout
        derived["--ref.num_nodes"] = Setting.of(DERIVED, str(nodes), "as the policy")
        derived["--ref.num_gpus_per_node"] = Setting.of(DERIVED, str(gpus), "as the policy")
        engines = nodes * gpus // plan.number("--vllm.tensor_parallel_size")
        derived["--vllm.num_engines"] = Setting.of(DERIVED, str(engines), "one for each tensor-parallel group of GPUs")
        steps, prompts = plan.number("--train.max_steps"), plan.number("--rollout.batch_size")
        if rows and steps:
            passes = math.ceil(steps / max(rows // prompts, 1))
            derived["--train.num_episodes"] = Setting.of(
                DERIVED, str(passes), f"passes over {rows:,} rows for all steps"
            )
    except (ValueError, ZeroDivisionError):
        pass  # the parser reports such a value, with all others
    return derived
