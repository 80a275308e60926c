"""With seeds on a CPU, vLLM draws the same for a request whether it is alone or beside others, in any company."""

import subprocess
import sys

from every import every

PROGRAM = """
import os, sys
os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", TORCHDYNAMO_DISABLE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
    REAL_REPEATABLE_ENGINE="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams
from real_openrlhf.hooks.fixes.repeatable_engine import READING

torch.manual_seed(0)
sizes = dict(vocab_size=4096, hidden_size=576, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=9)
LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=3)).bfloat16().save_pretrained(sys.argv[1])
llm = LLM(sys.argv[1], skip_tokenizer_init=True, max_model_len=160, dtype="bfloat16", enforce_eager=True,
    enable_prefix_caching=True, seed=0)
prompts = [[(7 * place + 31 * number) % 4000 for place in range(90 + number)] for number in range(4)]

def drawn(size, tag):
    def ask(pairs, **named):
        params = [SamplingParams(detokenize=False, extra_args={READING: f"{tag}{one}"}, **own(two), **named)
            for one, two in pairs]
        return llm.generate([{"prompt_token_ids": prompts[one]} for one, _ in pairs], params, use_tqdm=False)
    own = lambda two: {"temperature": 0.0, "max_tokens": 1} if two is None else {"seed": two, "max_tokens": 8}
    ask([(one, None) for one in range(4)])
    pairs, found = [(one, two) for one in range(4) for two in range(4)], []
    for start in range(0, 16, size):
        for answer in ask(pairs[start : start + size], logprobs=0):
            output = answer.outputs[0]
            found.append([(token, place[token].logprob) for token, place in zip(output.token_ids, output.logprobs)])
    return found

together = drawn(16, "a")
print("EQUAL", [drawn(size, tag) == together for size, tag in ((5, "b"), (1, "c"))])
"""


@every
def test_a_request_alone_draws_what_it_draws_beside_others(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert "EQUAL [True, True]" in done.stdout, done.stdout[-500:] + done.stderr[-2000:]
