"""A Ray cluster of two nodes on one machine, asked before training: enough GPUs, and the patches on every node."""

import os
from pathlib import Path

import pytest
from every import every

from real_openrlhf import patching
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.launch.place import Place

PACKAGE = Path(patching.__file__).parents[1]
pytestmark = every  # three nodes start for half a minute


def problems(monkeypatch, address: str, nodes: int, gpus: int) -> list[str]:
    monkeypatch.setenv("RAY_ADDRESS", address)
    user = {"--actor.num_nodes": (str(nodes),), "--actor.num_gpus_per_node": (str(gpus),)}
    return [*Place.of(RECIPES["cpu"], None).problems(compose(RECIPES["cpu"], ALGORITHMS["real"], user))]


@pytest.fixture(scope="module")
def unpatched(tmp_path_factory):
    """A copy of OpenRLHF with the patches taken off, as a forgotten node would have it."""
    folder = tmp_path_factory.mktemp("unpatched")
    patching.export(folder)
    patching.revert(folder)
    return folder


@pytest.fixture(scope="module")
def cluster():
    """A head and one node beside it, both patched."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 1})
        made.add_node(num_cpus=1, num_gpus=1)
        yield made
        made.shutdown()


def test_two_patched_nodes_are_fine_and_too_few_gpus_are_told(cluster, monkeypatch):
    assert problems(monkeypatch, cluster.address, nodes=2, gpus=1) == []
    gpus, cores = problems(monkeypatch, cluster.address, nodes=2, gpus=4)
    assert "8 GPUs on 2 nodes are needed, the cluster has 2 on 2" in gpus and "--gpus" in gpus
    assert "a core with each of 8 GPUs and one more, the cluster offers 3" in cores and "--num-cpus" in cores


def test_the_node_without_patches_is_named_with_the_fix(cluster, monkeypatch, unpatched):
    shadow = os.pathsep.join([str(PACKAGE), str(unpatched)])
    node = cluster.add_node(num_cpus=1, num_gpus=1, env_vars={"PYTHONPATH": shadow})
    (problem,) = problems(monkeypatch, cluster.address, nodes=3, gpus=1)
    cluster.remove_node(node)
    assert f"{unpatched / 'openrlhf'} on node" in problem
    assert "does not carry the patches openrlhf-0.11.2" in problem
    assert "patching apply" in problem
