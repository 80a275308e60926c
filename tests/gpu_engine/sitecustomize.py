"""With this folder on PYTHONPATH vLLM works on a CPU as on a GPU: it may sleep. With TRITON_INTERPRET=1 it takes its
second model runner (V2), as wherever it has Triton.

vLLM has that runner for CPUs, but no Triton there: it asks for a GPU's driver. Triton's interpreter needs none. Sleep
frees nothing on a CPU; each call that an engine gets is printed.
"""

import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def with_triton(importing: ModuleType) -> None:
    if "TRITON_INTERPRET" not in os.environ:
        return
    global language
    import triton
    from triton import language  # the interpreter seeks it among the module's names
    from triton.language.extra import libdevice

    @triton.jit
    def log1p(x):  # the interpreter has none
        above = 1.0 + x
        return language.where(above == 1.0, x, language.log(above) * (x / (above - 1.0)))

    libdevice.log1p, importing.HAS_TRITON = log1p, True


def may_sleep(interface: ModuleType) -> None:
    interface.Platform.is_sleep_mode_available = lambda self: True


def accepted(refusals: ModuleType) -> None:
    refusals.gpu_problems = lambda args: ()


def told(owner: Any, name: str) -> None:
    function = getattr(owner, name)

    def call(*args: Any, **named: Any) -> Any:
        print(f"engine: {name} {named.get('tags') or ''}".strip(), flush=True)
        return function(*args, **named)

    setattr(owner, name, call)


def tells(worker: ModuleType) -> None:
    told(worker.CPUWorker, "sleep")
    told(worker.CPUWorker, "wake_up")


AFTER: dict[str, Callable[[ModuleType], None]] = {
    "vllm.triton_utils.importing": with_triton,
    "vllm.platforms.interface": may_sleep,
    "vllm.v1.worker.cpu_worker": tells,
    "real_openrlhf.hooks.cpu.vllm": lambda weights: told(weights, "reload"),
    "real_openrlhf.flags.refusals": accepted,
}


class Changed(MetaPathFinder):
    def find_spec(self, name: str, path: Any, *rest: Any) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in AFTER else None
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                AFTER[name](module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Changed())
