"""real-openrlhf: one command line, one module a subcommand, imported only when called."""

import argparse
import importlib
import sys

from real_openrlhf import __version__
from real_openrlhf.errors import exit_code

# name -> (module with configure(parser) and run(args) -> exit code, help)
COMMANDS = {
    "train": (
        "real_openrlhf.training.command",
        "train with REAL or a baseline: a recipe, an algorithm, any OpenRLHF flag",
    ),
    "compare": ("real_openrlhf.comparison.command", "algorithms x seeds on the CPU stack, then the report"),
    "eval": ("real_openrlhf.evaluation.command", "pass@1 over k samples on the benchmarks, with standard errors"),
    "data": ("real_openrlhf.data.command", "training sets and benchmarks as OpenRLHF's JSONL"),
    "grade": ("real_openrlhf.rewards.command", "verify the answers in a JSONL file"),
    "report": ("real_openrlhf.report.command", "figures and tables from run folders"),
    "patch": ("real_openrlhf.patching", "apply, revert or show the patches to OpenRLHF"),
    "doctor": ("real_openrlhf.doctor", "check this machine: versions, patches, devices, Ray, vLLM"),
}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="real-openrlhf", description="REAL (Rewards as Labels) on OpenRLHF.")
    parser.add_argument("--version", action="version", version=f"real_openrlhf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            implementation = importlib.import_module(module)
            implementation.configure(command)
    args = parser.parse_args(argv)
    return exit_code(args.command, lambda: implementation.run(args))


if __name__ == "__main__":
    sys.exit(main())
