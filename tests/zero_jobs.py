"""What runs on a rank: OpenRLHF's own policy actor on a real DeepSpeed engine, without Ray and vLLM around it."""

import importlib
import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import deepspeed
import psutil
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad
from openrlhf.cli.train_ppo_ray import parse_args
from openrlhf.trainer.ppo_utils.experience import Experience, make_experience_batch, split_experience_batch
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
from openrlhf.utils import utils
from torch._C._distributed_c10d import ProcessGroup
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from real_openrlhf.algorithm.mismatch import MismatchError
from real_openrlhf.base.errors import NonFiniteError
from real_openrlhf.forecast import memory as memory_of
from real_openrlhf.hooks import policy_trainer
from real_openrlhf.hooks.controller.experience_maker import ExperienceMaker
from real_openrlhf.hooks.controller.labels import NO_ANSWER
from real_openrlhf.hooks.cpu import bf16_products
from real_openrlhf.hooks.fixes.deepspeed_optimizers import compile_less

compile_less()
bf16_products.widen()
LINEAR = torch.nn.functional.linear

# OpenRLHF knows bf16 and fp16 only; with both off DeepSpeed trains in float32.
_known_dtype = utils.convert_to_torch_dtype
utils.convert_to_torch_dtype = lambda name: torch.float32 if name == "fp32" else _known_dtype(name)


@dataclass(frozen=True)
class Case:
    """One engine and the rollouts that it trains on."""

    model: str
    loss: str = "real"
    dtype: str = "fp32"
    zero_stage: int = 3
    prompts: int = 4
    group: int = 4  # rollouts of a prompt
    groups_per_update: int = 2
    micro_batch_size: int = 2
    max_tokens: int | None = None  # token-budget micro-batches instead
    depth: str = "auto"
    objective: str = "real"
    score: str = ""  # another kind than the objective's own
    batching: str = ""  # as OpenRLHF's default, if empty
    uniform_groups: str = "zero_loss"
    kl_old_coef: float = 0.0
    checkpointing: bool = False
    lora: bool = False
    run_dir: str = ""
    learning_rate: float = 1e-3
    entropy_coef: float | None = None
    fused_logprobs: bool = False
    prompt_length: int = 5
    vocabulary: int = 15  # that rollouts are drawn from
    kinds: tuple[str, ...] = ("mixed", "ignored", "mixed", "uniform")  # of groups, again and again
    graded: bool = False  # rewards that are fractions
    skip: bool = False  # leave out what has no gradient
    turns: bool = False  # an environment speaks between the tokens of the policy
    empty: bool = False  # the third answer of each prompt has no tokens
    levels: bool = False  # the last answer of each prompt is unparsable if it is wrong
    stale: bool = False  # old log-probabilities are those of another policy
    flags: tuple[str, ...] = ()  # more words of the command line


# ---------------------------------------------------------------------------------------------------------------------
# an engine


