"""Is REAL's gradient right through packing and the kernel for it, in bf16? Against float64, one sequence at a time.

The reference is the paper's Eq. 10 written out in loops, on the same weights in float64 with eager attention. bf16 has
an error of its own; how large, the same loss without packing and with eager attention shows. Packing passes where its
error is at most a quarter larger, with logits and, as the recipes train, without them. Where flash-attn is installed,
its kernel is tried beside PyTorch's.

    python benchmarks/packed_exactness.py                  # on a GPU
    python benchmarks/packed_exactness.py --device cpu     # small, sequence by sequence
"""

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

TAU, SLACK = 0.5, 1.25
PLAIN = "bf16, padded, eager"
GROUPS, GROUP_SIZE, PROMPT = 4, 8, 16


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    vocabulary: int
    longest: int


SIZES = {"cpu": Size(64, 2, 1000, 48), "cuda": Size(1024, 8, 152_064, 512)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=SIZES)
    parser.add_argument(
        "--longest", type=int, help="tokens of the longest rollout (512 on a GPU: 43 GB by arithmetic)"
    )
    parser.add_argument("--logit-free", action="store_true", help=argparse.SUPPRESS)  # both run; an older word
    args = parser.parse_args()
    if args.device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import torch

    from real_openrlhf.hooks.model import flash_attention_torch

    flash_attention_torch.register()
    kernel = flash_attention_torch.NAME
    ways = {PLAIN: ("eager", False, False), "packed": (kernel, True, False), "packed, no logits": (kernel, True, True)}
    if find_spec("flash_attn") and args.device == "cuda":
        ways["packed, flash-attn"] = ("flash_attention_2", True, False)
    torch.manual_seed(0)
    size = replace(SIZES[args.device], longest=args.longest or SIZES[args.device].longest)
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder, size)
        rollouts = make_rollouts(size, args.device)
        exact = reference(folder, rollouts, args.device)
        found = {name: measured(folder, rollouts, args, *way) for name, way in ways.items()}
    errors = show(found, exact)
    for name, error in errors.items():
        if name in ("packed", "packed, no logits") and error > SLACK * errors[PLAIN]:
            sys.exit(f"{name}: gradient off by {error:.2e}, above {SLACK} x {errors[PLAIN]:.2e}")
    print(f"exact: packed is at most {SLACK} x as far from float64 as plain bf16")


def save_model(folder: str, size: Size) -> None:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=size.width, num_hidden_layers=size.layers, vocab_size=size.vocabulary,
        intermediate_size=3 * size.width, num_attention_heads=8, num_key_value_heads=2,
        max_position_embeddings=2 * size.longest, tie_word_embeddings=False, initializer_range=0.05,
    )  # fmt: skip
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    (Path(folder) / "generation_config.json").unlink(missing_ok=True)


def make_rollouts(size: Size, device: str) -> dict:
    """Random prompts and answers of mixed lengths, right-padded; scores end up where the weights differ."""
    import torch

    count = GROUPS * GROUP_SIZE
    lengths = torch.randint(PROMPT + 2, size.longest + 1, (count,))
    lengths[0] = size.longest
    tokens = torch.randint(3, size.vocabulary, (count, size.longest))
    position = torch.arange(size.longest)
    mask = position < lengths[:, None]
    return {
        "tokens": tokens.masked_fill(~mask, 0).to(device),
        "mask": mask.long().to(device),
        "action": ((position[1:] >= PROMPT) & mask[:, 1:]).long().to(device),
        "shift": (0.3 * torch.randn(count, 1)).to(device),  # old log-probs: the reference's own less this
        "labels": torch.tensor([1, 0, 0, 1, 0, 1, 1, 0] * GROUPS),
        "groups": torch.arange(count) // GROUP_SIZE,
    }


def reference(folder: str, rollouts: dict, device: str) -> dict:
    """Eq. 10 in float64, a sequence and a rollout at a time; adds the old log-probs to the rollouts."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).to(device)
    scores, old = [], torch.zeros(rollouts["action"].shape, dtype=torch.float64, device=device)
    for row, (tokens, mask) in enumerate(zip(rollouts["tokens"], rollouts["mask"].bool(), strict=True)):
        own = tokens[mask]
        logits = model(own[None]).logits[0, :-1]
        log_probs = logits.log_softmax(-1).gather(-1, own[1:, None])[PROMPT - 1 :, 0]
        old[row, PROMPT - 1 : PROMPT - 1 + len(log_probs)] = (log_probs - rollouts["shift"][row]).detach()
        scores.append((log_probs - old[row, PROMPT - 1 : PROMPT - 1 + len(log_probs)]).mean())
    rollouts["old"] = old
    loss = 0
    for group in range(GROUPS):
        rows = [row for row in range(len(scores)) if rollouts["groups"][row] == group]
        positive = [-scores[row] / TAU for row in rows if rollouts["labels"][row]]
        negative = [scores[row] / TAU for row in rows if not rollouts["labels"][row]]
        loss = loss + sum(torch.log(1 + sum(value.exp() for value in side)) for side in (positive, negative)) / GROUPS
    loss.backward()
    return {"loss": float(loss), "gradient": gradient_of(model)}


def measured(
    folder: str, rollouts: dict, args: argparse.Namespace, attention: str, packed: bool, fused_logprobs: bool
) -> dict:
    import torch
    from openrlhf.models import Actor

    from real_openrlhf import real_policy_loss
    from real_openrlhf.hooks.model.fused_logprobs import FusedLogprobsHead

    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    actor = Actor(folder, attn_implementation=attention, packing_samples=packed, param_dtype="bf16").to(args.device)
    if fused_logprobs:
        actor.fused_logprobs = FusedLogprobsHead(actor.model, 1.0, rounded=False, say=print)
    actor.gradient_checkpointing_enable()
    actor.train()
    log_probs = actor(rollouts["tokens"], rollouts["action"], rollouts["mask"])
    old, labels = rollouts["old"].to(log_probs), rollouts["labels"].tolist()
    loss, _ = real_policy_loss(log_probs, old, rollouts["action"], labels, rollouts["groups"].tolist(), tau=TAU)
    loss.backward()
    if args.device == "cuda":
        print(f"{attention}: {torch.cuda.max_memory_allocated() / 1e9:.1f} GB at the peak")
    return {"loss": float(loss), "gradient": gradient_of(actor.model)}


def gradient_of(model) -> dict:
    return {name: p.grad.double().cpu() for name, p in model.named_parameters() if p.grad is not None}


def show(found: dict, exact: dict) -> dict[str, float]:
    """{way: relative error of the gradient}."""
    norm = sum(g.square().sum() for g in exact["gradient"].values()).sqrt()
    print(f"float64, one by one: loss {exact['loss']:.6f}, gradient norm {norm:.4f}")
    errors = {}
    for name, one in found.items():
        if one["gradient"].keys() != exact["gradient"].keys():
            sys.exit(f"{name}: other parameters have gradients: {one['gradient'].keys() ^ exact['gradient'].keys()}")
        distance = sum((one["gradient"][key] - g).square().sum() for key, g in exact["gradient"].items()).sqrt()
        errors[name] = float(distance / norm)
        print(f"{name}: loss {one['loss']:.6f}, gradient off by {errors[name]:.2e} of its norm")
    return errors


if __name__ == "__main__":
    main()
