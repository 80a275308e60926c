"""What OpenRLHF's training script calls of ours: flags and arguments, and the script itself around its `train`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from real_openrlhf.base.environment import hold_environment
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_text
from real_openrlhf.base.run_files import FINISHED
from real_openrlhf.flags.arguments import POLICY_LOSSES, add, resolve
from real_openrlhf.flags.refusals import notes
from real_openrlhf.flags.rules import unread
from real_openrlhf.rewards.variables import reward_variables

__all__ = ["POLICY_LOSSES", "add", "resolve", "run_training_script"]  # a patch calls these


def refuse_too_few_gpus(args: SimpleNamespace) -> None:
    """A started Ray waits for ever for GPUs that it has not; to a cluster of others nodes may still come."""
    import ray

    needed = args.derived.layout.gpus
    offered = int(ray.cluster_resources().get("GPU", 0))
    if offered >= needed:
        return
    message = f"this run needs {needed} GPUs at least, and Ray has {offered}"
    if os.environ.get("RAY_ADDRESS", "local") != "local":
        print(f"note: {message}: it waits until more nodes join", flush=True)
        return
    print(
        f"error: {message}: it would wait for ever. Give fewer --actor.num_gpus_per_node and --vllm.num_engines, or "
        "join a cluster with RAY_ADDRESS. Without a GPU: `real-openrlhf train --recipe cpu`",
        file=sys.stderr,
    )
    sys.exit(2)


def run_training_script(train: Callable[[SimpleNamespace], None], parse: Callable[[], SimpleNamespace]) -> None:
    """Run the training script. Refused flags give one line each on standard error, and exit code 2.

    At its end the script writes the file FINISHED into the run's folder.
    """
    try:
        args = parse()
        hold_environment()
    except UserError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    for note in notes(args):
        print(f"note: {note}", flush=True)
    if os.environ.get("RAY_ADDRESS") != "local":  # `real-openrlhf train` has refused those that its user typed
        for flag, what in unread([word.partition("=")[0] for word in sys.argv[1:]], args).items():
            print(f"note: {flag} is not read by this run: it needs {what}", flush=True)
    import ray

    start = ray.init

    def init(runtime_env: dict, **named: Any) -> Any:  # `train` below calls it, and then asks Ray for GPUs
        runtime_env["env_vars"] |= reward_variables()
        if os.environ.get("REAL_RAY_DASHBOARD") == "0":
            named["include_dashboard"] = False
        context = start(runtime_env=runtime_env, **named)
        refuse_too_few_gpus(args)
        return context

    ray.init = init
    if os.environ.get("RAY_ADDRESS") == "local":  # as `real-openrlhf train` sets it: this process starts a Ray
        from real_openrlhf.hooks.fixes.process_starts import wait_longer

        wait_longer()
    train(args)
    if args.train.run_dir:
        write_text(Path(args.train.run_dir) / FINISHED, [])
