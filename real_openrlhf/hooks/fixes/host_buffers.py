"""Where a sleeping policy's moments wait in host memory, after a resume.

DeepSpeed keeps these buffers in the optimizer's state, so they are in its checkpoints. Torch loads a state to its
parameter's device: the buffers come back on the GPU, and each sleep then copies from the GPU to the GPU.
"""

from typing import Any

SUFFIX = "_offload_buffer"  # of deepspeed.runtime.zero.offload_states


def forget_host_buffers(optimizer: Any) -> None:
    """DeepSpeed makes them anew at the next sleep."""
    for state in optimizer.state.values():
        for name in [name for name in state if str(name).endswith(SUFFIX)]:
            del state[name]
