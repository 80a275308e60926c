"""real-openrlhf: one command line, one module a subcommand, imported only when called."""

import importlib
import importlib.util
import sys

from real_openrlhf import __version__
from real_openrlhf.base.environment import find_home, hold_environment
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import Parser
from real_openrlhf.base.terminal import exit_code

# name -> (module with configure(parser) and run(args) -> exit code, the package that it needs, help)
COMMANDS = {
    "train": ("training.command", "openrlhf", "train with REAL or a baseline: recipe, algorithm, any OpenRLHF flag"),
    "compare": ("comparison.command", "openrlhf", "train algorithms x seeds, evaluate them, write the report"),
    "eval": ("evaluation.command", "vllm", "score a model on the benchmarks: pass@1 with standard errors"),
    "data": ("data.command", None, "write training sets and benchmarks as OpenRLHF's JSONL"),
    "grade": ("rewards.command", "math_verify", "verify the answers in a JSONL file"),
    "report": ("report.command", "matplotlib", "make figures and tables from run folders"),
    "show": ("report.show", None, "print responses of a step that a run kept, with their weights"),
    "patch": ("patching", None, "apply, revert or show the patches to OpenRLHF"),
    "doctor": ("machine.doctor", None, "check this machine: versions, patches, devices, Ray, vLLM"),
}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in argv if not word.startswith("-")), "")
    return exit_code(chosen, lambda: _main(argv, chosen))


def _main(argv: list[str], chosen: str) -> int:
    needed = COMMANDS[chosen][1] if chosen in COMMANDS else None
    try:
        return _run(argv, chosen, needed)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "real_openrlhf" or chosen in ("patch", "doctor"):
            raise
        # an extra of setup.py has its subcommand's name; no extra can install training
        alone = (
            "" if needed == "openrlhf" else f" For this command alone, do `pip install ./same_answer '.[{chosen}]'`."
        )
        to_do = f"In a checkout, `bash examples/scripts/setup_env.sh cpu` or `gpu` installs everything.{alone}"
        raise UserError(f"{missing} is not installed. {to_do}") from error


def _run(argv: list[str], chosen: str, needed: str | None) -> int:
    parser = Parser(
        prog="real-openrlhf", description="REAL (Rewards as Labels) on OpenRLHF. `COMMAND --help` explains each."
    )
    parser.add_argument("--version", action="version", version=f"real_openrlhf {__version__}")
    if chosen in COMMANDS:
        find_home()  # before any library reads it
    implementation = importlib.import_module(f"real_openrlhf.{COMMANDS[chosen][0]}") if chosen in COMMANDS else None
    kind = getattr(implementation, "PARSER", Parser)  # the one of the chosen command: no other parses
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=kind)
    for name, (_, _, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if implementation and name == chosen:
            implementation.configure(command)
    if not argv:
        parser.exit(2, f"{parser.format_help()}\nreal-openrlhf: error: the name of a command is missing\n")
    args, rest = parser.parse_known_args(argv)
    if rest:
        commands.choices[chosen].error(f"unrecognized arguments: {' '.join(rest)}")
    assert implementation
    if chosen in ("train", "compare", "eval"):
        hold_environment()
    if getattr(args, "rehearse", False):
        implementation = importlib.import_module("real_openrlhf.rehearsal.command")
    if needed and importlib.util.find_spec(needed) is None:
        raise ModuleNotFoundError(name=needed)
    return implementation.run(args)


if __name__ == "__main__":
    sys.exit(main())
