"""What runs on a rank: OpenRLHF's own policy actor on a real DeepSpeed engine, without Ray and vLLM around it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.zero import stage_1_and_2
from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator
from deepspeed.utils import safe_get_full_grad
from naive import lots_of, naive_losses, naive_score
from openrlhf.cli.train_ppo_ray import parse_args
from openrlhf.models import Actor
from openrlhf.trainer.ppo_utils.experience import Experience, make_experience_batch, split_experience_batch
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
from openrlhf.utils import utils
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from real_openrlhf.algorithm import metrics, update
from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, Table
from real_openrlhf.algorithm.objective import ObjectiveSettings, make_groups
from real_openrlhf.algorithm.step_plan import BatchPlan, plan_rollouts, rank_plans
from real_openrlhf.algorithm.update import NonFiniteError, StepTable
from real_openrlhf.hooks.actor import policy_trainer
from real_openrlhf.hooks.actor.mismatch import MismatchError
from real_openrlhf.hooks.controller.experience_maker import ExperienceMaker
from real_openrlhf.hooks.fixes.deepspeed_optimizers import compile_less
from real_openrlhf.hooks.messages.planned_experience import PlannedExperience
from real_openrlhf.hooks.messages.settings import reads_old

compile_less()

GROUP_SIZE = 4  # what the flags say; the groups of a case may be uneven

# OpenRLHF knows bf16 and fp16 only; with both off DeepSpeed trains in float32.
_known_dtype = utils.convert_to_torch_dtype
utils.convert_to_torch_dtype = lambda name: torch.float32 if name == "fp32" else _known_dtype(name)


@dataclass(frozen=True)
class Case:
    """One engine and the rollouts that it trains on."""

    model: str
    loss: str = "real"
    dtype: str = "fp32"
    accumulate: str | None = None  # the format in which gradients of micro-batches are added up
    zero_stage: int = 3
    group_sizes: tuple[int, ...] = (4, 4, 4, 4)
    groups_per_step: int = 2
    epochs: int = 1
    micro_batch_size: int = 2
    max_tokens: int | None = None  # token-budget micro-batches instead
    depth: str = "auto"
    objective: str = "real"
    score: str = ""  # another kind than the objective's own
    deal: str = "upstream"  # for upstream's losses
    uniform_groups: str = "drop"
    kl_old_coef: float = 0.0
    checkpointing: bool = False
    lora: bool = False
    offload: bool = False
    ema: bool = False
    run_dir: str = ""
    learning_rate: float = 1e-3
    entropy_coef: float | None = None
    logit_free: bool = False
    lora_targets: tuple[str, ...] = ()  # otherwise all linear layers
    prompt_length: int = 5
    vocabulary: int = 15  # that rollouts are drawn from
    kinds: tuple[str, ...] = ("mixed", "ignored", "mixed", "uniform")  # of groups, again and again
    graded: bool = False  # rewards that are fractions
    skip: bool = False  # leave out what has no gradient
    turns: bool = False  # an environment speaks between the tokens of the policy
    seed: int = 0
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
        "--train.batch_size": case.groups_per_step * GROUP_SIZE,
        "--train.micro_batch_size": case.micro_batch_size,
        "--train.max_epochs": case.epochs,
        "--rollout.batch_size": len(case.group_sizes),
        "--rollout.micro_batch_size": 4,
        "--rollout.n_samples_per_prompt": GROUP_SIZE,
        "--data.max_len": 32,
        "--train.run_dir": case.run_dir,
        "--vllm.sync_backend": "gloo",
        "--algo.advantage.estimator": "group_norm",
        "--algo.kl.init_coef": 0,
        "--train.deal": case.deal,
    }
    if case.entropy_coef is not None:
        flags["--actor.entropy_coef"] = case.entropy_coef
    if case.loss == "real":
        flags |= {
            "--algo.real.objective": case.objective,
            "--algo.real.wave_depth": case.depth,
            "--algo.real.uniform_groups": case.uniform_groups,
            "--algo.real.kl_old_coef": case.kl_old_coef,
            **({"--algo.real.set": f"score={case.score}"} if case.score else {}),
        }
    if case.accumulate:
        flags["--ds.grad_accum_dtype"] = case.accumulate
    switches = ["--ds.adam_offload"] * case.offload + ["--actor.gradient_checkpointing_enable"] * case.checkpointing
    switches += ["--train.skip_weightless"] * case.skip
    switches += ["--train.enable_ema"] * case.ema + ["--ds.logit_free"] * case.logit_free
    switches += ["--ds.lora.target_modules", *case.lora_targets] if case.lora_targets else []
    args = parse_args([*(str(word) for flag in flags.items() for word in flag), *switches, *case.flags])
    args.ds.param_dtype = case.dtype
    if case.max_tokens:
        args.train.dynamic_batch_enable = True
        args.train.max_tokens_per_gpu = case.max_tokens
    return args


def policy_actor(case: Case, args: SimpleNamespace | None = None):
    """OpenRLHF's policy actor as Ray would construct it: strategy, model, engine, trainer."""
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
    """Random prompts and ragged random responses; groups of all kinds: mixed, uniform, with ignored rollouts."""
    generator = torch.Generator().manual_seed(case.seed)

    def draw(high: int, count: int = 1, low: int = 0) -> list[int]:
        return torch.randint(low, high, (count,), generator=generator).tolist()

    samples = []
    for group, size in enumerate(case.group_sizes):
        prompt = draw(case.vocabulary, case.prompt_length, low=3)
        kind = case.kinds[group % len(case.kinds)]
        grades = (0.75, 0.25, 0.5) if case.graded else (1.0, 0.0)
        rewards = [grades[position % len(grades) if kind != "uniform" else 0] for position in range(size)]
        if kind == "ignored":
            rewards[-1] = float("nan")
        for reward in rewards:
            response = draw(case.vocabulary, draw(11, low=1)[0], low=3)
            sequence = torch.tensor(prompt + response)
            action_mask = torch.arange(1, len(sequence)) >= case.prompt_length
            if case.turns:
                action_mask[case.prompt_length : -1] &= torch.rand(len(response) - 1, generator=generator)[1:] < 0.6
            samples.append(
                Experience(
                    sequences=sequence[None],
                    attention_mask=torch.ones_like(sequence)[None],
                    action_mask=action_mask.long()[None],
                    prompts=[str(prompt)],
                    labels=[""],
                    rewards=torch.tensor([reward]).nan_to_num(0.0),
                    scores=torch.tensor([reward]),
                    response_length=torch.tensor([len(response)]),
                    total_length=torch.tensor([float(len(sequence))]),
                    truncated=torch.tensor([False]),
                    info={},
                )
            )
    return samples


