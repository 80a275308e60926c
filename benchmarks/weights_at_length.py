"""How far do REAL's weights turn the gradient of fixed weights, at the lengths that people train?

    python benchmarks/weights_at_length.py MODEL [--tokens 64] [--rate 3e-5] [--seeds 3] [--batches 1]

MODEL is the folder `untrained` that examples/smollm2/smollm2.py makes. A batch is four prompts with eight responses
each; a response is correct if an eighth of its letters are an e. Each prompt makes one update by REAL at tau 0.5 and
Adam. At a batch's first update all scores are 0 and REAL's weights are the fixed ones. At the other three the gradient
is taken with fixed weights too, and with REAL's at smaller taus: the table has the angle between them. Its last line
is the angle between two prompts' gradients, a measure of the noise of sampling.
"""

import argparse
import math
import random
import statistics
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from real_openrlhf import real_policy_loss

PROMPTS, RESPONSES, SHARE = 4, 8, 0.125  # half of SmolLM2's texts of 64 tokens have that many
PROMPT = "A story about the {}:"
TAUS = (0.5, 0.125, 0.0625, 0.03125)
THINGS = """apple bakery bicycle bridge camel candle castle cloud desert dragon engineer farmer fisherman forest garden
    giant harbour island jungle kitchen lantern library lighthouse market meadow mirror mountain museum musician night
    ocean orchard painter palace parrot pirate planet river robot sailor school shepherd snail soldier spider station
    storm tailor teacher theatre tower train tree turtle valley village volcano wolf winter wizard""".split()


def reward(text: str) -> float:
    letters = [letter for letter in text.lower() if letter.isalpha()]
    return float(letters.count("e") >= SHARE * len(letters) > 0)


def sample(model, tokenizer, thing: str, tokens: int) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """Tokens with their prompt, the mask of the response (its end included), rewards."""
    prompt = tokenizer(PROMPT.format(thing), return_tensors="pt").input_ids.expand(RESPONSES, -1)
    end = tokenizer.eos_token_id
    ids = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        top_k=0,
        max_new_tokens=tokens,
        pad_token_id=end,
    )
    response = ids[:, prompt.shape[1] :]
    ends = (response == end).int()
    mask = (ends.cumsum(1) - ends == 0).float()
    return ids, mask, [reward(text) for text in tokenizer.batch_decode(response, skip_special_tokens=True)]


def log_probs(model, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    length = mask.shape[1]
    logits = model(ids).logits[:, -length - 1 : -1]
    return torch.log_softmax(logits, -1).gather(-1, ids[:, -length:, None]).squeeze(-1)


def angle(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    def dot(u: list[torch.Tensor], v: list[torch.Tensor]) -> float:
        return sum(float(x.flatten().double() @ y.flatten().double()) for x, y in zip(u, v, strict=True))

    return math.degrees(math.acos(max(-1.0, min(1.0, dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for flag, value in (("--tokens", 64), ("--rate", 3e-5), ("--seeds", 3), ("--batches", 1)):
        parser.add_argument(flag, type=type(value), default=value, help=f"default: {value}")
    args = parser.parse_args()
    if not (Path(args.model) / "config.json").exists():
        parser.error(f"no model in {args.model}. `python examples/smollm2/smollm2.py FOLDER` makes FOLDER/untrained")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    turned: dict[float, list[tuple[float, ...]]] = {tau: [] for tau in TAUS}
    between: list[float] = []
    for seed in range(1, args.seeds + 1):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
        weights = [*model.parameters()]
        adam = torch.optim.Adam(weights, lr=args.rate)
        things = random.Random(seed).sample(THINGS, PROMPTS * args.batches)
        for first in range(0, len(things), PROMPTS):
            with torch.no_grad():
                batch = [sample(model, tokenizer, thing, args.tokens) for thing in things[first : first + PROMPTS]]
                old = [log_probs(model, ids, mask) for ids, mask, _ in batch]
            before = None
            for update, ((ids, mask, rewards), old_log_probs) in enumerate(zip(batch, old, strict=True)):
                new = log_probs(model, ids, mask)

                def gradient(objective: str, tau: float, inputs=(new, old_log_probs, mask, rewards), weights=weights):
                    loss, metrics = real_policy_loss(*inputs, [0] * RESPONSES, objective=objective, tau=tau)
                    return torch.autograd.grad(loss, weights, retain_graph=True), metrics

                if 0 < sum(rewards) < RESPONSES:  # else all weights are 0
                    fixed, _ = gradient("fixed_weights", TAUS[0])
                    between += [angle(before, fixed)] if before else []
                    before = fixed
                    for tau in TAUS if update else ():
                        real, metrics = gradient("real", tau)
                        z = metrics["real/score_std"] / tau
                        turned[tau].append((z, metrics["real/weight_cv"], angle(real, fixed)))
                for weight, grad in zip(weights, gradient("real", TAUS[0])[0], strict=True):
                    weight.grad = grad
                adam.step()
                print(f"seed {seed}, prompt {update + 1}: {sum(rewards):.0f} correct", file=sys.stderr, flush=True)
    if not between or not turned[TAUS[0]]:
        sys.exit("weights_at_length.py: error: too few prompts with correct and incorrect responses: more --batches")
    print("|τ|z|weights vary by|angle to fixed weights|\n|---:|---:|---:|---:|")
    for tau, rows in turned.items():
        z, variation, angles = zip(*rows, strict=True)
        spread = f"{statistics.fmean(angles):.1f}° ({min(angles):.1f} to {max(angles):.1f})"
        print(f"|{tau:g}|{statistics.fmean(z):.3f}|{statistics.fmean(variation):.3f}|{spread}|")
    print(f"|||two prompts|{statistics.fmean(between):.1f}° ({min(between):.1f} to {max(between):.1f})|")


if __name__ == "__main__":
    main()
