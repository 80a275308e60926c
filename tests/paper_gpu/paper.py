"""What Python does on paper cards: imported by paper_gpu.pth where PAPER_COMPUTE is set. After a module below has been
imported, it is made ready. The operators are in operators.py, vLLM's in vllm_operators.py."""

import importlib
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder


def operators(torch) -> None:
    importlib.import_module("operators").install(torch)


def vllm_operators(_) -> None:
    importlib.import_module("vllm_operators").install()


def interpreter(module) -> None:
    """Triton's interpreter works on the tensors where they are: a card's memory is the host's."""
    module.GridExecutor._init_args_hst = lambda self, args, kwargs: (list(args), dict(kwargs))
    module.GridExecutor._restore_args_dev = lambda self, *_: None


def log1p(importing) -> None:
    if os.environ.get("TRITON_INTERPRET") == "1" and importing.HAS_TRITON:
        global language
        import triton
        from triton import language  # the interpreter seeks it among the module's names
        from triton.language.extra import libdevice

        @triton.jit
        def function(x):  # the interpreter has none
            above = 1.0 + x
            return language.where(above == 1.0, x, language.log(above) * (x / (above - 1.0)))

        libdevice.log1p = function


def without_kernel(sampler) -> None:
    """Its top-k kernel, for which the interpreter lacks a part: PyTorch's operators in its place."""
    sampler.apply_top_k_top_p_triton = sampler.apply_top_k_top_p_pytorch


def our_runtime(wrapper) -> None:
    """torchvision brings another copy of CUDA's runtime, which vLLM's sleep would find first."""
    wrapper.find_loaded_library = lambda name: os.environ["VLLM_CUDART_SO_PATH"]


AFTER = {
    "vllm.distributed.device_communicators.cuda_wrapper": our_runtime,
    "torch": operators,
    "triton.runtime.interpreter": interpreter,
    "vllm.triton_utils.importing": log1p,
    "vllm.v1.sample.ops.topk_topp_sampler": without_kernel,
    "vllm._custom_ops": vllm_operators,
    "vllm.vllm_flash_attn.flash_attn_interface": vllm_operators,
}


class After(MetaPathFinder):
    def find_spec(self, name, path, *rest):
        spec = PathFinder.find_spec(name, path) if name in AFTER else None
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module) -> None:
                load(module)
                AFTER[name](module)

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, After())