def rewards_of(case: Case) -> list[float]:
    return [float(sample.scores[0]) for sample in rollouts(case)]


def labels_of(case: Case) -> list[int]:
    return [IGNORED if score != score else POSITIVE if score > 0.5 else NEGATIVE for score in rewards_of(case)]


def groups_of(case: Case) -> list[int]:
    return [group for group, size in enumerate(case.group_sizes) for _ in range(size)]


def with_old_log_probs(policy, samples: list[Experience]) -> list[Experience]:
    """Each sample alone, by every rank alike, so that the numbers do not depend on the layout."""
    for number, sample in enumerate(samples):
        sample.action_log_probs = policy.forward(sample.sequences, sample.action_mask, sample.attention_mask)
        gap = 0.3 * torch.sin(torch.arange(sample.action_mask.shape[1]) * (number + 1.0))  # of an older sampler
        sample.rollout_log_probs = torch.where(sample.action_mask.bool(), sample.action_log_probs + gap, torch.nan)
    return [item for sample in samples for item in split_experience_batch(sample)]


def facts_of(case: Case) -> Table:
    samples = rollouts(case)
    return Table(
        labels=torch.tensor(labels_of(case)),
        groups=torch.tensor(groups_of(case)),
        values=torch.tensor(rewards_of(case)),
        lengths=torch.tensor([int(sample.action_mask.sum()) for sample in samples]),
        whole=torch.tensor([int(sample.total_length) for sample in samples]),
    )


