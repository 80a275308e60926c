"""What can be refused before an evaluation loads a tokenizer, a model or vLLM; `compare` asks before it trains."""

import argparse
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.data.benchmarks import chosen
from real_openrlhf.evaluation.grading import VERIFIERS
from real_openrlhf.evaluation.tasks import LONGEST, context_of, file_records
from real_openrlhf.rewards.gym_tasks import require as require_gym
from real_openrlhf.training.checks.reward_check import reward_file_problem


def refuse(args: argparse.Namespace) -> None:
    """Raise for wrong numbers, an unknown grader or benchmark, and files that cannot be asked."""
    if not (args.temperature >= 0 and 0 < args.top_p <= 1):
        raise UserError("--temperature must be 0 or more, --top-p above 0 and at most 1. Change the one that is not")
    if args.grader == "gym":
        require_gym()
    elif args.grader.endswith(".py") and (wrong := reward_file_problem(Path(args.grader))):
        raise UserError(f"--grader {args.grader} {wrong}")
    elif args.grader not in VERIFIERS and not args.grader.endswith(".py"):
        raise UserError(
            f"unknown grader {args.grader}. There are: {', '.join(VERIFIERS)}, or a Python file with reward_func"
        )
    for file in map(Path, chosen(args.benchmarks)[1]):
        file_records(file)


def refuse_length(args: argparse.Namespace, model: Path) -> None:
    """Raise if an answer of --max-new-tokens cannot fit into the model's context whatever the prompt is."""
    limit = context_of(model)
    if args.max_new_tokens is not None and limit and args.max_new_tokens >= limit:
        raise UserError(
            f"--max-new-tokens {args.max_new_tokens}: the model's context is {limit}. Give less, or leave it out: "
            f"then it is {LONGEST} or what the context leaves"
        )
