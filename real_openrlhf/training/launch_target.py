"""Where a training runs: this machine or a Ray cluster. Its command, variables and processes, and what is missing."""

import contextlib
import importlib.util
import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.environment import writable
from real_openrlhf.base.parsing import number_of
from real_openrlhf.hooks.engine import plugin
from real_openrlhf.machine import free_gpus, nvidia
from real_openrlhf.recipes.run import Recipe, Run

TRAINER = ("-m", "openrlhf.cli.train_ppo_ray")
SET_UP = "bash examples/scripts/setup_env.sh"

QUOTED = "real_openrlhf.hooks.fixes.process_starts.quoted_python"  # Ray gives a shell the path of Python as it is

SPARE_CPUS = 2  # logical ones, for the controllers; Ray starts an idle worker for each

# DeepSpeed compiles its Adam on first use. All runs of this Python environment share the result in this folder.
EXTENSIONS = Path(sys.prefix) / "torch_extensions"

# Variables of a run. The user's own values win, except over NO_GPU and where a run finds its Ray.
CPU_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # a second thread makes the tiny model slower, and one of 135 M a third faster
    **plugin.ON_CPU,
    "TOKENIZERS_PARALLELISM": "false",  # tokenizers warn in forked processes
    "REAL_RAY_DASHBOARD": "0",  # it takes as long to start as the policy
    "RAY_USAGE_STATS_ENABLED": "0",
    # libgomp's threads spin for milliseconds at a barrier, on the core that the late thread needs
    "GOMP_SPINCOUNT": "1000",
}
# Ray gives each process the entries of its logical GPUs. CUDA ignores the list from the first negative number on.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ",".join(["-1"] * 64), "DS_ACCELERATOR": "cpu"}
# A run on this machine alone is closed to other machines. Ray listens on the loopback if clusters are switched off.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
# Ray 2.60 would show all GPUs to the controller and the driver's tasks, which ask for none.
ON_GPUS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}

THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class LaunchTarget:
    """This machine with a Ray of its own, or a cluster that is joined from here."""

    address: str | None
    gpus_here: int
    gpu_gb: float | None
    on_cpu: bool

    @classmethod
    def for_recipe(cls, recipe: Recipe) -> "LaunchTarget":
        address = os.environ.get("RAY_ADDRESS", "")
        count, gpu_gb = (0, None) if recipe.on_cpu else nvidia.local_gpus()
        return cls(None if address in ("", "local") else address, count, gpu_gb, recipe.on_cpu)

    @property
    def about(self) -> str:
        if self.address:
            return f"the Ray cluster {self.address} (RAY_ADDRESS)"
        return (
            "this machine, on CPU with logical GPUs"
            if self.on_cpu
            else f"this machine, {number_of(self.gpus_here, 'GPU')}"
        )

    def lacks(self, run: Run) -> str:
        """`0 of 8 GPUs`, if there are too few."""
        needed = run.layout.gpus
        return "" if self.on_cpu or self.gpus_here >= needed else f"{self.gpus_here} of {number_of(needed, 'GPU')}"

    def environment(self, run: Run) -> dict[str, str]:
        """All variables of the run's processes."""
        ours = {}
        if self.on_cpu:
            ours = {**CPU_ENVIRONMENT}
            if Path(run.args.actor.model_name_or_path).is_dir():
                ours["HF_HUB_OFFLINE"] = "1"
        elif self.address is None:
            ours = {**ON_GPUS}
            if run.args.ds.adam_offload:
                # DeepSpeed's Adam is a loop over threads: Ray would give each rank one
                ours[THREADS] = str(threads_each(run.layout.ranks // run.layout.policy_nodes))
        if (self.on_cpu or self.address is None) and writable(sys.prefix):
            # one folder a machine: drop_stale_locks sees no other's
            ours["TORCH_EXTENSIONS_DIR"] = str(EXTENSIONS / platform.node())
        environment = {**ours, **os.environ}
        for name, rest in nvidia.expandable_segments({} if self.on_cpu else environment).items():
            environment.pop(name)
            environment |= {name: rest} if rest else {}
        if self.address is None:
            environment = LOOPBACK | environment
            if shlex.quote(sys.executable) != sys.executable:
                environment.setdefault("RAY_RUNTIME_ENV_HOOK", QUOTED)
            environment["RAY_ADDRESS"] = "local"  # never join a Ray that somebody else started on this machine
            # OpenRLHF asks Ray for a core with every GPU. If Ray has fewer, it waits for ever without a word.
            cores = {"CPU": run.layout.gpus + SPARE_CPUS}
            if self.on_cpu:
                environment |= NO_GPU | {"RAY_OVERRIDE_RESOURCES": json.dumps({"GPU": run.layout.gpus} | cores)}
            else:  # Ray counts the GPUs
                environment.setdefault("RAY_OVERRIDE_RESOURCES", json.dumps(cores))
        return environment

    def take_gpus(self, count: int) -> dict[str, str]:
        """Free ones of this machine; variables for the processes that compute there."""
        return {} if self.on_cpu or self.address else free_gpus.take(count)

    def launch_problems(self, run: Run) -> Iterator[str]:
        """Reasons why the run cannot start here: too few GPUs, no ready cluster, or the wrong environment."""
        if self.address is None and run.args.ds.adam_offload and not shutil.which("g++"):
            yield "--ds.adam_offload: DeepSpeed compiles its Adam for the CPU, and there is no g++. Install it."
        if self.address is None and run.args.ds.use_liger_kernel and not importlib.util.find_spec("liger_kernel"):
            yield "--ds.use_liger_kernel: liger-kernel is not installed here. Install it, or leave the flag out."
        nodes, needed = run.layout.policy_nodes, run.layout.gpus
        apart = f" ({run.layout.engine_gpus} of the {needed} are for vLLM alone)" if run.layout.engine_gpus else ""
        if self.address:
            yield from self._ask_cluster(self.address, nodes, needed)
        elif self.on_cpu and not nvidia.environment_for_cpu():
            yield (
                f"this recipe is for CPU, and {sys.prefix} has vLLM's build for GPUs. Run `{SET_UP} cpu`, which makes "
                "another environment beside it and names it, or take a recipe for GPUs (--help lists them)."
            )
        elif nodes > 1:
            yield (
                f"--nodes {nodes} needs a Ray cluster. Start one (`ray start --head`, on the others `ray start "
                "--address=HEAD:6379`) and set RAY_ADDRESS to HEAD:6379."
            )
        elif self.lacks(run):
            for_cpu = f"; {sys.prefix} uses none, run `{SET_UP} gpu`" if nvidia.environment_for_cpu() else ""
            yield (
                f"this run needs {number_of(needed, 'GPU')}{apart}, this machine has {self.gpus_here}{for_cpu}. Ask "
                "for less with --gpus, take a recipe for fewer (`cpu` needs none), or name a cluster with RAY_ADDRESS."
            )
        if not self.on_cpu and self.address is None and needed > 1 and (too_small := nvidia.small_shared_memory()):
            yield too_small

    def _ask_cluster(self, address: str, nodes: int, needed: int) -> Iterator[str]:
        command = [sys.executable, "-m", "real_openrlhf.training.cluster", str(nodes), str(needed)]
        answer = None
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            if address == "auto":  # Ray would try the address of a cluster that is gone for two minutes, as any other
                address = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/ray_current_cluster").read_text().strip()
            host, _, port = address.rpartition("/")[2].rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=3).close()
            answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if answer and answer.returncode in (0, 2):
            yield from answer.stdout.split("\n")[:-1] if answer.returncode else ()
        else:
            yield f"the Ray cluster {address} does not answer. Set RAY_ADDRESS to HEAD:6379, and check `ray status`."


def threads_each(at_once: int) -> int:
    """Threads for each of the processes that compute at the same time."""
    return max(len(os.sched_getaffinity(0)) // max(at_once, 1), 1)