def deal(policy, case: Case) -> tuple[list[Experience], BatchPlan, PlannedExperience]:
    """The controller's part: all rollouts with their old log-probabilities, for the naive formula; the plan; and what
    this rank gets, of which the first update comes without old log-probabilities, as in a run."""
    maker = ExperienceMaker(None, None, None, None, None, policy.strategy, policy.tokenizer)
    maker.kept_tokens = policy.call_trainer("kept_tokens")
    every, items = (with_old_log_probs(policy, rollouts(case)) for _ in range(2))
    facts = facts_of(case)
    if maker.objective:
        facts = replace(facts, signal=make_groups(maker.objective, facts).valid)
    else:
        advantages = advantages_of(case)
        for item, advantage in zip(every + items, 2 * advantages, strict=True):
            item.advantages = advantage * item.action_mask
        facts = replace(facts, signal=torch.tensor(advantages) != 0)
    if maker.skips:
        facts = replace(facts, trains=facts.signal)
    plan = plan_rollouts(facts, maker.plan_settings())
    unknown = plan.first_update if maker.objective and maker.args.algo.real.mismatch_limit is None else []
    for position in unknown:
        items[position].action_log_probs = torch.full_like(items[position].action_log_probs, torch.nan)
    if not reads_old(policy.strategy.args, maker.objective):
        unknown = plan.trained
        for item in items:
            item.action_log_probs = item.rollout_log_probs.clone()
    forwarded = sorted(set(plan.trained) - set(unknown))
    held, plans = rank_plans(plan, facts, maker.num_ranks, forwarded)
    rank = dist.get_rank()
    return every, plan, PlannedExperience.of([items[i] for i in held[rank]], plans[rank])


def advantages_of(case: Case) -> list[float]:
    """GRPO's, of the rollouts with a verdict: 0 for others, and where all rewards of a group are equal."""
    found = []
    for rewards in torch.tensor(rewards_of(case)).split(case.group_sizes):
        known = rewards[~rewards.isnan()]
        spread = known.std() if len(known) > 1 and known.max() > known.min() else torch.inf
        found += ((rewards - known.mean()) / (spread + 1e-9)).nan_to_num(0.0).tolist()
    return found


# ---------------------------------------------------------------------------------------------------------------------
# REAL against the paper's formula


def real_steps(**case) -> list[dict]:
    """REAL's trainer over the whole replay buffer; each optimizer step beside one-graph autograd of the paper."""
    case = Case(**case)
    policy = policy_actor(case)
    every, plan, own = deal(policy, case)
    policy.append(own)
    trainer, strategy, engine, naive = policy.trainer, policy.strategy, policy.actor.model, NaiveReal(case)
    records, forwards = [], []
    first_mlp = next(module for name, module in engine.module.named_modules() if name.endswith("layers.0.mlp"))
    first_mlp.register_forward_pre_hook(lambda *_: forwards.append(1))
    optimizer_step, deepspeed_step = trainer.optimizer_step, strategy.optimizer_step
    average = [parameter.detach().clone() for parameter in trainer.ema_model.parameters()] if case.ema else []

    def compared(*args, **kwargs) -> None:
        positions = plan.steps[len(records)].dealt
        values = {name: whole(parameter) for name, parameter in parameters(engine).items()}
        trained = {name: parameter for name, parameter in parameters(engine).items() if parameter.requires_grad}
        lots = lots_of(plan.moment.step, positions, groups_of(case))
        loss, gradients = naive(values, {p: every[p] for p in positions}, list(trained), lots)
        norm = float(torch.cat([gradient.flatten() for gradient in gradients.values()]).norm())
        got = {name: safe_get_full_grad(parameter).double() for name, parameter in trained.items()}
        errors = [
            float((got[name] - gradient).norm()) / (max(float(gradient.norm()), 0.01 * norm) or 1.0)
            for name, gradient in gradients.items()
        ]
        records.append({"naive_loss": loss, "naive_norm": norm, "gradient_error": max(errors)})
        deepspeed_step(*args, **kwargs)

    def recorded(table: StepTable) -> dict:
        forwards.clear()
        status = optimizer_step(table)
        batches = [batch for wave in table.step.waves for batch in wave.micro_batches]
        records[-1]["micro_batches"] = len(batches)
        records[-1]["forwards"] = len(forwards)
        for place, parameter in enumerate(trainer.actor.parameters() if case.ema else ()):
            average[place].lerp_(parameter.detach(), 1 - trainer.ema_beta)
        pairs = list(zip(average, trainer.ema_model.parameters(), strict=True)) if case.ema else []
        records[-1]["ema_error"] = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
        return status

    strategy.optimizer_step, trainer.optimizer_step = compared, recorded
    return [status | record for status, record in zip(statuses_of(policy), records, strict=True)]


