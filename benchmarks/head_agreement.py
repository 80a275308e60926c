"""Which head agrees better with the sampler: log-probabilities of vLLM's own samples, scored three ways.

vLLM draws from a bf16 model and says what log-probability each of its tokens had; OpenRLHF's Actor scores the same
tokens from the same weights by its logits, by `--ds.logit_free` with `--ds.head_dtype model`, and with `fp32`. Weights
are random, of a size at which a token's log-probability is a few nats, unless a model is given.

    python benchmarks/head_agreement.py
    python benchmarks/head_agreement.py --model FOLDER --vocabulary 15
"""

import argparse
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

WAYS = {"logits": (False, None), "logit-free, model": (True, "model"), "logit-free, fp32": (True, "fp32")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder of weights instead of random ones")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=1.0)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or random_model(Path(folder), args)
        rollouts = sampled(model, args)
        print(f"{sum(len(found) for _, _, found in rollouts)} tokens, {args.vocabulary} words, bf16")
        print("| head | mean difference, nats | mean size of a difference | largest | size of a response's mean |")
        print("|---|---:|---:|---:|---:|")
        for name, (logit_free, head_dtype) in WAYS.items():
            gaps = scored(model, rollouts, args.temperature, logit_free, head_dtype)
            every, means = torch.cat(gaps), torch.stack([gap.mean() for gap in gaps])
            sizes = every.abs()
            print(
                f"| {name} | {every.mean():+.6f} | {sizes.mean():.6f} | {sizes.max():.4f} | {means.abs().mean():.6f} |"
            )


def random_model(folder: Path, args) -> str:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=args.vocabulary, hidden_size=args.width, intermediate_size=4 * args.width, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    torch.nn.init.normal_(model.lm_head.weight, 0, 3 / args.width**0.5)  # logits as wide as a trained model's
    torch.nn.init.normal_(model.model.embed_tokens.weight, 0, 1)
    model.to(torch.bfloat16).save_pretrained(folder)
    return str(folder)


def sampled(model: str, args) -> list[tuple[list[int], list[int], list[float]]]:
    """(prompt, response, vLLM's log-probability of each token of the response)."""
    import torch
    from vllm import LLM, SamplingParams

    draw = torch.Generator().manual_seed(1)
    low = min(3, args.vocabulary - 1)
    prompts = torch.randint(low, args.vocabulary, (args.prompts, 5), generator=draw).tolist()
    llm = LLM(
        model, dtype="bfloat16", enforce_eager=True, max_model_len=5 + args.new_tokens, seed=0,
        skip_tokenizer_init=True, logprobs_mode="processed_logprobs", max_logprobs=1,
    )  # fmt: skip
    how = SamplingParams(
        temperature=args.temperature, max_tokens=args.new_tokens, logprobs=0, detokenize=False, ignore_eos=True, seed=7
    )
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], how, use_tqdm=False)
    rollouts = []
    for prompt, output in zip(prompts, outputs, strict=True):
        tokens = list(output.outputs[0].token_ids)
        found = [step[token].logprob for step, token in zip(output.outputs[0].logprobs, tokens, strict=True)]
        rollouts.append((prompt, tokens, found))
    return rollouts


def scored(model: str, rollouts, temperature: float, logit_free: bool, head_dtype: str | None) -> list:
    """Of each rollout, the Actor's log-probabilities less vLLM's."""
    import torch
    from openrlhf.models import Actor

    from real_openrlhf.hooks.model.logit_free_head import attach

    actor = Actor(model, attn_implementation="eager", param_dtype="bf16", temperature=temperature)
    settings = SimpleNamespace(logit_free=logit_free, head_dtype=head_dtype)
    args = SimpleNamespace(ds=settings, actor=SimpleNamespace(entropy_coef=None))
    attach(actor, SimpleNamespace(args=args, print=lambda line: None))
    gaps = []
    for prompt, response, expected in rollouts:
        sequence = torch.tensor([prompt + response])
        actions = torch.ones(1, len(response), dtype=torch.long)
        with torch.no_grad():
            found = actor(sequence, actions, torch.ones_like(sequence))
        gaps.append(found[0].double() - torch.tensor(expected, dtype=torch.float64))
    return gaps


if __name__ == "__main__":
    main()
