"""The wheels for GPUs, without a GPU: `python tests/gpu_wheels.py` of their environment, once a week in the workflow.

vLLM's CUDA libraries load against a stub of the driver; then vLLM configures each recipe's engine for faked cards.
Nothing is computed.
"""

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest import mock

CARDS = {"H100": (9, 0), "B200": (10, 0), "RTX PRO 6000": (12, 0)}
STUB, FOLDER = "libcuda.so.1", "GPU_WHEELS_FOLDER"


def stub(folder: Path, libraries: list[Path]) -> None:
    """A driver that answers every call with CUDA_ERROR_NO_DEVICE."""
    symbols = subprocess.check_output(["nm", "-D", "--undefined-only", *libraries], text=True)
    names = sorted(set(re.findall(r" U (cu[A-Z]\w*)$", symbols, re.MULTILINE)))
    text = "".join(f"int {name}(void) {{ return 100; }}\n" for name in names)
    words = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{STUB}", "-x", "c", "-", "-o", str(folder / STUB)]
    subprocess.run(words, input=text, text=True, check=True)
    print(f"driver    a stub of {len(names)} functions")


def fake(name: str, capability: tuple[int, int]) -> None:
    import torch

    # vLLM asks NVML while it is imported
    package = sys.modules["vllm.third_party"] = ModuleType("vllm.third_party")
    package.__path__ = [f"{find_spec('vllm').submodule_search_locations[0]}/third_party"]
    pynvml = import_module("vllm.third_party.pynvml")
    memory = type("Memory", (), {"total": 85_520_000_000, "free": 85_000_000_000, "used": 520_000_000})
    sizes = {"name": name, "total_memory": memory.total, "major": capability[0], "minor": capability[1]}
    card = type("Card", (), {**sizes, "multi_processor_count": 132})
    for owner, answers in {
        torch.cuda: {
            "is_available": True,
            "device_count": 1,
            "current_device": 0,
            "get_device_properties": card,
            "get_device_capability": capability,
            "get_device_name": name,
        },
        pynvml: {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": 0,
            "nvmlDeviceGetCudaComputeCapability": capability,
            "nvmlDeviceGetName": name,
            "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetUUID": "GPU-0",
            "nvmlSystemGetDriverVersion": "580.95",
        },
    }.items():
        for function, answer in answers.items():
            setattr(owner, function, lambda *_, answer=answer, **__: answer)


class Configured(Exception):
    """An engine's arguments, where the engine itself would be made."""


def engine_of(recipe) -> object:
    """What OpenRLHF asks of vLLM for this recipe."""
    import vllm
    from openrlhf.trainer.ray import vllm_engine

    from real_openrlhf.recipes.algorithms import ALGORITHMS
    from real_openrlhf.recipes.run import compose

    def stopped(arguments: object) -> None:
        raise Configured(arguments)

    def make(**named: object) -> None:
        asyncio.run(actor.__init__(object.__new__(actor), **named))

    actor = vllm_engine.RolloutRayActor.__ray_metadata__.modified_class
    run = compose(recipe, ALGORITHMS["real"], {}, launcher={})
    args, vllm_flags = run.args, run.args.vllm
    with (
        mock.patch.object(vllm.AsyncLLMEngine, "from_engine_args", stopped),
        mock.patch.object(vllm_engine, "PlacementGroupSchedulingStrategy", lambda **_: None),
        mock.patch.object(vllm_engine, "RolloutRayActor") as ray_actor,
    ):
        ray_actor.options.return_value.remote = make
        try:
            vllm_engine.create_vllm_engines(
                1,
                vllm_flags.tensor_parallel_size,
                str(model_folder(recipe.model)),
                args.train.seed,
                args.train.full_determinism_enable,
                vllm_flags.enable_prefix_caching,
                vllm_flags.enforce_eager,
                args.data.max_len,
                object(),
                vllm_flags.gpu_memory_utilization,
                vllm_flags.enable_sleep,
                args.derived.logprobs_mode,
                max_num_seqs=vllm_flags.max_num_seqs,
            )
        except Configured as made:
            return made.args[0]
    raise AssertionError("no engine was made")


def model_folder(name: str) -> Path:
    from real_openrlhf.forecast.memory import KNOWN_CONFIGS

    folder = Path(os.environ[FOLDER]) / name.rpartition("/")[2]
    folder.mkdir(exist_ok=True)
    own = {"architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(KNOWN_CONFIGS[name] | own))
    return folder


def configure(card: str) -> None:
    """Each recipe's engine with this card, with vLLM's own choice of its runner and with its first one."""
    fake(card, CARDS[card])
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.attention.selector import get_attn_backend

    from real_openrlhf.recipes.recipes import RECIPES

    for recipe, runner in itertools.product([one for one in RECIPES.values() if not one.on_cpu], (None, "0")):
        os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
        os.environ |= {"VLLM_USE_V2_MODEL_RUNNER": runner} if runner else {}
        config = engine_of(recipe).create_engine_config(UsageContext.ENGINE_CONTEXT)
        with set_current_vllm_config(config):
            attention = get_attn_backend(128, torch.bfloat16, None).__name__
        scheduler, graphs = config.scheduler_config, config.compilation_config.cudagraph_capture_sizes
        print(
            f"ok        {card}, {recipe.name}: V{1 + config.use_v2_model_runner}, {attention}, "
            f"{scheduler.max_num_seqs} responses and {scheduler.max_num_batched_tokens} tokens at once, graphs up to "
            f"{max(graphs)}, sleep {config.model_config.enable_sleep_mode}, {config.model_config.logprobs_mode}"
        )
        assert type(current_platform).__name__ == "NvmlCudaPlatform" and config.model_config.enable_sleep_mode
        assert config.use_v2_model_runner == (runner is None) and attention == "FlashAttentionBackend"


def main() -> None:
    vllm = Path(next(iter(find_spec("vllm").submodule_search_locations)))
    libraries = sorted(vllm.rglob("*.abi3.so"))
    if FOLDER not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            stub(Path(folder), libraries)
            own = {FOLDER: folder, "LD_PRELOAD": f"{folder}/{STUB}", "RAY_ADDRESS": "none", "HF_HUB_OFFLINE": "1"}
            for words in ([], *([card] for card in CARDS)):
                subprocess.run([sys.executable, __file__, *words], env=os.environ | own, check=True)
    elif sys.argv[1:]:
        configure(sys.argv[1])
    else:
        import torch

        for library in libraries:
            torch.ops.load_library(library)
            print(f"ok        {library.relative_to(vllm)}")


if __name__ == "__main__":
    main()