def statuses_of(policy) -> list[dict[str, float]]:
    """Train with REAL's trainer: the logged numbers of each optimizer step, before they are merged."""
    with mock.patch.object(policy_trainer, "over_steps", wraps=policy_trainer.over_steps) as merged:
        policy.trainer.ppo_train(0.0)
    return merged.call_args.args[0]


class NaiveReal:
    """The paper's loss of an optimizer step as one graph: every rollout alone, then groups, in plain Python."""

    def __init__(self, case: Case) -> None:
        self.case = case
        lora = {"lora_rank": 4, "target_modules": "all-linear"} if case.lora else {}
        self.model = Actor(case.model, attn_implementation="eager", param_dtype="fp32", **lora).model

    def __call__(self, values: dict, items: dict[int, Experience], names: list[str], lots: dict) -> tuple[float, dict]:
        weights = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in values.items():
                weights[name].copy_(value)
        tokens = {position: self.log_probs(item) for position, item in items.items()}
        own = {"score": self.case.score} if self.case.score else {}
        settings = ObjectiveSettings(self.case.objective, uniform_groups=self.case.uniform_groups, own=own)
        scores = {p: naive_score(settings.score, new, old, drawn=drawn) for p, (new, old, drawn) in tokens.items()}
        columns = scores, labels_of(self.case), rewards_of(self.case), lots
        losses, _ = naive_losses(settings, items, groups_of(self.case), *columns)
        loss = sum(losses) / len(losses)
        every = torch.cat([new - before for new, before, _ in tokens.values()])
        objective = loss + self.case.kl_old_coef * (torch.exp(-every) - 1 + every).mean()
        gradients = torch.autograd.grad(objective, [weights[name] for name in names], allow_unused=True)
        return float(loss), {
            name: torch.zeros_like(weights[name]).double() if gradient is None else gradient.double()
            for name, gradient in zip(names, gradients, strict=True)
        }

    def log_probs(self, item: Experience) -> list[torch.Tensor]:
        """[log pi, log pi_old, the sampler's] of a rollout's action tokens."""
        tokens = item.sequences[item.attention_mask.bool()]
        logits = self.model(tokens[None]).logits[0].double()
        log_probs = logits.log_softmax(-1)[:-1].gather(-1, tokens[1:, None]).squeeze(-1)
        actions = item.action_mask.bool()[: len(log_probs)]
        before = item.action_log_probs, item.rollout_log_probs
        return [log_probs[actions], *(one[: len(log_probs)][actions].double() for one in before)]


# ---------------------------------------------------------------------------------------------------------------------
# losses and gradient norms, whatever the ranks


def filled(**case) -> tuple[Any, Case]:
    """A policy actor with this rank's rollouts of the case."""
    case = Case(**case)
    policy = policy_actor(case)
    fill(policy, case)
    return policy, case


def curve(**case) -> list[tuple[float, float]]:
    """(loss, gradient norm) of every optimizer step of OpenRLHF's own trainer, or of REAL's."""
    return points_of(*filled(**case))


