"""vLLM as on a GPU: its second model runner (V2) beside the first. In training: test_first_day.py."""

import json
import os
import subprocess
from pathlib import Path

import forked_workers
from every import every

from real_openrlhf.training import tiny_task

PLACE = Path(__file__).parents[1] / "gpu_engine"

DRAWS = """
import json, sys
from vllm import LLM, SamplingParams

def main():
    llm = LLM(sys.argv[1], enforce_eager=True, max_model_len=32, max_num_seqs=16, gpu_memory_utilization=0.3, seed=1)
    def draw(rows, temperature=1.0):
        prompts = [{"prompt_token_ids": [5 + row // 4, 6, 7, 8]} for row in rows]
        how = [SamplingParams(max_tokens=12, seed=1000 + row, temperature=temperature) for row in rows]
        return [answer.outputs[0].token_ids for answer in llm.generate(prompts, how, use_tqdm=False)]
    runner = type(llm.llm_engine.model_executor.driver_worker.worker.model_runner).__module__
    print("\\n" + json.dumps([runner, draw(range(16)), draw(range(16)), draw(range(5, 9)), draw(range(16), 0.0)]))

main()
"""


def draws(python: str, environment: dict[str, str]) -> list:
    words = [python, "-c", DRAWS, str(tiny_task.unpack() / "model")]
    small = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    out = subprocess.run(words, env={**environment, **small}, capture_output=True, text=True, check=True).stdout
    return json.loads(next(line for line in out.splitlines() if line.startswith('["vllm')))


@every  # vLLM's own: a new pin can break it
def test_each_runner_draws_the_same_tokens_for_a_seed_in_any_batch_and_both_the_likeliest(forked):
    own = {name: value for name, value in os.environ.items() if name != forked_workers.PYTHON}  # it has another Triton
    with forked_workers.started(own | {"PYTHONPATH": str(PLACE), "TRITON_INTERPRET": "1"}) as on_gpus:
        first, second = draws(*forked), draws(*on_gpus)
    assert [one[0] for one in (first, second)] == [
        "vllm.v1.worker.cpu_model_runner",
        "vllm.v1.worker.cpu.model_runner",
    ]
    for _, drawn, again, among_others, _ in (first, second):
        assert drawn == again and drawn[5:9] == among_others
    assert first[-1] == second[-1] and first[1] != second[1]  # other noise of the same seed
