"""Models of other architectures end to end: random ones, with vLLM's own classes of Qwen3 and Gemma 3.

And the README's first command with another Python.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tiny_task import ReverseTask, make_tokenizer
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM

from every import every  # isort: skip
from small_runs import NO_EVALUATION  # isort: skip

SIZES = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
    head_dim=32, max_position_embeddings=64, bos_token_id=None, initializer_range=0.08,
)  # fmt: skip
GEMMA = dict(sliding_window=8, query_pre_attn_scalar=32, tie_word_embeddings=True)
MODELS = {
    "cpu-like-gpu": (Qwen3ForCausalLM, Qwen3Config, {}),
    "cpu": (Gemma3ForCausalLM, Gemma3TextConfig, GEMMA),
}
REWARD = '''
import zlib
def reward_func(queries, prompts, labels):
    """Every second answer is right: a random model has something to learn."""
    return {"rewards": [zlib.crc32(query.encode()) % 2 for query in queries]}
'''


@pytest.mark.parametrize("recipe", [pytest.param("cpu-like-gpu", marks=every), "cpu"])
def test_a_random_model_trains_and_vllm_has_its_weights(train_alone, tmp_path, recipe):
    model_class, config, own = MODELS[recipe]
    tokenizer = make_tokenizer(ReverseTask)
    ends = dict(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
    model_class(config(**SIZES, **own, **ends, vocab_size=len(tokenizer))).bfloat16().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "reward.py").write_text(REWARD)
    size = ("--rollout.batch_size", "8", "--train.batch_size", "32", "--max-steps", "2", *NO_EVALUATION)
    flags = ("--recipe", recipe, "--model", str(tmp_path), "--reward.remote_url", str(tmp_path / "reward.py"))
    data = ("--no-data.apply_chat_template",) if recipe == "cpu-like-gpu" else ()
    run = train_alone(
        f"random-{recipe}", *flags, *data, *size, "--actor.adam.lr", "3e-3", "--rollout.temperature", "1.0"
    )
    assert run.finite and min(run.values("actor_grad_norm")) > 0
    first, second = run.values("mismatch/mean")
    assert max(first, second) < 0.02  # the second step's answers are of the weights that the first one trained
    assert run.values("rollout/pass_rate")[0] > 0.2


PYTHON = os.environ.get("REAL_TEST_PYTHON")


@pytest.mark.skipif(not PYTHON, reason="set REAL_TEST_PYTHON to the Python that is to be tried")
def test_three_steps_with_another_python(tmp_path):
    """From the real index: REAL_TEST_PYTHON=/path/to/python3.12. It downloads gigabytes and takes minutes."""
    venv, runs = tmp_path / "venv", tmp_path / "runs"
    words = ["bash", Path(__file__).parents[2] / "examples/scripts/train_real_cpu.sh", "--max-steps", "3"]
    variables = {**os.environ, "REAL_PYTHON": PYTHON, "REAL_VENV": str(venv), "REAL_CACHE": str(tmp_path / "cache")}
    del variables["TORCH_EXTENSIONS_DIR"]
    result = subprocess.run([*words, "--runs-dir", runs, "--run-name", "three"], env=variables, text=True)
    assert result.returncode == 0
    lines = [json.loads(line) for line in (runs / "three/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["phase"] == "train"] == [1, 2, 3]
    examined = subprocess.run([venv / "bin/real-openrlhf", "doctor"], env=variables, text=True)
    assert examined.returncode == 0