def trained(**case) -> dict:
    """`curve`, and the weights before and after it."""
    policy, case = filled(**case)
    before = weights_of(policy)
    points = points_of(policy, case)
    return {"points": points, "before": before, "after": weights_of(policy)}


def weights_of(policy) -> torch.Tensor:
    return torch.cat([whole(parameter).flatten() for parameter in parameters(policy.actor.model).values()])


def points_of(policy, case: Case) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    if case.deal == "groups" or case.loss == "real":
        return [(status["policy_loss"], status["actor_grad_norm"]) for status in statuses_of(policy)]
    backward, step, parts = policy.strategy.backward, policy.strategy.optimizer_step, []

    def summed(loss, *args, **kwargs):
        parts.append(float(loss.detach()))
        backward(loss, *args, **kwargs)

    def recorded(*args, **kwargs):
        step(*args, **kwargs)
        gradients = policy.actor.model.gradient_accumulation_steps()
        if len(parts) == gradients:  # a step is the mean over micro-batches and ranks
            loss = policy.strategy.all_reduce(sum(parts) / gradients, op="mean")
            points.append((loss, policy.strategy.get_grad_norm(policy.actor)))
            parts.clear()

    policy.strategy.backward, policy.strategy.optimizer_step = summed, recorded
    policy.trainer.ppo_train(0.0)
    return points


def fill(policy, case: Case) -> None:
    """This rank's rollouts of the case into the replay buffer: by the plan, or an equal part for OpenRLHF."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if policy.strategy.args.train.deal == "groups":
        policy.append(deal(policy, case)[-1])
        return
    items = with_old_log_probs(policy, rollouts(case))
    for item, advantage in zip(items, advantages_of(case), strict=True):
        item.advantages, item.info = advantage * item.action_mask, {}
    policy.append(make_experience_batch(items[rank * len(items) // ranks : (rank + 1) * len(items) // ranks]))


def prefetched(**case) -> list[float]:
    """Of each optimizer step: the share of modules that ran while ZeRO-3 knew their order, and so fetched ahead."""
    policy, case = filled(**case)
    known: list[list[bool]] = []
    enter, step = PartitionedParameterCoordinator.trace_prologue, policy.trainer.optimizer_step

    def entered(coordinator, module):
        enter(coordinator, module)
        known[-1].append(coordinator.is_complete_trace())

    def begun(*args, **kwargs):
        known.append([])
        return step(*args, **kwargs)

    policy.trainer.optimizer_step = begun
    with mock.patch.object(PartitionedParameterCoordinator, "trace_prologue", entered):
        points_of(policy, case)
    return [sum(one) / len(one) for one in known]


def logged(**case) -> dict[str, float]:
    """What a rollout batch logs."""
    return filled(**case)[0].trainer.ppo_train(0.0)


def stand_in_aux_loss(**case) -> tuple[float, float]:
    """The gradient norm where each forward's aux loss is the sum of a weight's numbers, and what it should be."""
    policy, _ = filled(**case)
    trainer = policy.trainer
    trainer.args.actor.aux_loss_coef = 0.5
    weight, forward = list(parameters(policy.actor.model).values())[-1], trainer.forward
    trainer.forward = lambda *args, **how: replace(forward(*args, **how), aux_loss=weight.float().sum())
    return trainer.ppo_train(0.0)["actor_grad_norm"], 0.5 * weight.numel() ** 0.5


def weighed(**case) -> dict:
    """The scores and weights that the controller can ask for after a rollout batch, once, and what was logged."""
    policy, case = filled(**case)
    logged = policy.trainer.ppo_train(0.0)
    tables = [table.tolist() for table in policy.call_trainer("take_tables")]
    return {"tables": tables, "logged": logged, "later": policy.call_trainer("take_tables")}


def logged_ratios(**case) -> dict:
    """What is logged of pi / pi_old, 1 on the first rank and 1/e on the second; this rank's tokens."""
    policy, case = filled(**case)
    tokens = {0.0: 0, 1.0: 0}
    policy.trainer.mismatch.stops = False  # the policy moves by 1 here, vLLM's numbers stay
    for item in policy.trainer.replay_buffer.items:
        item.action_log_probs = item.action_log_probs + dist.get_rank()
        if not item.scores.isnan():
            tokens[float(item.scores)] += int(item.action_mask.sum())
    status = policy.trainer.ppo_train(0.0)
    return {"status": {name: value for name, value in status.items() if name.startswith("ratio/")}, "tokens": tokens}


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


