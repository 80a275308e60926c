"""Do the kernels compile for this card (PAPER_CC)? Inductor, Triton and ptxas are real: compiles.py [for_hopper]

The three functions of the head (token_log_probs.py), forward and backward, with and without entropy, two temperatures.
"""

import os
import sys
import tempfile
import warnings
from pathlib import Path

cache = tempfile.mkdtemp()
os.environ |= {"TRITON_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
os.environ |= {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
os.environ.pop("TORCHDYNAMO_DISABLE", None)

import torch  # noqa: E402  it reads the environment
import triton  # noqa: E402
from triton import language as tl  # noqa: E402

from real_openrlhf.algorithm import token_log_probs as head  # noqa: E402


@triton.jit
def for_hopper(out):
    tl.store(out, tl.inline_asm_elementwise("wgmma.fence.sync.aligned; mov.b32 $0, 1;", "=r", [], tl.int32, False, 1))


def main(fault: str = "") -> None:
    if fault:
        for_hopper[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"))
    for entropy in (False, True):
        for temperature in (1.0, 0.6):
            hidden = torch.randn(40, 64).bfloat16().cuda().requires_grad_()
            weight = torch.randn(4096, 64).bfloat16().cuda().requires_grad_()
            labels = torch.randint(0, 4096, (40,)).cuda()
            with warnings.catch_warnings(record=True):
                log_probs, entropies = head.token_log_probs(
                    hidden, weight, labels, temperature=temperature, entropy=entropy
                )
                (log_probs.sum() + (entropies.sum() if entropy else 0)).backward()
            assert not head._uncompiled, head._uncompiled
    cubins = [*Path(cache).rglob("*.cubin")]
    assert len(cubins) >= 6, cubins
    print(f"{len(cubins)} cubins, none uncompiled", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
