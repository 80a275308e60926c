"""The trainer of every method. A rollout batch from top to bottom:

the controller, in controller/experience_maker.py
    label_rollouts       a verdict becomes a label: correct, incorrect, unparsable or ungraded
    with_gradients       which responses can have a weight; for a loss of tokens their advantages
    plan_rollouts        updates of whole prompts, waves, micro-batches of each rank: algorithm/step_plan.py
    log_probs            of the old policy and the reference model, where the loss reads them
    send                 one plan to all ranks; then OpenRLHF gives each rank its responses
each rank, here
    train_batch          for each update of the plan:
        update               its loss, which the method chooses: algorithm/update.py, token_update.py
        train_update         for each wave, which holds whole prompts:
            score_wave           unless scores are known: forward each micro-batch, keep the graphs,
                exchange         add up the scores of all ranks; weights are the loss's gradient in them
            forward              each micro-batch, unless its graph was kept
            loss                 sum of weight x score, or the loss of its tokens; plus KL and entropy
            backward             DeepSpeed adds up the gradient
        step_optimizer       DeepSpeed changes the weights
        logged               numbers of the update, summed over ranks
    over_updates         numbers of the batch: algorithm/metrics.py
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import psutil
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from openrlhf.models.utils import compute_approx_kl
from openrlhf.trainer.ppo_utils.experience import (
    Experience,
    make_experience_batch,
    remove_padding_in_sequences,
    split_experience_batch,
)
from torch import Tensor

from real_openrlhf import patching
from real_openrlhf.algorithm.metrics import MEMORY_METRICS, logged_of_batch, norm_metrics, over_updates
from real_openrlhf.algorithm.mismatch import Mismatch
from real_openrlhf.algorithm.schedule import Position, Positions, Wave
from real_openrlhf.algorithm.step_plan import Plan, PlannedUpdate
from real_openrlhf.algorithm.token_update import CustomTokenUpdate, TokenUpdate
from real_openrlhf.algorithm.update import Coefficients, Forward, GroupUpdate, Update
from real_openrlhf.base.run_files import enter
from real_openrlhf.flags.derived import objective_of
from real_openrlhf.forecast import memory
from real_openrlhf.hooks.fixes.deepspeed_optimizers import accumulate_as_flagged
from real_openrlhf.hooks.model.lora_weights import refuse_shared_weights
from real_openrlhf.hooks.upstream_trainer import EngineStartTrainer


class PolicyTrainer(EngineStartTrainer):
    """Upstream's actor trainer with our loop; engine, checkpoints and weight sync are upstream's."""

    actor_loss_fn: torch.nn.Module
    plan: Plan  # of the batch in `replay_buffer`, by `set_plan`

    def __init__(self, *args, **kwargs) -> None:
        patching.assert_applied()
        super().__init__(*args, **kwargs)
        self.objective = objective_of(self.args)
        self.replay_buffer: list[Experience] = []  # this rank's rollouts of one batch, joined
        self.rollouts: dict[Position, Experience] = {}  # the same, one by one, during the batch's updates
        self.engine = self.actor.model
        accumulate_as_flagged(self.engine)
        refuse_shared_weights(self.engine.module)
        self.device = torch.device(get_accelerator().current_device_name())
        self.dp_group = self.strategy.ds_device_mesh["dp"].get_group()
        self.dp_size, self.rank = dist.get_world_size(self.dp_group), dist.get_rank(self.dp_group)
        if self.objective:
            self.strategy.print(f"objective {self.objective.name}: {self.objective.settings}")
        self.tables: list[Tensor] = []  # one per update of the last batch, for `take_tables`
        rollout = self.args.rollout
        self.mismatch = Mismatch(rollout.mismatch == "stop", rollout.top_p, rollout.temperature, self.strategy.print)

    def live_tokens(self) -> float:
        """Number of tokens whose graphs fit in this rank's memory, by which the controller limits waves; at least 0.

        It follows from sizes only, not from the memory that is free now: a restarted run must make the same plan, and
        while states are offloaded more memory is free than during training.
        """
        args, accelerator = self.args, get_accelerator()
        if accelerator.device_name() == "cpu":  # an equal part of the machine's memory
            free = psutil.virtual_memory().total / args.actor.num_gpus_per_node
        else:
            free = memory.left_on(args, accelerator.total_memory())
        weights = list(self.engine.module.parameters())
        every, trained = (
            sum(getattr(one, "ds_numel", one.numel()) for one in chosen)
            for chosen in (weights, [one for one in weights if one.requires_grad])
        )
        adapters = trained if args.ds.lora.rank else 0
        shape = memory.any_shape(self.engine.module.config.get_text_config().to_dict())
        return memory.live_tokens(replace(shape, parameters=every - adapters), args, adapters, free)

    def set_plan(self, plan: Plan) -> None:
        self.plan = plan

    def take_tables(self) -> list[Tensor]:
        """Return the last batch's scores and weights to the controller, one table per update, and forget them."""
        tables, self.tables = self.tables, []
        return tables

    def train_batch(self, kl_ctl: float) -> dict[str, float]:
        """Run all optimizer steps of the controller's plan."""
        if self.strategy.is_rank_0():
            enter(self.args.train.run_dir, "update")
        if on_cuda := get_accelerator().device_name() == "cuda":
            torch.cuda.reset_peak_memory_stats()
        (joined,), self.tables, logs = self.replay_buffer, [], []
        items = remove_padding_in_sequences(split_experience_batch(joined))
        self.rollouts = dict(zip(self.plan.held(self.rank), items, strict=True))
        for planned in self.plan.updates:
            update = self.update(planned, kl_ctl)
            logs.append(self.train_update(update) | update.logged())
            if "sampling/logprob_diff_mean" in logs[-1]:
                self.mismatch.judge(logs[-1]["sampling/logprob_diff_mean"], update.optimizer_step)
            if (columns := update.columns()) is not None:
                self.tables.append(columns)
        self.rollouts = {}
        merged = over_updates(logs, [planned.trained_tokens for planned in self.plan.updates])
        norms = [log["actor_grad_norm"] for log in logs]
        if not any(norms) and self.weighed():
            self.strategy.print(
                f"warning: the gradients of the batch up to optimizer step {self.engine.global_steps} are exactly 0, "
                "though responses have weights. Look at the flags that you changed: one of them scales or cuts the "
                "whole loss away"
            )
        merged |= norm_metrics(norms, self.args.actor.max_norm) | (gpu_memory() if on_cuda else {})
        holds = {  # for the metrics that are logged only then (`Metric.when`)
            "tokens": any(planned.trained_tokens for planned in self.plan.updates),
            "scores": self.args.derived.loss == "scores",
            "entropy": self.args.actor.entropy_coef is not None,  # else no forward computes entropies
        }
        return logged_of_batch(self.plan.metrics, merged, {name for name, true in holds.items() if true})

    def weighed(self) -> bool:
        """Whether a response of the batch had a weight or an advantage."""
        if self.tables:
            return any(bool(weights.any()) for _, _, weights in self.tables)
        sides = self.objective is None or self.objective.objective.two_sides  # another may weigh none of them
        return sides and self.plan.metrics["update/frac_nonzero_weight"] > 0

    def update(self, planned: PlannedUpdate, kl_ctl: float) -> Update:
        """The next update, with the method's loss and the coefficients of the flags."""
        real, actor = self.args.algo.real, self.args.actor
        apart = planned.on_policy or self.args.derived.reads_old  # else old log-probabilities are vLLM's
        sampled = apart and self.replay_buffer[0].rollout_log_probs is not None
        coefficients = Coefficients(real.kl_old_coef, kl_ctl, actor.entropy_coef, real.tis_cap)
        family = "grpo" if actor.policy_loss_type == "ppo" else actor.policy_loss_type
        make: Callable[..., Update] = partial(TokenUpdate, self.actor_loss_fn, family, tuple(actor.eps_clip_low_high))
        if self.objective:
            of_loss = GroupUpdate if self.args.derived.loss == "scores" else CustomTokenUpdate
            make = partial(of_loss, self.objective)
        optimizer_step = self.engine.global_steps + 1
        return make(planned, coefficients, optimizer_step, self.device, self.dp_group, sampled)

    def train_update(self, update: Update) -> dict[str, float]:
        """Wave by wave: forward, exchange of scores, loss, backward. Then one step of the optimizer."""
        self.actor.train()
        waves = update.planned.waves
        rollouts = sum(len(held) for wave in waves for held in wave.ranks[self.rank])
        for wave in waves:
            micro_batches = wave.ranks[self.rank]
            graphs = [] if update.planned.scores_known else self.score_wave(wave, update)
            for number, held in enumerate(micro_batches):
                now = graphs.pop(0) if graphs else self.forward(held, update.planned)
                last = wave is waves[-1] and number == len(micro_batches) - 1
                self.backward(update.loss(now), now.aux_loss, len(held) / max(rollouts, 1), last)
        return self.step_optimizer()

    def score_wave(self, wave: Wave, update: Update) -> list[Forward]:
        """Exchange the wave's scores over ranks, so that the table has weights; return forwards with kept graphs."""
        forwards = [self.forward(held, update.planned, not wave.score_first) for held in wave.ranks[self.rank]]
        update.exchange(wave, forwards)
        return [] if wave.score_first else forwards

    def load(self, held: Positions) -> Experience:
        """A micro-batch on the device. A rank without rollouts left gets a dummy whose action mask is all zeros."""
        items = [self.rollouts[position] for position in held]
        experience = make_experience_batch(items or [*self.rollouts.values()][:1])
        experience.info = {}  # only the log needs it, and the plan's metrics have its means
        if not items:
            experience.action_mask = torch.zeros_like(experience.action_mask)
        return experience.to_device(self.device)

    def forward(self, held: Positions, planned: PlannedUpdate, differentiable: bool = True) -> Forward:
        experience = self.load(held)
        mask, args = experience.action_mask, self.args
        with torch.set_grad_enabled(differentiable):
            log_probs, output = self.actor(
                experience.sequences,
                mask,
                attention_mask=experience.attention_mask,
                return_output=True,
                return_entropy=args.actor.entropy_coef is not None and differentiable,
            )
        if planned.on_policy and args.derived.reads_old:
            experience.action_log_probs = log_probs.detach()  # the policy is still the old one
        old, reference, kl = experience.action_log_probs, experience.base_action_log_probs, None
        unmoved = log_probs.detach() if planned.on_policy else None
        if args.derived.kl_in_loss and differentiable:
            how = {"kl_estimator": args.algo.kl.estimator, "unbiased_gradient": args.algo.kl.unbiased_gradient}
            # select before any arithmetic: 0 * nan is nan, also in a gradient
            own = (torch.where(mask.bool(), column, 0.0) for column in (log_probs, reference, old))
            kl = compute_approx_kl(*own, **how)
        entropy = getattr(output, "entropy", None)
        if entropy is not None:
            entropy = entropy[:, -mask.shape[1] :]
            if not args.actor.entropy_coef:  # an entropy that is only logged needs no graph
                entropy = entropy.detach()
        aux_loss = output.aux_loss if self.aux_loss and differentiable else None
        score, positions = args.derived.score or "", torch.tensor(held, dtype=torch.long)
        columns = (mask, log_probs, old, reference, experience.rollout_log_probs)
        return Forward(score, positions, *columns, kl, entropy, aux_loss, experience.advantages, unmoved)

    def backward(self, loss: Tensor, aux_loss: Tensor | None, fraction: float, last: bool) -> None:
        """The weights contain the step's 1/n, so DeepSpeed must not divide by micro-batches; `last` ends the step.

        `aux_loss`, of a mixture of experts, is a mean over this micro-batch: a `fraction` of the rank's rollouts.
        """
        loss = loss * self.dp_size  # DeepSpeed averages gradients over ranks
        if aux_loss is not None:
            loss = loss + self.args.actor.aux_loss_coef * fraction * aux_loss
        # DeepSpeed clears this flag in each forward, so that later gradients are added. Here several backwards follow.
        self.engine.optimizer.clear_backward_seen_flag()
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss, scale_wrt_gas=False)

    def step_optimizer(self) -> dict[str, float]:
        """Change the weights; return the logged numbers (learning rate, norm) that the next step overwrites."""
        rate = self.actor_scheduler.get_last_lr()[0]  # the scheduler then moves on to the next update's
        self.strategy.optimizer_step(self.actor_optim, self.actor, self.actor_scheduler, name="actor")
        return {"actor_lr": rate, "actor_grad_norm": self.strategy.get_grad_norm(self.actor)}


def gpu_memory() -> dict[str, float]:
    """Of this process's GPU since its peak was reset; a colocated vLLM sleeps now."""
    stats, (free, total) = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
    allocated, reserved = (stats[f"{kind}_bytes.all.peak"] / memory.GB for kind in ("allocated", "reserved"))
    other = (total - free - stats["reserved_bytes.all.current"]) / memory.GB
    return dict(zip(MEMORY_METRICS, (allocated, reserved, stats["num_alloc_retries"], other), strict=True))
