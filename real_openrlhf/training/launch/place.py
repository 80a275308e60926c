"""Where a training runs: this machine or a Ray cluster; with which command and environment, and what it lacks."""

import json
import os
import platform
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.files import parsed
from real_openrlhf.machine import nvidia
from real_openrlhf.recipes.plan import Plan
from real_openrlhf.recipes.setting import Recipe
from real_openrlhf.training.checks import memory_estimate, preflight
from real_openrlhf.training.launch import forked_workers
from real_openrlhf.training.tasks import smollm2

TRAINER = ("-m", "openrlhf.cli.train_ppo_ray")
RAY_CLI = ("-m", "ray.scripts.scripts")
SET_UP = "bash examples/scripts/setup_env.sh"

SPARE_CPUS = 2  # logical ones, for the controllers; Ray starts an idle worker for each

# DeepSpeed compiles its Adam on first use: once for this environment, not again for each one on the machine.
EXTENSIONS = Path(sys.prefix) / "torch_extensions"

# Variables for a machine without a GPU, unless the user sets them.
CPU_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's worker within its process: one import of vLLM less
    "TORCHDYNAMO_DISABLE": "1",  # compiling costs half a minute and gains nothing on a tiny model
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TORCH_EXTENSIONS_DIR": str(EXTENSIONS),
    "REAL_RAY_DASHBOARD": "0",  # its processes take as long to start as the policy
    "VLLM_NO_USAGE_STATS": "1",
}


# Whatever the user says: a recipe for CPU touches no GPU. Ray hands each process its part of the list, by
# its logical GPUs, and for CUDA the list of devices ends at the first negative number.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ",".join(["-1"] * 64), "DS_ACCELERATOR": "cpu"}

# A run of this machine's alone listens where only this machine can ask. Ray takes the loopback where clusters are off.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}


THREADS = "OMP_NUM_THREADS"
# Parameters. With two threads a forward and backward takes 0.87 of the time at 0.1 M, 0.68 at 1.3 M, 0.63 at 82 M; a
# decoding step 1.02, 1.01 and 0.75 (plain transformers, 16 sequences of 32 tokens, paired rounds on two cores).
SMALL = 1_000_000


