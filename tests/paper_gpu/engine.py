"""vLLM's engine on a paper card: python engine.py [eager | graphs] [asleep]

It draws, sleeps, wakes by tag, and gets weights by CUDA IPC from this process through vLLM's messages, as a policy
sends them. `asleep` is a fault: the weights are sent before the engine is awake.
"""

import os
import sys

os.environ |= {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "VLLM_NO_USAGE_STATS": "1"}
os.environ |= {"VLLM_USE_FLASHINFER_SAMPLER": "0"}

import torch
from safetensors.torch import load_file
from torch.multiprocessing.reductions import reduce_tensor
from vllm import LLM, SamplingParams

from real_openrlhf.training import tiny_task

# without Inductor, whose kernels nobody computes
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 8]}


def used() -> float:
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 1e9


def main(how: str = "eager", fault: str = "") -> None:
    model = tiny_task.unpack() / "model"
    torch.ones(1, device="cuda")
    before = used()
    llm = LLM(
        str(model), enforce_eager=how == "eager", max_model_len=32, max_num_seqs=8, gpu_memory_utilization=0.3, seed=1,
        enable_sleep_mode=True, enable_prefix_caching=False,
        compilation_config=GRAPHS if how == "graphs" else None,
        worker_extension_cls="openrlhf.trainer.ray.vllm_worker_wrap.WorkerWrap",
    )  # fmt: skip

    def draws(temperature: float) -> list:
        prompts = [{"prompt_token_ids": [5 + row, 6, 7, 8]} for row in range(4)]
        ways = [SamplingParams(max_tokens=8, seed=row, temperature=temperature, logprobs=0) for row in range(4)]
        return [list(one.outputs[0].token_ids) for one in llm.generate(prompts, ways, use_tqdm=False)]

    def send(weights: dict[str, torch.Tensor]) -> None:
        card = str(torch.cuda.get_device_properties(0).uuid)
        for name, weight in weights.items():
            weight = weight.cuda()
            arguments = name, weight.dtype, weight.shape, {card: reduce_tensor(weight)}, False
            llm.collective_rpc("update_weight_cuda_ipc", args=arguments)

    weights = load_file(model / "model.safetensors")
    others = {name: weight.flip(0) if "lm_head" in name else weight for name, weight in weights.items()}
    first, likely, full = draws(1.0), draws(0.0), used()
    print("engine", llm.llm_engine.vllm_config.use_v2_model_runner and "V2", first, likely, flush=True)
    llm.sleep(1)
    asleep = used()
    if fault == "asleep":
        send(others)
    llm.wake_up(["weights"])
    partly = used()
    send(others)
    llm.wake_up(["kv_cache"])
    awake, other = used(), draws(0.0)
    send(weights)
    again = draws(1.0), draws(0.0)
    words = ", ".join(f"{one:.2f}" for one in (before, full, asleep, partly, awake))
    print(f"GB before, full, asleep, weights awake, awake: {words}", flush=True)
    assert asleep < before + 1.5 < full and asleep <= partly < full and abs(awake - full) < 0.1
    assert again == (first, likely)
    assert [row[0] for row in other] == [len(weights["lm_head.weight"]) - 1 - row[0] for row in likely]
    print(f"engine {how}: right", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
