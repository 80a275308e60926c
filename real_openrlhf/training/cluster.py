"""What a Ray cluster lacks for a run; Ray would wait for it without a word.

`python -m real_openrlhf.training.cluster NODES GPUS` asks the cluster that RAY_ADDRESS names.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping


def problems(offered: Iterable[Mapping[str, float]], nodes: int, needed: int) -> Iterator[str]:
    """`offered`: resources of each node. A core serves a GPU of its own node; the controllers take one anywhere."""
    pairs = [(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in offered]
    gpus, having = sum(count for _, count in pairs), sum(count > 0 for _, count in pairs)
    if gpus < needed or having < nodes:
        yield (
            f"{needed} GPUs on {nodes} nodes are needed, the cluster has {gpus} on {having}. Add nodes with "
            "`ray start --address=HEAD:6379`, or ask for less with --gpus and --nodes."
        )
    elif (cores := min(sum(count for count, _ in pairs), sum(map(min, pairs)) + 1)) <= needed:
        yield (
            f"OpenRLHF asks Ray for a core with each of {needed} GPUs and one more, the cluster offers {cores}: it "
            "would wait for ever. Start the nodes with `ray start --num-cpus N`; the cores need not be real."
        )


def main() -> int:
    import ray

    ray.init(logging_level="ERROR", log_to_driver=False)
    offered = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    ray.shutdown()
    lacking = [*problems(offered, *map(int, sys.argv[1:3]))]
    print(*lacking, sep="\n")
    return 2 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
