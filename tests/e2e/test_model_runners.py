"""vLLM as on a GPU: its second model runner (V2) beside the first, in a training that lets the engine sleep."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import forked_workers
import psutil
import pytest
from small_runs import NO_EVALUATION

from real_openrlhf.training import tiny_task

PLACE = Path(__file__).parents[1] / "gpu_engine"
FEW = ("--seed", "1", "--max-steps", "2", "--rollout.batch_size", "4", "--train.batch_size", "16")
FEW += ("--eval.n_samples_per_prompt", "1", "--eval.steps", "-1", "--no-eval.at_end")

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


@pytest.fixture(scope="module")
def train_as_on_gpus(train):
    """As `train`, with an engine whose runner is V2 and that sleeps."""
    own = {name: value for name, value in os.environ.items() if name != forked_workers.PYTHON}  # it has another Triton
    with forked_workers.started(own | {"PYTHONPATH": str(PLACE), "TRITON_INTERPRET": "1"}) as (python, environment):
        parent = subprocess.check_output([python, "-c", "import os; print(os.getppid())"], env=environment)
        yield replace(
            train, python=(python, *train.python[1:]), environment=environment, server=psutil.Process(int(parent))
        )


def draws(command) -> list:
    words = [command.python[0], "-c", DRAWS, str(tiny_task.unpack() / "model")]
    small = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    out = subprocess.run(
        words, env={**command.environment, **small}, capture_output=True, text=True, check=True
    ).stdout
    return json.loads(next(line for line in out.splitlines() if line.startswith('["vllm')))


def test_each_runner_draws_the_same_tokens_for_a_seed_in_any_batch_and_both_the_likeliest(train, train_as_on_gpus):
    first, second = draws(train), draws(train_as_on_gpus)
    assert [one[0] for one in (first, second)] == [
        "vllm.v1.worker.cpu_model_runner",
        "vllm.v1.worker.cpu.model_runner",
    ]
    for _, drawn, again, among_others, _ in (first, second):
        assert drawn == again and drawn[5:9] == among_others
    assert first[-1] == second[-1] and first[1] != second[1]  # other noise of the same seed


def test_both_runners_follow_the_policy_and_the_engine_wakes_in_the_right_order(train, train_as_on_gpus):
    """Weights wake before their hand-over, keys and values after it: by then the policy has given its memory back."""
    like_gpu = ("--recipe", "cpu-like-gpu", *FEW)
    first = train("v1", *like_gpu, *NO_EVALUATION)
    second = train_as_on_gpus("v2", *like_gpu, "--vllm.enable_sleep")
    assert "V2 Model Runner" in second.log
    assert first.values("rollout/prompts_crc") == second.values("rollout/prompts_crc")
    for run in (first, second):
        assert run.finite and max(run.values("sampling/logprob_diff_mean")) < 0.02
        assert max(run.values("real/score_drift")) < 1e-3
    calls = re.findall(r"engine: (sleep|reload|wake_up .*?)\s*$", second.log, re.MULTILINE)
    weights, keys, first_rollouts = "wake_up ['weights']", "wake_up ['kv_cache']", 2  # an evaluation's and a step's
    hand_over = [weights, "reload"]
    assert calls == ["sleep", *first_rollouts * [weights, keys, "sleep"], *hand_over, keys, "sleep", *hand_over]
