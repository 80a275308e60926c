"""Checks of the machine: packages, compilers, the Ray cluster.

`python -m real_openrlhf.training.checks.preflight NODES GPUS [shared]` checks the Ray cluster in which it runs, with
`shared` also for vLLM on the policy's own GPUs.
"""

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.machine import nvidia
from real_openrlhf.recipes.run_flags import RunFlags

SHARED = "shared"  # the third word of `main`
MARK = "real_openrlhf preflight: "  # before each problem, in the log of a cluster's job
PACKAGES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
ATTENTION = "--ds.attn_implementation"


def kernel_problems(flags: RunFlags) -> Iterator[str]:
    """Packages and compilers that this machine lacks."""
    name = flags.args.ds.attn_implementation
    package = PACKAGES.get(name)
    if package and not importlib.util.find_spec(package):
        yield (
            f"{ATTENTION} {name} needs the package {package}, which is not installed. Give {ATTENTION} "
            "flash_attention_torch, which needs none."
        )
    if flags.args.ds.adam_offload and not shutil.which("g++"):
        yield "--ds.adam_offload: DeepSpeed compiles its Adam for the CPU, and there is no g++. Install it."


def existing(folder: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    full = Path(os.path.realpath(folder))
    return next(path for path in (full, *full.parents) if os.path.exists(path))


def cluster_problems(needed: int, nodes: int, shared: bool) -> Iterator[str]:
    """Find, from inside a Ray cluster, missing GPUs and cores, and nodes without the patches that a worker needs."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(logging_level="ERROR", log_to_driver=False)
    try:
        alive = [node for node in ray.nodes() if node["Alive"]]
        # A list, not a table by address: several nodes may share a machine.
        gpus = [(node["NodeManagerAddress"], int(node["Resources"].get("GPU", 0))) for node in alive]
        having = [count for _, count in gpus if count]
        if sum(having) < needed or len(having) < nodes:
            yield (
                f"{needed} GPUs on {nodes} nodes are needed, the cluster has {sum(having)} on {len(having)} "
                f"({', '.join(f'{address}: {count}' for address, count in gpus)}). Add nodes with "
                "`ray start --address=HEAD:6379`, or ask for less with --gpus and --nodes."
            )
        yield from core_problems([node["Resources"] for node in alive], needed)
        check = ray.remote(num_cpus=0, max_retries=0)(lambda: [*node_problems(shared)])
        there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in alive]
        checks = [check.options(scheduling_strategy=strategy).remote() for strategy in there]
        for node, answer in zip(alive, checks, strict=True):
            try:
                yield from ray.get(answer, timeout=120)
            except Exception as error:  # the package is missing there, or the node went away
                yield f"node {node['NodeManagerAddress']} cannot run real_openrlhf: {last_line(error)}"
    finally:
        ray.shutdown()


def core_problems(nodes: Iterable[Mapping[str, float]], needed: int) -> Iterator[str]:
    """A core serves a GPU of its own node only; the controllers take one anywhere."""
    cores = [(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in nodes]
    offered = sum(count for count, _ in cores)
    if sum(gpus for _, gpus in cores) >= needed:
        offered = min(offered, sum(map(min, cores)) + 1)
    if offered <= needed:
        yield (
            f"OpenRLHF asks Ray for a core with each of {needed} GPUs and one more, the cluster offers {offered}: it "
            "would wait for ever. Start the nodes with `ray start --num-cpus N`; the cores need not be real."
        )


def node_problems(shared: bool) -> Iterator[str]:
    """Runs on each node."""
    from real_openrlhf.patching import assert_applied

    try:
        assert_applied()
    except UserError as error:
        yield str(error)
        return
    for name, rest in nvidia.expandable_segments(os.environ if shared else {}).items():
        yield (
            f"{name} has {nvidia.EXPANDABLE} on node {platform.node()}: vLLM cannot be handed weights from such "
            f"segments. There type `{f'export {name}={rest}' if rest else f'unset {name}'}`, then `ray start` again."
        )


def main() -> int:
    nodes, gpus = map(int, sys.argv[1:3])
    problems = [*cluster_problems(gpus, nodes, shared=SHARED in sys.argv[3:])]
    for problem in problems:
        print(f"{MARK}{problem}")
    return 2 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
