"""A group loss on a service that trains for you: Tinker, or any server that speaks its API.

    python examples/tinker/train.py --model Qwen/Qwen3-8B --data train.jsonl --eval test.jsonl --reward math

The service holds the model; questions, verifier and loss are here. docs/change/elsewhere.md says what is exact.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

import real_openrlhf
from real_openrlhf import check_whole_groups, real_policy_loss
from real_openrlhf.algorithm.settings import assignments
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import json_value
from real_openrlhf.base.user_files import reward_function
from real_openrlhf.data.sources import read_local
from real_openrlhf.rewards.calls import checked
from real_openrlhf.runs import run_folder

try:
    import tinker
    from tinker import types
except ModuleNotFoundError as error:
    raise SystemExit(f"train.py: error: the package {error.name} is not installed: pip install tinker") from None


@dataclass(frozen=True)
class Rollout:
    """One answer. Its tensors have one entry a target, and every token but the first is a target."""

    group: int
    datum: types.Datum
    drawn: torch.Tensor  # the sampler's log-probabilities, 0 in the prompt
    mask: torch.Tensor  # 1 where the model drew the token
    reward: float  # nan: ungraded


def group_loss(rollouts: Sequence[Rollout], old: Sequence[torch.Tensor], size: int, **chosen: Any) -> Callable:
    """A loss for forward_backward_custom. The client calls it once, with the log-probabilities of all rollouts."""
    groups, drawn = [rollout.group for rollout in rollouts], padded([rollout.drawn for rollout in rollouts])
    check_whole_groups(groups, size)
    masks, rewards = padded([rollout.mask for rollout in rollouts]), [rollout.reward for rollout in rollouts]
    columns = padded(old), masks, rewards, groups
    return lambda data, new: real_policy_loss(padded(new), *columns, rollout_log_probs=drawn, **chosen)


def padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return pad_sequence([part.double() for part in parts], batch_first=True)


def judge_of(args: argparse.Namespace) -> Callable:
    own = Path(real_openrlhf.__file__).parent / f"rewards/{args.reward}_reward.py"
    return reward_function(own if own.exists() else args.reward)


def answered(sampler: Any, tokenizer: Any, args: argparse.Namespace, rows: list[dict], size: int, seed: int) -> list:
    """`size` rollouts of each row. All requests are sent before the first answer is awaited."""
    waiting, every, judge = [], [], judge_of(args)
    for number, row in enumerate(rows):
        text, chat = row["prompt"], args.chat or isinstance(row["prompt"], list)  # examples/gym writes messages
        turns = [{"role": "user", "content": text}] if isinstance(text, str) else text
        asked = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) if chat else text
        prompt = tokenizer.encode(asked, add_special_tokens=False)
        params = types.SamplingParams(max_tokens=args.max_tokens, temperature=1.0, seed=seed + number)
        request = sampler.sample(types.ModelInput.from_ints(prompt), size, params)
        waiting.append((asked, prompt, row["label"], request))
    for group, (asked, prompt, label, request) in enumerate(waiting):
        for sequence in request.result().sequences:
            response = tokenizer.decode(sequence.tokens, skip_special_tokens=True)
            reward = checked(judge([asked + response], [asked], [label]))["scores"]
            both, before = torch.tensor([*prompt, *sequence.tokens]), len(prompt) - 1
            targets = {"target_tokens": types.TensorData.from_torch(both[1:])}
            datum = types.Datum(model_input=types.ModelInput.from_ints(both[:-1].tolist()), loss_fn_inputs=targets)
            ones = [1.0] * len(sequence.tokens)
            columns = [torch.tensor([0.0] * before + [*own]) for own in (sequence.logprobs, ones)]
            every.append(Rollout(group, datum, *columns, reward))
    return every


def updates(trainer: Any, rollouts: list[Rollout], args: argparse.Namespace, chosen: dict) -> dict[str, float]:
    """Train on one batch: each update has its share of the prompts, and all have the same old policy."""
    old = [rollout.drawn for rollout in rollouts]
    if args.old_policy == "trainer":
        before = trainer.forward([rollout.datum for rollout in rollouts], "cross_entropy").result()
        old = [out["logprobs"].to_torch() for out in before.loss_fn_outputs]
    logged, share = [], len(rollouts) // args.updates
    for part in (slice(first, first + share) for first in range(0, len(rollouts), share)):
        loss = group_loss(rollouts[part], old[part], args.group, **chosen)
        done = trainer.forward_backward_custom([rollout.datum for rollout in rollouts[part]], loss)
        stepped = trainer.optim_step(types.AdamParams(learning_rate=args.lr, grad_clip_norm=1.0))
        logged.append(done.result().metrics)
        stepped.result()
    own = {name: mean([each[name] for each in logged]) for name in logged[0] if name.startswith("real/")}
    lengths, rewards = [float(rollout.mask.sum()) for rollout in rollouts], [rollout.reward for rollout in rollouts]
    return {"rollout/reward_mean": mean(rewards), "response_length": mean(lengths), **own}


def mean(numbers: Sequence[float]) -> float:
    return float(torch.tensor(numbers).nanmean().nan_to_num())  # nan is ungraded


def inputs(args: argparse.Namespace) -> tuple[list[dict], list[dict], dict]:
    """(rows to train on, rows held out, the chosen loss), or what is wrong with them or the reward function."""
    data, held_out = ([*read_local(file).rows] for file in (args.data, args.eval))
    if not all({"prompt", "label"} <= row.keys() for row in (*data, *held_out)):
        raise ValueError("a row of --data or --eval has no `prompt` or no `label`. Give each row both")
    if args.prompts % args.updates or args.prompts > len(data):
        most = f"at most the {len(data)} rows of {args.data}"
        raise ValueError(f"--prompts {args.prompts}: give a multiple of --updates {args.updates}, {most}")
    judge_of(args)
    chosen = {"objective": args.objective, "tau": args.tau, "own": assignments(args.set)}
    equal, ones = torch.zeros(2, 1), torch.ones(2, 1)
    real_policy_loss(equal, equal, ones, [1, 0], [0, 0], rollout_log_probs=equal, **chosen)  # a loss that it refuses
    return data, held_out, chosen


def train(args: argparse.Namespace, connect: Callable[[], tinker.ServiceClient]) -> Path:
    try:
        data, held_out, chosen = inputs(args)
    except (UserError, ValueError) as error:
        raise SystemExit(f"train.py: error: {error}") from None
    where = os.environ.get("TINKER_BASE_URL", "the client's default address")
    print(f"waiting for the service at {where}", flush=True)
    made = connect().create_lora_training_client(args.model, rank=args.rank, seed=args.seed)
    trainer = made.result() if hasattr(made, "result") else made  # an older client waits by itself
    tokenizer, name = trainer.get_tokenizer(), args.objective.rpartition(":")[2]
    path = run_folder.create(Path("runs"), run_folder.run_stem("tinker", name, args.seed), None)
    flags = {f"--{key}": json_value((str(value),)) for key, value in vars(args).items()}
    record = {"name": path.name, "algo": name, "recipe": "tinker", "seed": args.seed, "flags": flags}

    def write(phase: str, step: int, numbers: dict[str, float]) -> None:
        print(f"{phase} {step}: " + ", ".join(f"{key} {numbers[key]:.3f}" for key in [*numbers][:2]), flush=True)
        log.write(json.dumps({"phase": phase, "step": step, "time": time.time(), **numbers}) + "\n")

    with run_folder.only_one(path), open(path / "metrics.jsonl", "w", buffering=1) as log:
        run_folder.write(path, record | {"status": "running", "started": run_folder.now()})
        for step in range(args.steps + 1):
            sampler = trainer.save_weights_and_get_sampling_client().result()
            if step in (0, args.steps):
                tries = answered(sampler, tokenizer, args, held_out, args.eval_samples, seed=0)
                write("eval", step, {f"eval_{args.eval.stem}_pass1": mean([rollout.reward for rollout in tries])})
            if step < args.steps:
                rows = random.Random(f"{args.seed} {step}").sample(data, args.prompts)
                rollouts = answered(sampler, tokenizer, args, rows, args.group, seed=(args.seed + step + 1) << 20)
                write("train", step + 1, updates(trainer, rollouts, args, chosen))
        run_folder.write(path, record | {"status": "finished", "finished": run_folder.now()})
    return path


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_argument = parser.add_argument
    add_argument("--model", required=True, help="a name that the service knows")
    add_argument("--data", type=Path, required=True, help="JSONL with prompt and label")
    add_argument("--eval", type=Path, required=True, help="the same, held out: asked before and after")
    add_argument("--reward", default="math", help="math, or FILE.py with a reward_func (%(default)s)")
    add_argument("--chat", action="store_true", help="put each prompt into the model's chat template")
    add_argument("--objective", default="real", help="as in --algo.real.objective: a name, or FILE.py:NAME")
    add_argument("--tau", type=float, help="as in --algo.real.tau")
    add_argument("--set", nargs="*", metavar="NAME=VALUE", help="as in --algo.real.set")
    add_argument("--old-policy", choices=["sampler", "trainer"], default="sampler", help="whose log-probabilities")
    add_argument("--lr", type=float, default=1e-5, help="learning rate (%(default)s)")
    counts = {"steps": 100, "prompts": 32, "group": 8, "updates": 2, "max-tokens": 1024, "rank": 32, "seed": 1}
    for name, value in {**counts, "eval-samples": 4}.items():
        add_argument(f"--{name}", type=int, default=value, help="(%(default)s)")
    return parser.parse_args(words)


if __name__ == "__main__":
    train(parse(), tinker.ServiceClient)  # its URL and key: TINKER_BASE_URL, TINKER_API_KEY