def arguments(case: Case) -> SimpleNamespace:
    """OpenRLHF's own parser and checks, then what it does not offer: float32, and token budgets without packing."""
    flags = {
        "--actor.model_name_or_path": case.model,
        "--actor.policy_loss_type": case.loss,
        "--actor.num_gpus_per_node": dist.get_world_size(),
        "--actor.adam.lr": case.learning_rate,
        "--actor.lr_scheduler": "constant",
        "--reward.remote_url": "unused",
        "--ds.zero_stage": case.zero_stage,
        "--ds.attn_implementation": "eager",
        "--ds.lora.rank": 4 if case.lora else 0,
        "--train.batch_size": case.groups_per_update * case.group,
        "--train.micro_batch_size": case.micro_batch_size,
        "--rollout.batch_size": -(-case.prompts // case.groups_per_update) * case.groups_per_update,  # or the last one
        "--rollout.micro_batch_size": 4,
        "--rollout.n_samples_per_prompt": case.group,
        "--data.max_len": 32,
        "--train.run_dir": case.run_dir,
        "--vllm.sync_backend": "gloo",
        "--algo.advantage.estimator": "group_norm",
        "--algo.kl.init_coef": 0,
    }
    if case.batching:
        flags["--train.batching"] = case.batching
    if case.entropy_coef is not None:
        flags["--actor.entropy_coef"] = case.entropy_coef
    if case.loss == "real":
        flags |= {
            "--algo.real.objective": case.objective,
            "--algo.real.max_live_micro_batches": case.depth,
            "--algo.real.uniform_groups": case.uniform_groups,
            "--algo.real.kl_old_coef": case.kl_old_coef,
            **({"--algo.real.set": f"score={case.score}"} if case.score else {}),
        }
    switches = ["--actor.gradient_checkpointing_enable"] * case.checkpointing
    switches += ["--train.skip_zero_gradient"] * case.skip + ["--ds.fused_logprobs"] * case.fused_logprobs
    args = parse_args([*(str(word) for flag in flags.items() for word in flag), *switches, *case.flags])
    args.ds.param_dtype = case.dtype
    if case.max_tokens:
        args.train.dynamic_batch_enable = True
        args.train.max_tokens_per_gpu = case.max_tokens
    return args


def policy_actor(case: Case, args: SimpleNamespace | None = None):
    """OpenRLHF's policy actor as Ray would construct it: strategy, model, engine, trainer."""
    # ZeRO-3's engine leaves a linear layer that rounds twice: a process of a run has engines of one stage only
    torch.nn.functional.linear = LINEAR
    cls = PolicyModelActor.__ray_metadata__.modified_class
    policy = cls.__new__(cls)
    policy.init_model_from_pretrained(utils.get_strategy(args or arguments(case)), case.model, max_steps=100)
    return policy


def parameters(engine) -> dict[str, torch.nn.Parameter]:
    return dict(engine.module.named_parameters())


def whole(parameter: torch.nn.Parameter) -> torch.Tensor:
    """A copy of all of a parameter; a gather of a single one is waited for."""
    with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
        return parameter.detach().clone()


# ---------------------------------------------------------------------------------------------------------------------
# rollouts


def rollouts(case: Case) -> list[Experience]:
    """Random prompts and ragged random responses, as the sampler hands them over."""
    generator = torch.Generator().manual_seed(0)

    def draw(high: int, count: int = 1, low: int = 0) -> list[int]:
        return torch.randint(low, high, (count,), generator=generator).tolist()

    samples = []
    for number in range(case.prompts):
        prompt = draw(case.vocabulary, case.prompt_length, low=3)
        kind = case.kinds[number % len(case.kinds)]
        grades = (0.75, 0.25, 0.5, 0.1) if case.graded else (1.0, 0.0)
        rewards = [grades[place % len(grades)] for place in range(case.group)]
        if kind == "uniform":
            rewards = [0.1 if case.graded else 1.0] * case.group
        if kind == "ignored":
            rewards[-1] = math.nan
        for place, reward in enumerate(rewards):
            response = draw(case.vocabulary, draw(11, low=1)[0], low=3)
            sequence = torch.tensor(prompt + response)
            action_mask = torch.arange(1, len(sequence)) >= case.prompt_length
            if case.turns:
                action_mask[case.prompt_length : -1] &= torch.rand(len(response) - 1, generator=generator)[1:] < 0.6
            if case.empty and place == 2:
                action_mask[:] = False
            own = {NO_ANSWER: torch.tensor([float(place == case.group - 1)])} if case.levels else {}
            samples.append(
                Experience(
                    sequences=sequence[None],
                    attention_mask=torch.ones_like(sequence)[None],
                    action_mask=action_mask.long()[None],
                    prompts=[str(number)],
                    labels=[""],
                    rewards=torch.tensor([reward]).nan_to_num(0.0),
                    scores=torch.tensor([reward]),
                    response_length=torch.tensor([len(response)]),
                    total_length=torch.tensor([float(len(sequence))]),
                    truncated=torch.tensor([False]),
                    info={"reward": torch.tensor([reward]).nan_to_num(0.0)} | own,
                )
            )
    return samples


class Maker(ExperienceMaker):
    """The controller. In place of Ray's actors every rank makes the same forward of all rollouts, whatever the layout:
    `values` of each."""

    def __init__(self, policy, values: list[torch.Tensor], stale: bool) -> None:
        reference = object() if policy.strategy.args.derived.reference else None
        super().__init__(object(), None, None, reference, mock.Mock(), policy.strategy, policy.tokenizer)
        self.policy, self.values, self.stale = policy, values, stale
        self.kl_ctl.value = policy.strategy.args.algo.kl.init_coef
        self.planned = policy.strategy.args.train.batching == "whole_groups"
        self.live_tokens = policy.call_trainer("live_tokens") if self.planned else math.inf

    def send(self, plan) -> None:
        if self.planned:
            self.policy.call_trainer("set_plan", plan)

    def forward(self, group, samples, lengths, chosen, field) -> None:
        for position in chosen:
            sample, values = samples[position], self.values[position]
            steps = torch.arange(values.shape[1])
            gap = self.stale * torch.sin(steps * (position + 2.0)) if field == "action_log_probs" else torch.cos(steps)
            setattr(sample, field, torch.where(sample.action_mask.bool(), values + 0.3 * gap, torch.nan))


def fill(policy, case: Case) -> list[Experience]:
    """This rank's rollouts into its buffer, by the plan or an equal part for OpenRLHF: all rollouts."""
    samples, rank, ranks = rollouts(case), dist.get_rank(), dist.get_world_size()
    joined = Experience.concat_experiences(samples, policy.tokenizer.pad_token_id)
    of_all = policy.forward(joined.sequences, joined.action_mask, joined.attention_mask)
    of_each = [row[None, : sample.action_mask.shape[1]] for row, sample in zip(of_all, samples, strict=True)]
    for number, (sample, values) in enumerate(zip(samples, of_each, strict=True)):
        gap = 0.3 * torch.sin(torch.arange(values.shape[1]) * (number + 1.0))  # of an older sampler
        sample.rollout_log_probs = torch.where(sample.action_mask.bool(), values + gap, torch.nan)
    own = Maker(policy, of_each, case.stale).make_experience_batch(samples)[rank]
    if policy.strategy.args.train.batching != "whole_groups":
        for sample in samples:  # OpenRLHF multiplies by the mask
            sample.action_log_probs, sample.rollout_log_probs = (
                one.nan_to_num(0.0) for one in (sample.action_log_probs, sample.rollout_log_probs)
            )
        items = [item for sample in samples for item in split_experience_batch(sample)]
        own = make_experience_batch(items[rank * len(items) // ranks : (rank + 1) * len(items) // ranks])
    policy.append(own)
    return samples


def statuses_of(policy) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Train with the package's trainer: the logged numbers of each optimizer step, and those of the batch."""
    with mock.patch.object(policy_trainer, "over_updates", wraps=policy_trainer.over_updates) as merged:
        status = policy.trainer.ppo_train(policy.strategy.args.algo.kl.init_coef)
    return merged.call_args.args[0], status


# ---------------------------------------------------------------------------------------------------------------------
# losses and gradient norms, whatever the ranks


def filled(**case) -> tuple[Any, Case]:
    """A policy actor with this rank's rollouts of the case."""
    case = Case(**case)
    policy = policy_actor(case)
    fill(policy, case)
    return policy, case


def curve(**case) -> list[tuple[float, float]]:
    """(loss, gradient norm) of every optimizer step."""
    return points_of(filled(**case)[0])


def points_of(policy) -> list[tuple[float, float]]:
    return [(status["policy_loss"], status["actor_grad_norm"]) for status in statuses_of(policy)[0]]


def logged(**case) -> dict[str, float]:
    """What a rollout batch logs."""
    return filled(**case)[0].trainer.ppo_train(0.0)


def warnings(**case) -> list[str]:
    """What a rollout batch warns of."""
    (policy, _), told = filled(**case), []
    with mock.patch.object(policy.strategy, "print", lambda *words: told.append(str(words[0]))):
        policy.trainer.ppo_train(0.0)
    return [line for line in told if line.startswith("warning: ")]


def of_updates(**case) -> tuple[list[dict[str, float]], dict[str, float]]:
    """What each update logs, and what the batch logs."""
    return statuses_of(filled(**case)[0])


def live_tokens(**case) -> tuple[float, float]:
    """What the trainer tells the controller, and the forecast's number for the model's file."""
    case = Case(**case)
    args = arguments(case)
    shape = memory_of.shape_of(json.loads((Path(case.model) / "config.json").read_text()))
    adapters, free = shape.adapter_parameters(args.ds.lora.rank), psutil.virtual_memory().total / dist.get_world_size()
    told = policy_actor(case, args).call_trainer("live_tokens")
    return told, memory_of.live_tokens(shape, args, adapters, free)


def stand_in_aux_loss(**case) -> tuple[float, float]:
    """The gradient norm where each forward's aux loss is the sum of a weight's numbers, and what it should be."""
    policy, _ = filled(**case)
    trainer = policy.trainer
    trainer.args.actor.aux_loss_coef = 0.5
    weight, forward = list(parameters(policy.actor.model).values())[-1], trainer.forward
    trainer.forward = lambda *args, **how: replace(forward(*args, **how), aux_loss=weight.float().sum())
    return trainer.ppo_train(0.0)["actor_grad_norm"], 0.5 * weight.numel() ** 0.5


def weighed(**case) -> dict:
    """Labels beside scores and weights that the controller can ask for after a batch, once, and what was logged."""
    policy, case = filled(**case)
    updates, logged = policy.trainer.plan.updates, policy.trainer.ppo_train(0.0)
    tables = [
        [groups, planned.batch.labels[planned.rollouts].tolist(), *rows]
        for planned, (groups, *rows) in zip(
            updates, (t.tolist() for t in policy.call_trainer("take_tables")), strict=True
        )
    ]
    return {"tables": tables, "logged": logged, "later": policy.call_trainer("take_tables")}


def repeated_gradient(count: int, **case) -> torch.Tensor:
    """The gradient of one rollout's log-probability, added up `count` times."""
    case = Case(**case)
    policy, sample = policy_actor(case), rollouts(case)[0]
    engine = policy.actor.model
    for number in range(1, count + 1):
        log_probs = policy.actor(sample.sequences, sample.action_mask, attention_mask=sample.attention_mask)
        engine.optimizer.clear_backward_seen_flag()
        engine.set_gradient_accumulation_boundary(number == count)
        engine.backward((log_probs * sample.action_mask).sum(), scale_wrt_gas=False)
    return torch.cat([safe_get_full_grad(parameter).double().flatten() for parameter in parameters(engine).values()])


def unrelated(**case) -> dict:
    """How a step ends whose sampler is off by 2 for each token."""
    policy, case = filled(**case)
    (joined,) = policy.trainer.replay_buffer
    old = policy.forward(joined.sequences, joined.action_mask, joined.attention_mask)
    joined.rollout_log_probs = torch.where(joined.action_mask.bool(), old + 2, torch.nan)
    try:
        policy.trainer.ppo_train(0.0)
    except MismatchError as error:
        return {"told": str(error), "step": policy.actor.model.global_steps}
    return {}


# ---------------------------------------------------------------------------------------------------------------------
# the guard


def poisoned(where: str, value: float, **case) -> dict:
    """Two good optimizer steps, then one with a nan or an infinity on one rank; what happened, and what changed."""
    policy, case = filled(**case)
    policy.trainer.ppo_train(0.0)
    before, steps = state(policy.actor.model), policy.actor.model.global_steps
    if dist.get_rank() == 1:
        poison(policy, where, value)
    try:
        policy.trainer.ppo_train(0.0)
        error = None
    except NonFiniteError as raised:
        error = str(raised)
    after = state(policy.actor.model)
    return {
        "error": error,
        "steps": policy.actor.model.global_steps - steps,
        "changed": [name for name, tensor in before.items() if not torch.equal(tensor, after[name])],
        "compared": sorted({name.split()[0] for name in before if " " in name}),
    }


def poison(policy, where: str, value: float) -> None:
    """Add a nan or an infinity to the loss, which leaves its gradient finite, to log-probs, or to one gradient."""
    actor = policy.actor
    if where == "loss":
        backward = actor.model.backward
        actor.model.backward = lambda loss, *args, **kwargs: backward(loss + value, *args, **kwargs)
    elif where in ("log_probs", "scores"):
        actor.register_forward_hook(lambda _module, _inputs, output: (output[0] + value, *output[1:]))
    else:
        weight = parameters(actor.model)["model.layers.1.self_attn.v_proj.bias"]
        weight.register_hook(lambda gradient: gradient + value)


def state(engine) -> dict[str, torch.Tensor]:
    """All that a step changes: parameters as the model sees them; this rank's float32 masters and their moments."""
    tensors = {name: whole(parameter) for name, parameter in parameters(engine).items()}
    for index, (master, moments) in enumerate(engine.basic_optimizer.state.items()):
        for key, value in {"master": master, **moments}.items():
            tensors[f"{key} {index}"] = torch.as_tensor(value).detach().clone()
    return tensors


def optimizer(model: str) -> dict:
    """What updates the weights, and whether DeepSpeed has compiled its own for it."""
    found = policy_actor(Case(model=model, dtype="bf16")).actor.model.basic_optimizer
    return {"is": f"{type(found).__module__}.{type(found).__name__}", "compiled": "fused_adam" in sys.modules}


# ---------------------------------------------------------------------------------------------------------------------
# with `--ds.fused_logprobs` or without


AT_ONCE = 1_000_000  # numbers, so that a block has a part of the vocabulary


def points_and_logits(vocabulary: int, **case) -> dict:
    """(loss, gradient norm) of each optimizer step, and the logits that one tensor of it had at most."""
    policy, _ = filled(vocabulary=vocabulary, **case)
    small = mock.patch("real_openrlhf.algorithm.token_log_probs.LOGITS_AT_ONCE", AT_ONCE)
    with small, Logits(vocabulary) as seen:
        points = points_of(policy)
    return {"points": points, "logits": seen.most}


class Logits(TorchDispatchMode):
    def __init__(self, vocabulary: int):
        super().__init__()
        self.vocabulary, self.most = vocabulary, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.shape[-1:] == (self.vocabulary,):
                self.most = max(self.most, one.numel())
        return result


# ---------------------------------------------------------------------------------------------------------------------
# the order of collectives: where two ranks differ, NCCL waits for ever


class Order(TorchDispatchMode):
    """Every operator of torch.distributed on this rank: name, tensors' shapes and formats, ranks of the group."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        if name.startswith("c10d"):
            leaves = tree_leaves((args, kwargs))
            groups = [
                ProcessGroup.unbox(one) for one in leaves if isinstance(one, torch.ScriptObject) and is_group(one)
            ]
            tensors = [(tuple(one.shape), str(one.dtype)) for one in leaves if isinstance(one, torch.Tensor)]
            self.calls.append((name, tensors, [dist.get_process_group_ranks(one) for one in groups]))
        return function(*args, **(kwargs or {}))


def is_group(one: torch.ScriptObject) -> bool:
    return "ProcessGroup" in str(one._type())


def collectives_of(function: str, **case) -> list[tuple]:
    """While a job of another module runs."""
    module, _, name = function.rpartition(".")
    job = getattr(importlib.import_module(module), name)
    with Order() as order:
        job(**case)
    return order.calls