def gradient_buffers(**case) -> dict[str, int]:
    """Bytes that DeepSpeed takes for a micro-batch's gradients beside their sums, and the policy's parameters."""
    case, made = Case(**case), []
    policy, sample = policy_actor(case), rollouts(case)[0]
    engine = policy.actor.model
    log_probs = policy.actor(sample.sequences, sample.action_mask, attention_mask=sample.attention_mask)
    engine.optimizer.clear_backward_seen_flag()
    engine.set_gradient_accumulation_boundary(False)
    size = sum(getattr(one, "ds_numel", one.numel()) for one in engine.module.parameters())

    def empty(*shape, **named) -> torch.Tensor:
        tensor = torch.empty(*shape, **named)
        made.append(tensor.nbytes * (tensor.numel() >= size // (2 * dist.get_world_size())))
        return tensor

    with mock.patch.object(stage_1_and_2, "torch", SimpleNamespace(**{**vars(torch), "empty": empty})):
        engine.backward((log_probs * sample.action_mask).sum(), scale_wrt_gas=False)
    kept = [bucket.buffer for bucket in engine.optimizer.ipg_buckets.values()]  # ZeRO-3 keeps its own
    made += [one.nbytes for one in kept if isinstance(one, torch.Tensor)]
    return {"parameters": size, "bytes": sum(made)}


def gap_to_sampler(shifts: list[float], **case) -> dict:
    """What a step logs of a sampler that is off by a constant on each rank, and how it ends."""
    policy, case = filled(**case)
    said, items = [], policy.trainer.replay_buffer.items
    policy.trainer.mismatch.say = said.append
    for item in items:
        row = {"sequences": item.sequences[None], "attention_mask": item.attention_mask[None]}
        old = policy.forward(action_mask=item.action_mask[None], **row)[0]
        item.rollout_log_probs = torch.where(item.action_mask.bool(), old + shifts[dist.get_rank()], torch.nan)
    tokens = sum(int(item.action_mask.sum()) for item in items)
    try:
        status = policy.trainer.ppo_train(0.0)
    except MismatchError as error:
        return {"stopped": str(error), "step": policy.actor.model.global_steps}
    gaps = {name: value for name, value in status.items() if name.startswith("mismatch/")}
    return {"tokens": tokens, "said": said, **gaps}


# ---------------------------------------------------------------------------------------------------------------------
# where the host waits: on CPU nothing waits, but the same operations are asked for


# What needs a value, or a size that follows from values, on the host.
WAITS = {
    "aten::_local_scalar_dense",  # item(), float(), bool(), an index that is a tensor
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::repeat_interleave.Tensor",
    "aten::equal",
}


class Waits(TorchDispatchMode):
    """Counts what waits, outside host maths (see `on_the_host`)."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.host = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        selects = name == "aten::index.Tensor" and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        self.count += not self.host and (name in WAITS or selects)
        return function(*args, **(kwargs or {}))


@contextmanager
def on_the_host(waits: Waits, owner, *names: str) -> Iterator[None]:
    """While these functions run, tensors are on the host already: a value read there waits for nothing."""

    def wrapped(original):
        def run(*args, **kwargs):
            waits.host += 1
            try:
                return original(*args, **kwargs)
            finally:
                waits.host -= 1

        return run

    with mock.patch.multiple(owner, **{name: wrapped(getattr(owner, name)) for name in names}):
        yield


def host_waits(**case) -> dict[str, int]:
    """Waits of a batch's training by REAL's trainer: in its own code, and by its fetches."""
    policy, case = filled(**case)
    trainer, engine = policy.trainer, policy.actor.model
    waits, fetches = Waits(), mock.Mock(wraps=metrics.fetch)
    with (
        mock.patch.object(metrics, "fetch", fetches),
        mock.patch.object(update, "fetch", fetches),
        mock.patch.object(policy_trainer, "fetch", fetches),
        on_the_host(waits, engine, "forward", "backward"),
        on_the_host(waits, policy.strategy, "optimizer_step", "get_grad_norm"),
        on_the_host(waits, trainer, "load"),
        on_the_host(waits, StepTable, "__init__", "put", "metrics"),
        on_the_host(waits, metrics.Meter, "metrics", "token_means"),
        waits,
    ):
        trainer.ppo_train(0.0)
    return {"waits": waits.count, "fetches": fetches.call_count}


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


# ---------------------------------------------------------------------------------------------------------------------
# starting


def optimizer(model: str) -> dict:
    """What updates the weights, and whether DeepSpeed has compiled its own for it."""
    found = policy_actor(Case(model=model, dtype="bf16")).actor.model.basic_optimizer
    return {"is": f"{type(found).__module__}.{type(found).__name__}", "compiled": "fused_adam" in sys.modules}


# ---------------------------------------------------------------------------------------------------------------------
# loading


def load_with_late_gathers(model: str, fixed: bool) -> list[str]:
    """Load the model as OpenRLHF's Actor does for ZeRO-3; parameters that then differ from the file."""
    config = strategy_of(model).get_ds_train_config()
    if not fixed:
        config["zero_optimization"].pop("stage3_allgather_sequential", None)
    expected = load_file(f"{model}/model.safetensors")
    with late_gathers():
        loaded = Actor(model, attn_implementation="eager", param_dtype="bf16", ds_config=config).model
    found = {name: whole(parameter) for name, parameter in loaded.named_parameters()}
    return [name for name, value in expected.items() if not found[name].equal(value.to(torch.bfloat16))]


def reference_forwards(model: str, count: int) -> list[float]:
    """What a ZeRO-3 engine without gradients, whose every weight is sharded, makes of one batch again and again."""
    config = strategy_of(model).get_ds_eval_config()
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    actor = Actor(model, attn_implementation="eager", param_dtype="bf16", ds_config=config)
    engine, *_ = deepspeed.initialize(model=actor.model.eval(), config=config)
    tokens = torch.arange(3, 13)[None]
    with torch.no_grad():
        return [float(engine(tokens).logits.float().logsumexp(-1).sum()) for _ in range(count)]


def strategy_of(model: str):
    strategy = utils.get_strategy(arguments(Case(model=model, dtype="bf16")))
    strategy.setup_distributed()
    return strategy


@contextmanager
def late_gathers():
    """A gather that nobody waits for ends just before the next broadcast begins: late, and always equally late."""
    gather, broadcast = deepspeed.comm.all_gather_into_tensor, deepspeed.comm.broadcast
    running = []

    class LateGather:
        def __init__(self, output, result) -> None:
            self.output, self.result = output, result

        def wait(self) -> None:
            if self.result is not None:
                self.output.copy_(self.result)
            self.result = None

    def all_gather_into_tensor(output, *args, async_op=False, **kwargs):
        if not async_op:
            return gather(output, *args, **kwargs)
        # what is gathered before loading is whatever lay in memory: nan, so that it is not an earlier load's weights
        running.append(LateGather(output, torch.full_like(output, torch.nan)))
        return running[-1]

    def broadcast_after(*args, **kwargs):
        while running:
            running.pop(0).wait()
        return broadcast(*args, **kwargs)

    with (
        mock.patch.object(deepspeed.comm, "all_gather_into_tensor", all_gather_into_tensor),
        mock.patch.object(deepspeed.comm, "broadcast", broadcast_after),
    ):
        yield
