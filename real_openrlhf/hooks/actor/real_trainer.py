"""The actor-side trainer. An optimizer step is one loop over its waves: forward, exchange scores, weigh, backward."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from openrlhf.models.utils import compute_approx_kl
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
from torch import Tensor

from real_openrlhf import patching
from real_openrlhf.algorithm.metrics import (
    RATIO_TABLE_SHAPE,
    clipped_share,
    group_metrics,
    largest_log_ratio,
    over_steps,
    ratio_metrics,
    ratio_table,
    token_gradients,
)
from real_openrlhf.algorithm.mismatch import LARGEST as GAP_MAXIMA
from real_openrlhf.algorithm.mismatch import SUMS as GAP_SUMS
from real_openrlhf.algorithm.mismatch import gaps
from real_openrlhf.algorithm.objective import KNOWN_AT_OLD, WeighedLoss, score_weights
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_hinge_coef, kl_k1, kl_old
from real_openrlhf.algorithm.score_table import share_scores, sum_over_ranks
from real_openrlhf.algorithm.step_plan import MicroBatch, RankStep, RankWave
from real_openrlhf.hooks.actor.kept_graphs import kept_tokens
from real_openrlhf.hooks.actor.mismatch import Mismatch
from real_openrlhf.hooks.controller.experience_maker import objective_settings
from real_openrlhf.hooks.controller.planned_experience import PlanBuffer, batch_of
from real_openrlhf.hooks.fixes.dropout_seeds import reseed
from real_openrlhf.hooks.fixes.gradient_format import add_up_as_told
from real_openrlhf.hooks.nonfinite_guard import NonFiniteError

# Token sums of a step that ranks add up for the log, in this order, before the ratio table and the sampler's gaps.
SUMS = ("entropy_loss", "ppo_kl", "kl_old", "kl", "logprobs_diff")


EPISODE = ("response_length", "total_length", "truncated")


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

    @property
    def sampler(self) -> Tensor | None:
        return self.experience.rollout_log_probs


@dataclass
class Forward:
    """What the policy says of a micro-batch; differentiable unless it was a scoring pass."""

    log_probs: Tensor
    scores: Tensor
    entropy: Tensor | None = None
    aux_loss: Tensor | None = None


@dataclass
class Totals:
    """What an optimizer step gathers: scores and weights of all its rollouts on the host, sums on the device."""

    kl_ctl: float
    scores: Tensor  # (K,): what the weights were made from
    weights: Tensor  # (K,)
    sums: Tensor
    largest: Tensor  # the scores' drift, the tokens' log-ratio, then the gaps to the sampler
    hinge: float = 0.0  # coefficient of DisCO's KL constraint


class RealActorTrainer(ActorPPOTrainer):
    """Upstream's actor trainer with REAL's loop; engine, checkpoints and weight sync are upstream's."""

    def __init__(self, *args, **kwargs) -> None:
        patching.assert_applied()
        super().__init__(*args, **kwargs)
        self.settings = objective_settings(self.args)
        self.actor_loss_fn = RealPolicyLoss(self.settings.objective.score)
        self.replay_buffer = PlanBuffer()
        self.engine = self.actor.model
        add_up_as_told(self.engine)
        self.device = torch.device(get_accelerator().current_device_name())
        self.dp_group = self.strategy.ds_device_mesh["dp"].get_group()
        self.dp_size = dist.get_world_size(self.dp_group)
        self.about = ""
        self.mismatch = Mismatch(self.args, self.strategy.print)

    def kept_tokens(self) -> float:
        """Tokens of this rank whose graphs fit in its memory: the controller cuts waves by it."""
        return kept_tokens(self.engine, self.args)

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        """Every optimizer step of the controller's plan, all epochs."""
        self.strategy.enter("update")
        reseed(self.args.train.seed, self.engine.global_steps, dist.get_rank())
        plan = self.replay_buffer.plan
        if plan.about != self.about:
            self.about = plan.about
            self.strategy.print(f"REAL: {self.settings.name}, tau {self.settings.tau:g}, {plan.about}")
        statuses = [self.optimizer_step(step, kl_ctl) for step in plan.steps]
        self.strategy.enter("handing over weights")
        return {**self.rollout_means(), **plan.metrics, **over_steps(statuses)}

    def optimizer_step(self, step: RankStep, kl_ctl: float) -> dict[str, float]:
        """Every wave's gradient, then one step of the optimizer."""
        self.actor.train()
        waves = [[self.load(micro_batch, step) for micro_batch in wave.micro_batches] for wave in step.waves]
        totals = self.totals(step, kl_ctl)
        for number, (wave, batches) in enumerate(zip(step.waves, waves, strict=True)):
            self.train_wave(step, wave, batches, totals, last=number == len(waves) - 1)
        self.strategy.optimizer_step(self.actor_optim, self.actor, self.actor_scheduler, name="actor")
        if self.ema_model:
            # Upstream's count is of micro-batches: make this call the step's last one.
            self.strategy.time_steps["ema"] += self.strategy.accumulated_gradient - 1
            self.strategy.moving_average(self.actor, self.ema_model, self.ema_beta, self.device.type)
        return self.status(step, totals)

    def train_wave(self, step: RankStep, wave: RankWave, batches: list[Batch], totals: Totals, last: bool) -> None:
        """Forward, exchange, weigh, backward. Scores that are known, or scored first, need no graph before theirs."""
        keep = not (step.known or wave.score_first)
        forwards = [] if step.known else [self.forward(batch, step, differentiable=keep) for batch in batches]
        if not step.known:
            self.exchange(step, wave, batches, forwards, totals)
            totals.weights[wave.rows] = self.weigh(step, totals.scores, wave.rows).weights
        for number, batch in enumerate(batches):
            now = forwards.pop(0) if keep else self.forward(batch, step)
            loss = self.loss(step, batch, now, totals)
            self.measure(step, batch, now, totals)
            self.backward(loss, last=last and number == len(batches) - 1)

    def load(self, micro_batch: MicroBatch, step: RankStep) -> Batch:
        items = [self.replay_buffer.items[item] for item in micro_batch.items]
        experience = batch_of(items or self.replay_buffer.items[:1])
        if not items:
            experience.action_mask = torch.zeros_like(experience.action_mask)
        labels = step.labels[micro_batch.rows].to(self.device)
        return Batch(items, micro_batch.rows, labels, experience.to_device(self.device))

    def totals(self, step: RankStep, kl_ctl: float) -> Totals:
        scores = torch.zeros(len(step.labels), dtype=torch.float64)
        sums = torch.zeros(len(SUMS) + RATIO_TABLE_SHAPE.numel() + GAP_SUMS, dtype=torch.float64, device=self.device)
        if step.known:
            scores += KNOWN_AT_OLD[self.settings.objective.score]
        weights = self.weigh(step, scores).weights if step.known else torch.zeros_like(scores)
        return Totals(kl_ctl, scores, weights, sums, largest=sums.new_zeros(2 + GAP_MAXIMA))

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
            if step.makes_old:
                self.remember_old(batch, log_probs.detach())
            scores = self.actor_loss_fn.scores(log_probs, batch.old, batch.mask, experience.base_action_log_probs)
        entropy = getattr(output, "entropy", None)
        if entropy is not None:
            entropy = entropy[:, -batch.mask.shape[1] :]
            if not self.args.actor.entropy_coef:  # one that is only logged keeps no graph
                entropy = entropy.detach()
        return Forward(
            log_probs=log_probs,
            scores=scores,
            entropy=entropy,
            aux_loss=output.aux_loss if self.aux_loss and differentiable else None,
        )

    def remember_old(self, batch: Batch, log_probs: Tensor) -> None:
        """The policy is the old one: what it says now is what it will be compared with, here and in later epochs."""
        batch.experience.action_log_probs = log_probs
        if self.max_epochs > 1:
            for item, row in zip(batch.items, fetch(log_probs), strict=False):
                item.action_log_probs = row[: len(item.action_mask)]

    def exchange(
        self, step: RankStep, wave: RankWave, batches: list[Batch], forwards: list[Forward], totals: Totals
    ) -> None:
        """The wave's scores of all ranks into the step's table; one that is not finite stops every rank here."""
        own = torch.cat([one.scores[: len(batch.rows)] for one, batch in zip(forwards, batches, strict=True)])
        places = torch.searchsorted(wave.rows, torch.cat([batch.rows for batch in batches]))
        kl = own.new_zeros(())
        if step.step_wide:
            pairs = zip(forwards, batches, strict=True)
            kl = sum((kl_k1(one.log_probs, batch.old, batch.mask, step.tokens) for one, batch in pairs), kl)
        shared = fetch(
            torch.cat([*map(torch.atleast_1d, share_scores(own, places, len(wave.rows), kl, self.dp_group))])
        )
        self.refuse_nonfinite(shared[:-1], step.groups[wave.rows])
        totals.scores[wave.rows] = shared[:-1]
        if step.step_wide:
            real = self.args.algo.real
            totals.hinge = kl_hinge_coef(float(shared[-1]), real.disco_kl_coef, real.disco_kl_delta)

    def refuse_nonfinite(self, scores: Tensor, groups: Tensor) -> None:
        if not bool(scores.isfinite().all()):
            prompts = groups[~scores.isfinite()].unique().tolist()
            raise NonFiniteError(
                f"the scores of rollouts of the batch's prompts {prompts[:8]} are not finite in optimizer step "
                f"{self.engine.global_steps + 1}: stopped before the weights changed. Resume from the last checkpoint "
                "with a lower --actor.adam.lr"
            )

    def weigh(self, step: RankStep, scores: Tensor, rows: Tensor | None = None) -> WeighedLoss:
        """Weights of whole groups, of the whole step or of the rows of a wave, with the step's denominators."""
        rows = torch.arange(len(scores)) if rows is None else rows
        columns = (scores[rows], step.labels[rows], step.groups[rows])
        return score_weights(self.settings, *columns, step.num_groups, step.num_rollouts)

    def loss(self, step: RankStep, batch: Batch, now: Forward, totals: Totals) -> Tensor:
        """This micro-batch's part of the step's loss; its token sums are added up for the log."""
        args, old, mask = self.args, batch.old, batch.mask
        weights = torch.zeros(len(now.scores), dtype=torch.float64)
        weights[: len(batch.rows)] = totals.weights[batch.rows]
        loss = self.actor_loss_fn(now.scores, weights.to(self.device))
        sums = dict.fromkeys(SUMS, totals.sums.new_zeros(()))
        sums["ppo_kl"] = kl_k1(now.log_probs, old, mask, 1)
        if args.algo.real.kl_old_coef:
            sums["kl_old"] = kl_old(now.log_probs, old, mask, 1)
        if args.algo.kl.use_loss and args.algo.kl.init_coef > 0:
            sums["kl"], sums["logprobs_diff"] = self.reference_kl(batch, now)
        if now.entropy is not None:
            sums["entropy_loss"] = torch.where(mask.bool(), now.entropy, 0.0).sum()
        per_token = args.algo.real.kl_old_coef * sums["kl_old"] + totals.kl_ctl * sums["kl"]
        if totals.hinge:
            per_token = per_token + totals.hinge * sums["ppo_kl"]
        if args.actor.entropy_coef:
            per_token = per_token - args.actor.entropy_coef * sums["entropy_loss"]
        totals.sums[: len(SUMS)] += torch.stack([sums[name].detach().double() for name in SUMS])
        loss = (loss + per_token / step.tokens) * self.dp_size  # DeepSpeed averages gradients over ranks
        return loss if now.aux_loss is None else loss + args.actor.aux_loss_coef * now.aux_loss

    def backward(self, loss: Tensor, last: bool) -> None:
        """The weights already hold the step's mean, so DeepSpeed neither scales by accumulation nor counts for us."""
        # DeepSpeed takes a backward for a new one, whose gradient is added, only after a forward; here several follow.
        self.engine.optimizer.clear_backward_seen_flag()
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss, scale_wrt_gas=False)

    def reference_kl(self, batch: Batch, now: Forward) -> tuple[Tensor, Tensor]:
        """Token sums of the KL to the reference and of the log-ratio to it."""
        mask, reference, kl = batch.mask.bool(), batch.experience.base_action_log_probs, self.args.algo.kl
        estimate = compute_approx_kl(
            now.log_probs,
            reference,
            log_probs_old=batch.old,
            kl_estimator=kl.estimator,
            unbiased_gradient=kl.unbiased_gradient,
        )
        return torch.where(mask, estimate, 0.0).sum(), torch.where(mask, now.log_probs - reference, 0.0).sum()

    @torch.no_grad()
    def measure(self, step: RankStep, batch: Batch, now: Forward, totals: Totals) -> None:
        """The paper's Table 1, how far scores are from those that weights were made from, and vLLM from the policy."""
        count = len(batch.rows)
        if not count:
            return
        used, weights = torch.stack([totals.scores[batch.rows], totals.weights[batch.rows]]).to(self.device)
        denominator = step.num_rollouts if self.settings.mean_over_rollouts else step.num_groups
        family = "rollout_ratio" if self.settings.objective.score == "ratio_old" else "rollout"
        columns = (now.log_probs[:count], batch.old[:count], batch.mask[:count])
        gradients = token_gradients(family, *columns, batch.labels, weights=weights * max(denominator, 1))
        totals.sums[len(SUMS) : -GAP_SUMS] += ratio_table(*columns, batch.labels, gradients).flatten()
        largest = [(now.scores[:count].double() - used).abs().max()[None], largest_log_ratio(*columns)[None]]
        if batch.sampler is not None:
            sums, maxima = gaps(batch.old[:count], batch.sampler[:count], batch.mask[:count])
            totals.sums[-GAP_SUMS:] += sums
            largest.append(maxima)
        found = torch.cat(largest)
        totals.largest[: len(found)] = torch.maximum(totals.largest[: len(found)], found)

    def status(self, step: RankStep, totals: Totals) -> dict[str, float]:
        """What is logged of an optimizer step, the same on every rank."""
        dist.all_reduce(totals.largest, op=dist.ReduceOp.MAX, group=self.dp_group)
        fetched = fetch(torch.cat([sum_over_ranks(totals.sums, self.dp_group), totals.largest]))
        table, gap_sums, _, gap_maxima = fetched[len(SUMS) :].split(
            [RATIO_TABLE_SHAPE.numel(), GAP_SUMS, 2, GAP_MAXIMA]
        )
        values, sampled = fetched.tolist(), self.replay_buffer.items[0].rollout_log_probs is not None
        norm = self.strategy.get_grad_norm(self.actor)
        return {
            "actor_lr": self.actor_scheduler.get_last_lr()[0],
            "actor_grad_norm": norm,
            "update/clipped_share": clipped_share([norm], self.args.actor.max_norm),
            "update/ratio_max": math.exp(min(values[-1 - GAP_MAXIMA], 700.0)),  # of more there is no float
            **{name: value / step.tokens for name, value in zip(SUMS, values, strict=False)},
            **self.step_metrics(step, totals.scores, table, values[-2 - GAP_MAXIMA]),
            **(self.mismatch.metrics(gap_sums, gap_maxima, self.engine.global_steps) if sampled else {}),
        }

    def step_metrics(self, step: RankStep, scores: Tensor, ratios: Tensor, drift: float) -> dict[str, float]:
        """What the step's whole table says, and the paper's Table 1, on the host."""
        weighed = self.weigh(step, scores)
        columns = (scores, step.labels, step.groups, weighed, self.settings)
        metrics = group_metrics(*columns, truncated=step.truncated, score_drift=drift)
        return {"policy_loss": float(weighed.loss), **metrics, **ratio_metrics(ratios.view(RATIO_TABLE_SHAPE))}

    def rollout_means(self) -> dict[str, float]:
        """What upstream logs of the rollouts themselves: rewards, lengths and the reward function's extra logs."""
        names = [*sorted(self.replay_buffer.items[0].info), *EPISODE]
        own = self.rollout_rows().to(self.device).sum(0)
        count, *sums = fetch(sum_over_ranks(own, self.dp_group)).tolist()
        return {name: value / count for name, value in zip(names, sums, strict=True)}

    def rollout_rows(self) -> Tensor:
        """A one to count by, `info` in alphabetical order, and the fields of an episode."""
        rows = [
            [1.0, *(float(item.info[name]) for name in sorted(item.info)), *(float(getattr(item, f)) for f in EPISODE)]
            for item in self.replay_buffer.items
        ]
        return torch.tensor(rows, dtype=torch.float64)


def fetch(values: Tensor) -> Tensor:
    """To the host: the one place where the trainer waits for its device, once a wave and once a step."""
    return values.cpu()
