"""What a Ray cluster lacks for a run: Ray would wait for it without a word, or a node train unpatched.

`python -m real_openrlhf.training.cluster NODES GPUS` asks the cluster that RAY_ADDRESS names.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping

from real_openrlhf import patching
from real_openrlhf.base.errors import last_line
from real_openrlhf.base.parsing import number_of


def problems(offered: Iterable[Mapping[str, float]], nodes: int, needed: int) -> Iterator[str]:
    """`offered`: resources of each node. A core serves a GPU of its own node; the controllers take one anywhere."""
    pairs = [(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in offered]
    gpus, having = sum(count for _, count in pairs), sum(count > 0 for _, count in pairs)
    if gpus < needed or having < nodes:
        yield (
            f"this run needs {number_of(needed, 'GPU')} on {number_of(nodes, 'node')}, the cluster has {gpus} on "
            f"{having}. Add nodes with `ray start --address=HEAD:6379`, or ask for less with --gpus and --nodes."
        )
    elif (cores := min(sum(count for count, _ in pairs), sum(map(min, pairs)) + 1)) <= needed:
        yield (
            f"OpenRLHF asks Ray for a core with each of {number_of(needed, 'GPU')} and one more, the cluster offers "
            f"{cores}: it would wait for ever. Start the nodes with `ray start --num-cpus N`; the cores need not be "
            "real."
        )


def main() -> int:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(logging_level="ERROR", log_to_driver=False)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    lacking = [*problems([node["Resources"] for node in nodes], *map(int, sys.argv[1:3]))]
    check = ray.remote(num_cpus=0, max_retries=0)(patching.assert_applied)
    there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    answers = [check.options(scheduling_strategy=strategy).remote() for strategy in there]
    for node, answer in zip(nodes, answers, strict=True):  # an unpatched one trains OpenRLHF's batches, silently
        try:
            ray.get(answer, timeout=60)
        except Exception as error:
            lacking.append(f"node {node['NodeManagerAddress']} is not ready: {last_line(error)}")
    ray.shutdown()
    print(*lacking, sep="\n")
    return 2 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
