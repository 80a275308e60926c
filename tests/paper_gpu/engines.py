"""The wheels' libraries load, and vLLM configures each recipe's engine for this card: python engines.py"""

import asyncio
import itertools
import json
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from unittest import mock


class Configured(Exception):
    """An engine's arguments, where the engine itself would be made."""


def engine_of(recipe, folder: Path) -> object:
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
        ways = vllm_flags.enable_prefix_caching, vllm_flags.enforce_eager, args.data.max_len, object()
        ways += vllm_flags.gpu_memory_utilization, vllm_flags.enable_sleep, args.derived.logprobs_mode
        seeds = args.train.seed, args.train.full_determinism_enable
        most = {"max_num_seqs": vllm_flags.max_num_seqs}
        try:
            vllm_engine.create_vllm_engines(1, vllm_flags.tensor_parallel_size, str(folder), *seeds, *ways, **most)
        except Configured as made:
            return made.args[0]
    raise AssertionError("no engine was made")


def main() -> None:
    """Each recipe's engine, with vLLM's own choice of its runner and with its first one."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.attention.selector import get_attn_backend

    from real_openrlhf.forecast.memory import KNOWN_CONFIGS
    from real_openrlhf.recipes.recipes import RECIPES

    libraries = sorted(Path(next(iter(find_spec("vllm").submodule_search_locations))).rglob("*.abi3.so"))
    for library in libraries:
        torch.ops.load_library(library)
    recipes = [one for one in RECIPES.values() if not one.on_cpu]
    own = {"architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
    for recipe, runner in itertools.product(recipes, (None, "0")):
        os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
        os.environ |= {"VLLM_USE_V2_MODEL_RUNNER": runner} if runner else {}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(KNOWN_CONFIGS[recipe.model] | own))
            config = engine_of(recipe, Path(folder)).create_engine_config(UsageContext.ENGINE_CONTEXT)
        with set_current_vllm_config(config):
            attention = get_attn_backend(128, torch.bfloat16, None).__name__
        scheduler, graphs = config.scheduler_config, config.compilation_config.cudagraph_capture_sizes
        print(
            f"{recipe.name}: V{1 + config.use_v2_model_runner}, {scheduler.max_num_seqs} responses and "
            f"{scheduler.max_num_batched_tokens} tokens at once, graphs up to {max(graphs)}, "
            f"{config.model_config.logprobs_mode}"
        )
        assert type(current_platform).__name__ == "NvmlCudaPlatform" and config.model_config.enable_sleep_mode
        assert config.use_v2_model_runner == (runner is None) and attention == "FlashAttentionBackend"
    print(f"{len(libraries)} libraries, {len(recipes)} recipes by two runners, {attention}")


if __name__ == "__main__":
    main()
