"""The actor-side trainer: score, weigh, train, one optimizer step of whole groups at a time."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from openrlhf.models.utils import compute_approx_kl
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
from torch import Tensor

from real_openrlhf import patching
from real_openrlhf.algorithm.metrics import group_metrics, over_steps, ratio_metrics, ratio_table, token_gradients
from real_openrlhf.algorithm.objective import GroupLoss, ObjectiveSettings, count_valid, score_weights
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_hinge_coef, kl_k1, kl_old, surrogate
from real_openrlhf.algorithm.score_table import ScoreTable, gather_table, sum_over_ranks
from real_openrlhf.algorithm.scoring import choose_scoring, scored_at_once
from real_openrlhf.hooks.experience_maker import CARRIED, GROUP, LABEL, PLAN, ROLLOUT, batch_of
from real_openrlhf.hooks.nonfinite_guard import NonFiniteError

# Token sums of a step that ranks add up for the log, in this order, before the ratio table.
SUMS = ("entropy_loss", "ppo_kl", "kl_old", "kl", "logprobs_diff")
RATIO_TABLE_SIZE = 2 * 4 * 2


@dataclass
class MicroBatch:
    """Rollouts of one forward pass. A dummy stands in where a rank has nothing left, because ZeRO-3 gathers in each."""

    experience: Experience
    dummy: bool

    @property
    def rollouts(self) -> int:
        return 0 if self.dummy else len(self.experience.sequences)

    def column(self, name: str) -> Tensor:
        return self.experience.info[name][: self.rollouts].cpu()


@dataclass
class Forward:
    """What the policy says of a micro-batch; differentiable unless it was a scoring pass."""

    log_probs: Tensor
    scores: Tensor
    entropy: Tensor | None = None
    aux_loss: Tensor | None = None


@dataclass
class StepConstants:
    """Numbers of a whole optimizer step, the same on every rank."""

    tokens: float  # action tokens
    kl_ctl: float  # coefficient of the KL loss to the reference
    hinge: float = 0.0  # coefficient of DisCO's KL constraint


class RealActorTrainer(ActorPPOTrainer):
    """Upstream's actor trainer with REAL's loop; replay buffer, engine, checkpoints and weight sync are upstream's."""

    def __init__(self, *args, **kwargs) -> None:
        patching.assert_applied()
        super().__init__(*args, **kwargs)
        real = self.args.algo.real
        self.settings = ObjectiveSettings(
            real.objective, real.tau, real.uniform_groups, real.bce_reduction, real.trpa_beta
        )
        self.actor_loss_fn = RealPolicyLoss(self.settings.objective.score)
        self.engine = self.actor.model
        self.device = torch.device(get_accelerator().current_device_name())
        self.dp_group = self.strategy.ds_device_mesh["dp"].get_group()
        self.dp_size = dist.get_world_size(self.dp_group)
        config = self.engine.module.config.get_text_config()
        self.scoring, why = choose_scoring(self.args, self.dp_size, config, self.over_ranks(free_bytes(), "MIN"))
        self.scored_at_once = scored_at_once(self.args)
        self.strategy.print(f"REAL: {real.objective}, tau {self.settings.tau:g}, scoring {self.scoring}: {why}")

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        """All epochs over the replay buffer, in the controller's plan."""
        statuses: list[dict[str, float]] = []
        for epoch in range(self.max_epochs):
            for step in self.plan(epoch):
                statuses.append(self.optimizer_step(step, kl_ctl, first=not statuses))
        return {**self.rollout_means(), **over_steps(statuses)}

    def plan(self, epoch: int) -> list[list[MicroBatch]]:
        """Optimizer steps of micro-batches of this rank's rollouts, the same numbers of both on every rank."""
        items = self.replay_buffer.items
        places = [tuple(item.info[PLAN][epoch].tolist()) for item in items]
        steps = int(self.over_ranks(1 + max((step for step, _ in places), default=-1), "MAX"))
        counts = [0] * steps
        for step, micro in places:
            counts[step] = max(counts[step], micro + 1)
        counts = [int(self.over_ranks(count, "MAX")) for count in counts]
        held: list[list[list[Experience]]] = [[[] for _ in range(count)] for count in counts]
        for (step, micro), item in zip(places, items, strict=True):
            held[step][micro].append(item)
        return [[self.micro_batch(micro) for micro in step] for step in held]

    def micro_batch(self, items: list[Experience]) -> MicroBatch:
        dummy = not items
        experience = batch_of(items or self.replay_buffer.items[:1])
        if dummy:
            experience.action_mask = torch.zeros_like(experience.action_mask)
        return MicroBatch(experience, dummy)

    def optimizer_step(self, batches: list[MicroBatch], kl_ctl: float, first: bool) -> dict[str, float]:
        """Scores -> weights -> gradients -> step. In the first step after a rollout the policy is the old one."""
        self.actor.train()
        for batch in batches:
            batch.experience.to_device(self.device)
        tokens = self.over_ranks(sum(float(batch.experience.action_mask.sum()) for batch in batches), "SUM")
        step = StepConstants(tokens=max(tokens, 1.0), kl_ctl=kl_ctl)
        passes = self.score_pass(batches, first)
        scores = [
            self.scores(batch.experience.action_log_probs, batch) if known is None else known.scores
            for batch, known in zip(batches, passes, strict=True)
        ]
        table = self.exchange(batches, scores)
        weighed = self.weigh(table)
        step.hinge = self.hinge(batches, passes, step.tokens)
        in_place = self.scoring == "micro_batch" and not first

        losses, sums, seen = [], torch.zeros(len(SUMS) + RATIO_TABLE_SIZE, dtype=torch.float64), []
        for position, (batch, known) in enumerate(zip(batches, passes, strict=True)):
            now = known if known is not None and known.scores.requires_grad else self.forward(batch)
            rows = table.rows(batch.column(ROLLOUT))
            weights = torch.zeros(len(now.scores), dtype=torch.float64)
            if len(rows):
                weights[: len(rows)] = (
                    self.weigh(table, rows, now.scores).weights if in_place else weighed.weights[rows]
                )
            loss, parts = self.loss(batch, now, weights, step)
            sums += torch.cat([parts, self.ratios(batch, now, weights * weighed.denominator)])
            seen.append(now.scores.detach())
            losses.append(loss)
            if now is not known:  # not deferred: its graph is done with
                self.backward(losses.pop(), last=position == len(batches) - 1)
        if losses:
            self.backward(torch.stack(losses).sum(), last=True)
        drift = 0.0 if in_place else max(float((a - b).abs().max()) for a, b in zip(seen, scores, strict=True))
        if in_place:
            table = self.exchange(batches, seen)
            weighed = self.weigh(table)
        self.strategy.optimizer_step(self.actor_optim, self.actor, self.actor_scheduler, name="actor")
        if self.ema_model:
            # Upstream's count is of micro-batches: make this call the step's last one.
            self.strategy.time_steps["ema"] += self.strategy.accumulated_gradient - 1
            self.strategy.moving_average(self.actor, self.ema_model, self.ema_beta, self.device.type)
        return self.status(table, weighed, sum_over_ranks(sums.to(self.device), self.dp_group).cpu(), step, drift)

    def score_pass(self, batches: list[MicroBatch], first: bool) -> list[Forward | None]:
        """Forwards that make the scores: kept for a deferred backward, or without gradient; none where not needed."""
        if first or self.scoring == "micro_batch":
            return [None] * len(batches)
        if self.scoring == "deferred":
            return [self.forward(batch) for batch in batches]
        starts = range(0, len(batches), self.scored_at_once)
        return [known for start in starts for known in self.score(batches[start : start + self.scored_at_once])]

    @torch.no_grad()
    def score(self, batches: list[MicroBatch]) -> list[Forward]:
        """One forward for several micro-batches: without gradients more fits."""
        columns = []
        for name in ("sequences", "action_mask", "attention_mask"):
            parts = [getattr(batch.experience, name) for batch in batches]
            width = max(part.shape[1] for part in parts)
            columns.append(torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts]))
        sequences, action_mask, attention_mask = columns
        log_probs, _ = self.actor(sequences, action_mask, attention_mask=attention_mask, return_output=True)
        shapes = [batch.experience.action_mask.shape for batch in batches]
        rows = log_probs.split([count for count, _ in shapes])
        own = [row[:, :width] for row, (_, width) in zip(rows, shapes, strict=True)]
        return [Forward(one, self.scores(one, batch)) for one, batch in zip(own, batches, strict=True)]

    def status(
        self, table: ScoreTable, weighed: GroupLoss, sums: Tensor, step: StepConstants, drift: float
    ) -> dict[str, float]:
        """What is logged of an optimizer step, the same on every rank."""
        return {
            "policy_loss": float(weighed.loss),
            "actor_lr": self.actor_scheduler.get_last_lr()[0],
            "actor_grad_norm": self.strategy.get_grad_norm(self.actor),
            **{name: float(value) / step.tokens for name, value in zip(SUMS, sums, strict=False)},
            **ratio_metrics(sums[len(SUMS) :].view(2, 4, 2)),
            **group_metrics(
                table.scores,
                table.labels,
                table.groups,
                weighed,
                self.settings,
                truncated=table.truncated,
                score_drift=self.over_ranks(drift, "MAX"),
            ),
        }

    def scores(self, log_probs: Tensor, batch: MicroBatch) -> Tensor:
        experience = batch.experience
        return self.actor_loss_fn.scores(
            log_probs, experience.action_log_probs, experience.action_mask, experience.base_action_log_probs
        )

    def forward(self, batch: MicroBatch) -> Forward:
        experience = batch.experience
        log_probs, output = self.actor(
            experience.sequences,
            experience.action_mask,
            attention_mask=experience.attention_mask,
            return_output=True,
            return_entropy=self.args.actor.entropy_coef is not None and torch.is_grad_enabled(),
        )
        entropy = getattr(output, "entropy", None)
        return Forward(
            log_probs=log_probs,
            scores=self.scores(log_probs, batch),
            entropy=None if entropy is None else entropy[:, -experience.action_mask.shape[1] :],
            aux_loss=output.aux_loss if self.aux_loss and torch.is_grad_enabled() else None,
        )

    def exchange(self, batches: list[MicroBatch], scores: list[Tensor]) -> ScoreTable:
        """The step's table over all ranks; a score that is not finite stops every rank, before any gradient."""
        table = gather_table(
            ScoreTable(
                ids=torch.cat([batch.column(ROLLOUT) for batch in batches]),
                groups=torch.cat([batch.column(GROUP) for batch in batches]),
                labels=torch.cat([batch.column(LABEL) for batch in batches]),
                truncated=torch.cat([batch.experience.truncated[: batch.rollouts].cpu() for batch in batches]),
                scores=torch.cat([s.detach()[: batch.rollouts] for s, batch in zip(scores, batches, strict=True)]),
            ),
            self.dp_group,
        )
        if not table.finite:
            rollouts = table.ids[~table.scores.isfinite()].tolist()
            raise NonFiniteError(
                f"the scores of rollouts {rollouts[:8]} are not finite in optimizer step "
                f"{self.engine.global_steps + 1}: stopped before the weights changed. Resume from the last checkpoint "
                "with a lower --actor.adam.lr"
            )
        return table

    def weigh(self, table: ScoreTable, rows: Tensor | None = None, scores: Tensor | None = None) -> GroupLoss:
        """Weights of the step's whole table, or of the whole groups in `rows` with the scores of their own forward."""
        if rows is None:
            return score_weights(self.settings, table.scores, table.labels, table.groups)
        return score_weights(
            self.settings,
            scores.detach().double().cpu(),
            table.labels[rows],
            table.groups[rows],
            num_groups=len(table.groups.unique()),
            num_rollouts=count_valid(self.settings, table.labels, table.groups),
        )

    def hinge(self, batches: list[MicroBatch], passes: list[Forward | None], tokens: float) -> float:
        """DisCO's KL constraint: its coefficient in this step, from the step's KL over all ranks."""
        if not self.settings.name.startswith("disco") or passes[0] is None:
            return 0.0
        parts = (
            float(
                kl_k1(
                    known.log_probs.detach(), batch.experience.action_log_probs, batch.experience.action_mask, tokens
                )
            )
            for batch, known in zip(batches, passes, strict=True)
        )
        real = self.args.algo.real
        return kl_hinge_coef(float(self.over_ranks(sum(parts), "SUM")), real.disco_kl_coef, real.disco_kl_delta)

    def loss(self, batch: MicroBatch, now: Forward, weights: Tensor, step: StepConstants) -> tuple[Tensor, Tensor]:
        """This micro-batch's part of the step's loss, and its token sums for the log."""
        experience, old, mask = batch.experience, batch.experience.action_log_probs, batch.experience.action_mask
        loss = surrogate(now.scores, weights.to(self.device))
        sums = dict.fromkeys(SUMS, torch.zeros(()))
        sums["ppo_kl"] = kl_k1(now.log_probs, old, mask, 1)
        if self.args.algo.real.kl_old_coef:
            sums["kl_old"] = kl_old(now.log_probs, old, mask, 1)
            loss = loss + self.args.algo.real.kl_old_coef * sums["kl_old"] / step.tokens
        if step.hinge:
            loss = loss + step.hinge * sums["ppo_kl"] / step.tokens
        if self.args.algo.kl.use_loss and self.args.algo.kl.init_coef > 0:
            reference = experience.base_action_log_probs
            kl = compute_approx_kl(
                now.log_probs,
                reference,
                log_probs_old=old,
                kl_estimator=self.args.algo.kl.estimator,
                unbiased_gradient=self.args.algo.kl.unbiased_gradient,
            )
            sums["kl"] = torch.where(mask.bool(), kl, 0.0).sum()
            sums["logprobs_diff"] = torch.where(mask.bool(), now.log_probs - reference, 0.0).sum()
            loss = loss + step.kl_ctl * sums["kl"] / step.tokens
        if now.entropy is not None:
            sums["entropy_loss"] = torch.where(mask.bool(), now.entropy, 0.0).sum()
            loss = loss - self.args.actor.entropy_coef * sums["entropy_loss"] / step.tokens
        loss = loss * self.dp_size  # DeepSpeed averages gradients over ranks
        if now.aux_loss is not None:
            loss = loss + self.args.actor.aux_loss_coef * now.aux_loss
        return loss, torch.stack([sums[name].detach().double().cpu() for name in SUMS])

    def ratios(self, batch: MicroBatch, now: Forward, rollout_weights: Tensor) -> Tensor:
        """The paper's Table 1 for this micro-batch, flat."""
        count, experience = batch.rollouts, batch.experience
        family = "rollout_ratio" if self.settings.objective.score == "ratio_old" else "rollout"
        columns = (now.log_probs[:count].detach(), experience.action_log_probs[:count], experience.action_mask[:count])
        labels = batch.column(LABEL).to(self.device)
        gradients = token_gradients(family, *columns, labels, weights=rollout_weights[:count].to(self.device))
        return ratio_table(*columns, labels, gradients).flatten().cpu()

    def backward(self, loss: Tensor, last: bool) -> None:
        """The weights already hold the step's mean, so DeepSpeed neither scales by accumulation nor counts for us."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss, scale_wrt_gas=False)

    def rollout_means(self) -> dict[str, float]:
        """What upstream logs of the rollouts themselves: rewards, lengths and the reward function's extra logs."""
        items = self.replay_buffer.items
        fields = ("response_length", "total_length", "truncated")
        rows = [
            [float(item.info[name]) for name in sorted(item.info.keys() - set(CARRIED))]
            + [float(getattr(item, name)) for name in fields]
            for item in items
        ]
        sums = torch.tensor(rows, dtype=torch.float64, device=self.device).sum(0)
        means = sum_over_ranks(sums, self.dp_group) / self.over_ranks(len(items), "SUM")
        return dict(zip([*sorted(items[0].info.keys() - set(CARRIED)), *fields], means.tolist(), strict=True))

    def over_ranks(self, value: float, how: str) -> float:
        tensor = torch.tensor(float(value), dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, how), group=self.dp_group)
        return tensor.item()


def free_bytes() -> float:
    """Memory that this rank could still take, on its own device."""
    if get_accelerator().device_name() == "cpu":
        return float(psutil.virtual_memory().available)
    return float(get_accelerator().available_memory())
