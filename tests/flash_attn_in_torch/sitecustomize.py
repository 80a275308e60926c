"""On PYTHONPATH, in every process of a run: transformers may use the flash-attn beside this file without a GPU."""

import importlib.util
import sys
from importlib.abc import MetaPathFinder

ASKED = "transformers.modeling_utils"


class AfterImport(MetaPathFinder):
    """transformers asks for CUDA where it asks for flash-attn; once it is imported it does not."""

    def find_spec(self, name, path, target=None):
        if name != ASKED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_allow(module):
            execute(module)
            from transformers import modeling_flash_attention_utils

            modeling_flash_attention_utils.is_flash_attn_2_available = lambda *_, **__: True
            module.PreTrainedModel._flash_attn_can_dispatch = lambda *_, **__: True

        spec.loader.exec_module = execute_and_allow
        return spec


sys.meta_path.insert(0, AfterImport())
