"""The actor-side trainer. An optimizer step is one loop over its waves: forward, exchange scores, weigh, backward."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from openrlhf.models.utils import compute_approx_kl
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
from torch import Tensor

from real_openrlhf import patching
from real_openrlhf.algorithm.metrics import norm_metrics, over_steps, ratio_table, rollout_gradients
from real_openrlhf.algorithm.objective import rollout_scores
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_hinge_coef, kl_k1, kl_old
from real_openrlhf.algorithm.score_table import share_scores
from real_openrlhf.algorithm.step_plan import MicroBatch, RankStep, RankWave
from real_openrlhf.hooks.actor.kept_graphs import kept_tokens
from real_openrlhf.hooks.actor.meter import TERMS, Meter, fetch
from real_openrlhf.hooks.actor.mismatch import Mismatch
from real_openrlhf.hooks.actor.step_table import StepTable
from real_openrlhf.hooks.fixes.gradient_format import accumulate_as_flagged
from real_openrlhf.hooks.messages.planned_experience import PlanBuffer, batch_of
from real_openrlhf.hooks.messages.settings import objective_settings, reads_old


@dataclass
class Batch:
    """A micro-batch on the device. A dummy, with nothing visible, stands in where a rank has nothing left."""

    items: list[Experience]
    rows: Tensor  # of the step's table; none for a dummy
    labels: Tensor
    experience: Experience

    @property
    def old(self) -> Tensor:
        return self.experience.action_log_probs

    @property
    def mask(self) -> Tensor:
        return self.experience.action_mask


@dataclass
class Forward:
    """A forward pass of a micro-batch; differentiable unless it was a scoring pass."""

    log_probs: Tensor
    scores: Tensor
    entropy: Tensor | None
    aux_loss: Tensor | None


class RealActorTrainer(ActorPPOTrainer):
    """Upstream's actor trainer with REAL's loop; engine, checkpoints and weight sync are upstream's."""

    def __init__(self, *args, **kwargs) -> None:
        patching.assert_applied()
        super().__init__(*args, **kwargs)
        self.settings = objective_settings(self.args)
        self.reads_old = reads_old(self.args, self.settings)
        self.actor_loss_fn = RealPolicyLoss()
        self.replay_buffer = PlanBuffer()
        self.engine = self.actor.model
        accumulate_as_flagged(self.engine)
        self.device = torch.device(get_accelerator().current_device_name())
        self.dp_group = self.strategy.ds_device_mesh["dp"].get_group()
        self.dp_size = dist.get_world_size(self.dp_group)
        self.strategy.print(f"REAL: {self.settings.name}, tau {self.settings.tau:g}")
        self.tables: list[Tensor] = []  # of the updates since the controller last asked
        self.mismatch = Mismatch(self.args, self.strategy.print)

    def kept_tokens(self) -> float:
        """Tokens of this rank whose graphs fit in its memory: the controller cuts waves by it."""
        return kept_tokens(self.engine, self.args)

    def take_tables(self) -> list[Tensor]:
        """Scores and weights of all rollouts of the last batch, update by update: the controller keeps some."""
        tables, self.tables = self.tables, []
        return tables

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        """Every optimizer step of the controller's plan, all epochs."""
        self.strategy.enter("update")
        self.strategy.reseed_dropout(self.engine.global_steps)
        plan, self.tables = self.replay_buffer.plan, []
        statuses = [self.optimizer_step(step, kl_ctl) for step in plan.steps]
        gaps = {name: value for name, value in statuses[0].items() if name.startswith("mismatch/")}
        statuses = [gaps | status for status in statuses]
        self.strategy.enter("handing over weights")
        merged = over_steps(statuses, [step.log_weight for step in plan.steps])
        merged |= norm_metrics([status["actor_grad_norm"] for status in statuses], self.args.actor.max_norm)
        if not any(step.log_weight for step in plan.steps):  # a mean over no token is no number
            merged = {name: value for name, value in merged.items() if name not in TERMS}
        return {**plan.metrics, **merged}

    def optimizer_step(self, step: RankStep, kl_ctl: float) -> dict[str, float]:
        """Wave by wave: forward, exchange, weigh, backward. Then one step of the optimizer."""
        self.actor.train()
        table = StepTable(self.settings, step, self.engine.global_steps + 1)  # scores, weights, hinge
        sampled = self.replay_buffer.items[0].rollout_log_probs is not None
        sampled = sampled and (step.makes_old_log_probs or self.reads_old)  # else both are vLLM's
        meter = Meter(self.device, scored=True, sampled=sampled)  # for the log only
        for wave in step.waves:
            batches = [self.load(micro_batch, step) for micro_batch in wave.micro_batches]
            graphs = [] if step.scores_known else self.score_wave(wave, batches, table)
            for batch in batches:
                now = graphs.pop(0) if graphs else self.forward(batch, step)
                terms = self.token_terms(batch, now)
                loss = self.loss(batch, now, terms, table, kl_ctl)
                self.measure(batch, now, terms, table, meter)
                self.backward(loss, last=wave is step.waves[-1] and batch is batches[-1])
        self.step_optimizer()
        self.tables.append(table.columns())
        return self.status(table, meter)

    def score_wave(self, wave: RankWave, batches: list[Batch], table: StepTable) -> list[Forward]:
        """The scores of all ranks into the table, which weighs them; the graphs for backward where they fit."""
        forwards = [self.forward(batch, table.step, differentiable=not wave.score_first) for batch in batches]
        self.exchange(wave, batches, forwards, table)
        return [] if wave.score_first else forwards

    def load(self, micro_batch: MicroBatch, step: RankStep) -> Batch:
        items = [self.replay_buffer.items[item] for item in micro_batch.items]
        experience = batch_of(items or self.replay_buffer.items[:1])
        if not items:
            experience.action_mask = torch.zeros_like(experience.action_mask)
        labels = step.labels[micro_batch.rows].to(self.device)
        return Batch(items, micro_batch.rows, labels, experience.to_device(self.device))

    def forward(self, batch: Batch, step: RankStep, differentiable: bool = True) -> Forward:
        experience = batch.experience
        with torch.set_grad_enabled(differentiable):
            log_probs, output = self.actor(
                experience.sequences,
                batch.mask,
                attention_mask=experience.attention_mask,
                return_output=True,
                return_entropy=self.args.actor.entropy_coef is not None and differentiable,
            )
            if step.makes_old_log_probs:
                self.remember_old(batch, log_probs.detach())
            reference = experience.base_action_log_probs
            anchors = (batch.old, reference, batch.mask, experience.rollout_log_probs)
            scores = rollout_scores(self.settings.score, log_probs, *anchors)
        entropy = getattr(output, "entropy", None)
        if entropy is not None:
            entropy = entropy[:, -batch.mask.shape[1] :]
            if not self.args.actor.entropy_coef:  # one that is only logged keeps no graph
                entropy = entropy.detach()
        return Forward(log_probs, scores, entropy, output.aux_loss if self.aux_loss and differentiable else None)

    def remember_old(self, batch: Batch, log_probs: Tensor) -> None:
        """The policy is the old one: what it says now is what it will be compared with, here and in later epochs."""
        batch.experience.action_log_probs = log_probs
        if self.max_epochs > 1:
            for item, row in zip(batch.items, fetch(log_probs), strict=False):
                item.action_log_probs = row[: len(item.action_mask)]

    def exchange(self, wave: RankWave, batches: list[Batch], forwards: list[Forward], table: StepTable) -> None:
        """One all-reduce: each rank brings its rollouts' scores and, for DisCO's constraint, its part of the KL."""
        step = table.step
        own = torch.cat([one.scores[: len(batch.rows)] for one, batch in zip(forwards, batches, strict=True)])
        places = torch.searchsorted(wave.rows, torch.cat([batch.rows for batch in batches]))
        kl = own.new_zeros(())
        if step.step_wide:
            pairs = zip(forwards, batches, strict=True)
            kl = sum((kl_k1(one.log_probs, batch.old, batch.mask, step.action_tokens) for one, batch in pairs), kl)
        scores, kl = share_scores(own, places, len(wave.rows), kl, self.dp_group)
        shared = fetch(torch.cat([scores, kl[None]]))
        table.put(wave.rows, shared[:-1])
        if step.step_wide:
            real = self.args.algo.real
            table.hinge = kl_hinge_coef(float(shared[-1]), real.disco_kl_coef, real.disco_kl_delta)

    def token_terms(self, batch: Batch, now: Forward) -> dict[str, Tensor]:
        """Sums over tokens that the loss may have beside the scores, and that are logged; 0 where nobody asks."""
        old, mask, args = batch.old, batch.mask, self.args
        terms = dict.fromkeys(TERMS, torch.zeros((), dtype=torch.float64, device=self.device))
        terms["ppo_kl"] = kl_k1(now.log_probs, old, mask, 1)
        if args.algo.real.kl_old_coef:
            terms["kl_old"] = kl_old(now.log_probs, old, mask, 1)
        if args.algo.kl.use_loss and args.algo.kl.init_coef > 0:
            reference, kl = batch.experience.base_action_log_probs, args.algo.kl
            estimate = compute_approx_kl(
                now.log_probs,
                reference,
                log_probs_old=old,
                kl_estimator=kl.estimator,
                unbiased_gradient=kl.unbiased_gradient,
            )
            terms["kl"] = torch.where(mask.bool(), estimate, 0.0).sum()
            terms["logprobs_diff"] = torch.where(mask.bool(), now.log_probs - reference, 0.0).sum()
        if now.entropy is not None:
            terms["entropy_loss"] = torch.where(mask.bool(), now.entropy, 0.0).sum()
        return terms

    def loss(self, batch: Batch, now: Forward, terms: dict[str, Tensor], table: StepTable, kl_ctl: float) -> Tensor:
        """This micro-batch's part of the step's loss."""
        loss = self.actor_loss_fn(now.scores, table.weights_of(batch.rows).to(self.device))
        per_token = self.args.algo.real.kl_old_coef * terms["kl_old"] + kl_ctl * terms["kl"]
        if table.hinge:
            per_token = per_token + table.hinge * terms["ppo_kl"]
        if self.args.actor.entropy_coef:
            per_token = per_token - self.args.actor.entropy_coef * terms["entropy_loss"]
        loss = (loss + per_token / table.step.action_tokens) * self.dp_size  # DeepSpeed averages gradients over ranks
        return loss if now.aux_loss is None else loss + self.args.actor.aux_loss_coef * now.aux_loss

    @torch.no_grad()
    def measure(self, batch: Batch, now: Forward, terms: dict[str, Tensor], table: StepTable, meter: Meter) -> None:
        """The loss's terms, the paper's Table 1, and how far scores are from those that weights were made from."""
        meter.add(**terms)
        if not len(batch.rows):
            return
        columns = (now.log_probs, batch.old, batch.mask)
        used, weights = torch.stack([table.scores[batch.rows], table.weights[batch.rows]]).to(self.device)
        gradients = rollout_gradients(self.settings.score, *columns, weights * table.denominator)
        meter.add(ratios=ratio_table(*columns, batch.labels, gradients))
        meter.raise_to(score_drift=(now.scores.double() - used).abs().max())
        meter.see(*columns, batch.experience.rollout_log_probs)

    def backward(self, loss: Tensor, last: bool) -> None:
        """The weights already hold the step's mean, so DeepSpeed neither scales by accumulation nor counts for us."""
        # DeepSpeed takes a backward for a new one, whose gradient is added, only after a forward; here several follow.
        self.engine.optimizer.clear_backward_seen_flag()
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss, scale_wrt_gas=False)

    def step_optimizer(self) -> None:
        self.strategy.optimizer_step(self.actor_optim, self.actor, self.actor_scheduler, name="actor")
        if self.ema_model:
            # Upstream's count is of micro-batches: make this call the step's last one.
            self.strategy.time_steps["ema"] += self.strategy.accumulated_gradient - 1
            self.strategy.moving_average(self.actor, self.ema_model, self.ema_beta, self.device.type)

    def status(self, table: StepTable, meter: Meter) -> dict[str, float]:
        """The logged numbers of an optimizer step, the same on every rank."""
        meter.gather(self.dp_group)
        return {
            "actor_lr": self.actor_scheduler.get_last_lr()[0],
            "actor_grad_norm": self.strategy.get_grad_norm(self.actor),
            **meter.token_means(table.step.trained_tokens),
            **table.metrics(meter.maxima["score_drift"]),
            **meter.metrics(self.mismatch, self.engine.global_steps),
        }