@dataclass(frozen=True)
class Place:
    """This machine with a Ray of its own, or a cluster: joined from here, or handed a job over HTTP."""

    address: str | None
    working_dir: Path | None
    gpus_here: int
    gpu_gb: float | None
    on_cpu: bool

    @classmethod
    def of(cls, recipe: Recipe, working_dir: Path | None) -> "Place":
        address = os.environ.get("RAY_ADDRESS", "")
        count, gpu_gb = (0, None) if recipe.on_cpu else preflight.local_gpus()
        return cls(
            address=None if address in ("", "local") else address,
            working_dir=working_dir,
            gpus_here=count,
            gpu_gb=gpu_gb,
            on_cpu=recipe.on_cpu,
        )

    @property
    def job_address(self) -> str | None:
        """Where to hand in a job, if that is the way."""
        return self.address if self.address and self.address.startswith("http") else None

    @property
    def about(self) -> str:
        if self.job_address:
            return f"a job on the Ray cluster {self.job_address}"
        if self.address:
            return f"the Ray cluster {self.address} (RAY_ADDRESS)"
        return "this machine, on CPU with logical GPUs" if self.on_cpu else f"this machine, {self.gpus_here} GPUs"

    def threads(self, plan: Plan) -> str:
        """The threads of each process, and the reason, for a dry run."""
        if not self.on_cpu:
            return "the libraries' own choice"
        if own := os.environ.get(THREADS):
            return f"{own} a process, by your {THREADS}"
        count, why = thread_choice(plan)
        return f"{count} a process: {why}"

    def command(self, words: list[str], job: str = "NAME", python: str = sys.executable) -> list[str]:
        """The process to start here for `python WORDS`."""
        if not self.job_address:
            return [python, *words]
        shipped = ["--working-dir", str(self.working_dir)] if self.working_dir else []
        submit = [sys.executable, *RAY_CLI, "job", "submit", "--address", self.job_address, "--submission-id", job]
        return [*submit, *shipped, "--", "python", *words]

    def environment(self, plan: Plan) -> dict[str, str]:
        """The user's own variables win over ours."""
        ours = {}
        if self.on_cpu:
            ours = CPU_ENVIRONMENT | {THREADS: str(thread_choice(plan)[0])}
            if "--rollout.seeded" in plan.flags:
                ours["REAL_REPEATABLE_ENGINE"] = "1"
            if Path(plan.text("--actor.model_name_or_path")).is_dir():
                ours["HF_HUB_OFFLINE"] = "1"
        elif self.address is None and os.access(sys.prefix, os.W_OK):
            # DeepSpeed compiles its Adam for offloaded states there: stale locks of this machine are told from others'
            ours = {"TORCH_EXTENSIONS_DIR": str(EXTENSIONS / platform.node())}
        environment = {**ours, **os.environ}
        if self.address is None:
            environment = {**LOOPBACK, **environment}
            environment["RAY_ADDRESS"] = "local"  # never join a Ray that somebody else started on this machine
            # OpenRLHF asks for a core with every GPU; with fewer Ray would wait for ever, saying nothing.
            cores = {"CPU": plan.gpus + SPARE_CPUS}
            if self.on_cpu:
                environment.setdefault(forked_workers.WANTED, "1")
                environment |= NO_GPU | {"RAY_OVERRIDE_RESOURCES": json.dumps({"GPU": plan.gpus} | cores)}
            else:  # Ray counts the GPUs
                environment.setdefault("RAY_OVERRIDE_RESOURCES", json.dumps(cores))
        return environment

    def problems(self, plan: Plan) -> list[str]:
        """Too few GPUs, a cluster that is not ready, or the other kind of environment."""
        nodes, needed = plan.layout[0], plan.gpus
        apart = f" ({plan.engine_gpus} of the {needed} are for vLLM alone)" if plan.engine_gpus else ""
        if self.address:
            return self._ask_cluster(self.address, nodes, needed)
        if self.on_cpu and not nvidia.environment_for_cpu():
            return [
                f"this recipe is for CPU, and {sys.prefix} has vLLM's build for GPUs. Run `{SET_UP} cpu`, which makes "
                "another environment beside it and names it, or take a recipe for GPUs (--help lists them)."
            ]
        if not self.on_cpu and nvidia.environment_for_cpu():
            return [
                f"{needed} GPUs are needed{apart}, and {sys.prefix} is an environment for CPU, which uses none. Where "
                f"the GPUs are, run `{SET_UP} gpu` and activate what it names. `--recipe cpu` needs no GPU."
            ]
        if nodes > 1:
            return [
                f"--nodes {nodes} needs a Ray cluster. Start one (`ray start --head`, on the others `ray start "
                "--address=HEAD:6379`) and set RAY_ADDRESS to HEAD:6379, or to http://HEAD:8265 to submit a job."
            ]
        if not self.on_cpu and self.gpus_here < needed:
            return [
                f"{needed} GPUs are needed, this machine has {self.gpus_here}{apart}. Ask for less with --gpus, take "
                "a recipe for fewer (--help lists them; `cpu` needs none), or name a cluster with RAY_ADDRESS."
            ]
        return []

    def _ask_cluster(self, address: str, nodes: int, needed: int) -> list[str]:
        if not _answers(address):
            return [f"nothing answers at RAY_ADDRESS {address}. Start the cluster there, or unset RAY_ADDRESS."]
        question = ["-m", "real_openrlhf.training.checks.preflight", str(nodes), str(needed)]
        command = self.command(question, job=f"preflight-{time.time_ns()}")
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return [f"the Ray cluster {address} did not answer in 300 s. Check RAY_ADDRESS and `ray status`."]
        output = (answer.stdout + answer.stderr).splitlines()
        problems = [line.partition(preflight.MARK)[2] for line in output if preflight.MARK in line]
        if answer.returncode and not problems:
            last = output[-1].strip() if output else f"exit code {answer.returncode}"
            problems = [f"the Ray cluster {address} cannot be used: {last}. Check RAY_ADDRESS and `ray status`."]
        return problems

    def stop(self, job: str) -> None:
        """A job outlives the process that submitted it."""
        if self.job_address:
            stop = [sys.executable, *RAY_CLI, "job", "stop", "--address", self.job_address, job]
            subprocess.run(stop, check=False)


def _answers(address: str) -> bool:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition("//")[2].rstrip("/").rpartition(":")
    if not host:
        return True  # `auto`: Ray looks for it
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError):
        return False
    return True


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0))


def threads_each(at_once: int) -> int:
    """Threads for each of so many processes."""
    return max(cores() // max(at_once, 1), 1)


def thread_choice(plan: Plan) -> tuple[int, str]:
    """(threads of each process, why). The user's own variable wins over it."""
    ranks, size = plan.layout[0] * plan.layout[1], parameters(plan.text("--actor.model_name_or_path"))
    engines = plan.number("--vllm.num_engines") * plan.number("--vllm.tensor_parallel_size")
    if size is not None and size < SMALL:
        return (
            1,
            f"the model has {size / 1e6:.1f} M parameters: under {SMALL / 1e6:.0f} M a second thread gains little",
        )
    if "--train.async_enable" in plan.flags:
        at_once, why = ranks + engines, f"{engines} engines generate while {ranks} ranks train"
    else:
        at_once, why = max(ranks, engines), f"generation ({engines} engines) and training ({ranks} ranks) take turns"
    return threads_each(at_once), f"{cores()} cores; {why}"


def parameters(model: str) -> int | None:
    """Parameters of a model that is here, or will be made; None: unknown, so not a tiny one."""
    folder = Path(model).expanduser()
    if not folder.exists() and not preflight.HUB_ID.fullmatch(model):
        return smollm2.PARAMETERS if smollm2.NAME in model else 0  # made before training starts
    try:
        shape = memory_estimate.shape_of(parsed((folder / "config.json").read_bytes()))
    except (OSError, ValueError, AttributeError):
        return None
    return shape.parameters if shape else None
