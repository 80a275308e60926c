"""real-openrlhf: one command line, one module a subcommand, imported only when called."""

import argparse
import importlib
import importlib.util
import sys
from types import ModuleType

from real_openrlhf import __version__
from real_openrlhf.base.errors import UserError, exit_code

# name -> (module with configure(parser) and run(args) -> exit code, help)
COMMANDS = {
    "train": (
        "real_openrlhf.training.command",
        "train with REAL or a baseline: a recipe, an algorithm, any OpenRLHF flag",
    ),
    "compare": ("real_openrlhf.comparison.command", "train algorithms x seeds on CPU, then write the report"),
    "eval": ("real_openrlhf.evaluation.command", "score a model on the benchmarks: pass@1 with standard errors"),
    "data": ("real_openrlhf.data.command", "write training sets and benchmarks as OpenRLHF's JSONL"),
    "grade": ("real_openrlhf.rewards.command", "verify the answers in a JSONL file"),
    "reward": ("real_openrlhf.training.reward_command", "try a reward function before a run"),
    "report": ("real_openrlhf.report.command", "make figures and tables from run folders"),
    "show": ("real_openrlhf.answers.command", "print answers that a run kept, with the weight of each one"),
    "patch": ("real_openrlhf.patching", "apply, revert or show the patches to OpenRLHF"),
    "doctor": ("real_openrlhf.machine.doctor", "check this machine: versions, patches, devices, Ray, vLLM"),
}


# The advice if a subcommand lacks a package. An extra of setup.py has its name; no extra can install training.
SET_UP = "In a checkout `bash examples/scripts/setup_env.sh cpu`, or `gpu`, installs all that training needs."
TO_DO = {"train": SET_UP, "compare": SET_UP, "patch": None, "doctor": None}


# The package that a subcommand needs, checked before it begins.
NEEDS = {"train": "openrlhf", "compare": "openrlhf", "eval": "vllm", "grade": "math_verify", "report": "matplotlib"}


def run(command: str, implementation: ModuleType, args: argparse.Namespace) -> int:
    needed = NEEDS.get(command)
    try:
        if needed and importlib.util.find_spec(needed) is None:
            raise ModuleNotFoundError(name=needed)
        return implementation.run(args)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        by_extra = f"Do `pip install 'real-openrlhf[{command}]'`; in a checkout, setup_env.sh installs everything."
        to_do = TO_DO.get(command, by_extra)
        if not to_do or missing == "real_openrlhf":
            raise
        raise UserError(f"{missing} is not installed. {to_do}") from error


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="real-openrlhf", description="REAL (Rewards as Labels) on OpenRLHF. `COMMAND --help` explains each."
    )
    parser.add_argument("--version", action="version", version=f"real_openrlhf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            implementation = importlib.import_module(module)
            implementation.configure(command)
    args = parser.parse_args(argv)
    return exit_code(args.command, lambda: run(args.command, implementation, args))


if __name__ == "__main__":
    sys.exit(main())
