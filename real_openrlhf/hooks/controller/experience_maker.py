"""What the controller makes of rollouts and sends to the training ranks: REAL's labels, or upstream's advantages."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ray
import torch
from openrlhf.trainer.ppo_utils.experience import Experience, split_experience_batch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from torch import Tensor

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD, assignments
from real_openrlhf.algorithm.groups import IGNORED
from real_openrlhf.algorithm.objective import ObjectiveSettings
from real_openrlhf.algorithm.packing import Limit, Positions
from real_openrlhf.algorithm.schedule import Layout
from real_openrlhf.algorithm.step_plan import PlanSettings, RankPlan, Rollouts, plan_rollouts, rank_plans
from real_openrlhf.hooks.actor.mismatch import over_limit
from real_openrlhf.hooks.controller.labels import complete_columns, label_rollouts
from real_openrlhf.hooks.controller.planned_experience import PlannedExperience
from real_openrlhf.hooks.refusals import ranks_of
from real_openrlhf.signs_of_life import enter


class RealExperienceMaker(RemoteExperienceMaker):
    """Labels rollouts, plans where and when each trains, has log-probabilities made that are not known otherwise."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_step = 0
        self.num_ranks = ranks_of(self.args)
        self.objective = objective_settings(self.args)
        self.kept_tokens: float | None = None

    @torch.no_grad()
    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[PlannedExperience]:
        """One Experience per rank, in rank order; upstream's append then gives each rank exactly its own."""
        enter(self.args.train.run_dir, "log-probabilities")
        real, everything = self.args.algo.real, list(range(len(rollout_samples)))
        labels, values = label_rollouts(rollout_samples, self.args, self.tokenizer)
        rollouts = describe(rollout_samples, labels, self.args, values)
        if real.mismatch_limit is not None:  # who takes part must be known before any training forward
            self.add_log_probs(rollout_samples, rollouts.lengths, everything)
            over = over_limit(rollout_samples, real.mismatch_limit)
            rollouts = replace(rollouts, labels=rollouts.labels.masked_fill(over, IGNORED))
        plan = plan_rollouts(rollouts, self.plan_settings(), self.rollout_step)
        self.rollout_step += 1
        forwarded = everything
        if real.mismatch_limit is None:
            if real.old_log_probs == "auto":
                forwarded = sorted(set(everything) - set(plan.first_update))
            self.add_log_probs(rollout_samples, rollouts.lengths, forwarded)
        held, plans = rank_plans(plan, rollouts, self.objective, self.num_ranks, forwarded)
        items = [item for sample in rollout_samples for item in split_experience_batch(sample)]
        return planned_experiences(items, held, plans)

    def plan_settings(self) -> PlanSettings:
        real = self.args.algo.real
        if self.kept_tokens is None:
            self.kept_tokens = min(ray.get(self.actor_model_group.async_run_method("call_trainer", "kept_tokens")))
        return plan_settings(
            self.args,
            depth=None if real.wave_depth == "auto" else int(real.wave_depth),
            kept_tokens=self.kept_tokens,
            score_first=real.scoring == "separate",
            step_wide=self.objective.objective.needs_step_kl and real.disco_kl_coef > 0,
            known_at_old=self.objective.score in KNOWN_AT_OLD,
        )

    def add_log_probs(self, samples: list[Experience], lengths: list[int], forwarded: Positions) -> None:
        """Old log-probabilities where the training forward cannot make them, and the reference's for all.

        What is left unknown is nan: whoever reads it by mistake is stopped, not misled.
        """
        for sample in samples:
            sample.action_log_probs = torch.full(sample.action_mask.shape, math.nan)
            sample.base_action_log_probs = None
        everything = list(range(len(samples)))
        if forwarded:
            self.forward(self.actor_model_group, samples, lengths, forwarded, "action_log_probs")
        if self.initial_model_group is not None:
            self.forward(self.initial_model_group, samples, lengths, everything, "base_action_log_probs")

    def forward(self, group, samples: list[Experience], lengths: list[int], chosen: Positions, field: str) -> None:
        """Have a model group make `field` of the chosen rollouts; as many batches on each rank, for ZeRO-3."""
        rollout = self.args.rollout
        limit = limit_of(rollout, self.args.train.dynamic_batch_enable)
        wave = Layout(lengths, self.num_ranks, limit).one_wave([[position] for position in chosen])
        # a rank with nothing left repeats a rollout
        batches = [micro_batch or chosen[:1] for rank in wave.ranks for micro_batch in rank]
        joined = [
            Experience.concat_experiences(
                [columns_of(samples[position]) for position in batch], self.tokenizer.pad_token_id
            )
            for batch in batches
        ]
        train = self.args.train
        references = self._dispatch_forward(
            group,
            train.colocate_all or train.colocate_actor_ref,
            sequences=[batch.sequences for batch in joined],
            action_mask=[batch.action_mask for batch in joined],
            attention_mask=[batch.attention_mask for batch in joined],
        )
        duplicates = self.args.ds.ring_attn_size * self.args.ds.tensor_parallel_size
        for batch, log_probs in zip(batches, self._flatten_results(references, duplicates), strict=True):
            for position, row in zip(batch, log_probs, strict=True):
                setattr(samples[position], field, row[None, : samples[position].action_mask.shape[1]].clone())


class DealtExperienceMaker(RemoteExperienceMaker):
    """Upstream's advantages in REAL's updates: whole prompts, none dropped, the same for every loss of one seed."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_step = 0

    @torch.no_grad()
    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[PlannedExperience]:
        """One Experience per rank, in rank order."""
        enter(self.args.train.run_dir, "log-probabilities")
        complete_columns(rollout_samples)
        everything = list(range(len(rollout_samples)))
        rollouts = describe(rollout_samples, torch.zeros(len(rollout_samples), dtype=torch.long), self.args)
        samples = self.split_rollout_samples(rollout_samples)
        order = [position for sample in samples for position in sample.index]
        experiences = self.compute_advantages_and_returns(self.make_experience(samples))
        split = [item for experience in experiences for item in split_experience_batch(experience)]
        items = [split[place] for place in sorted(everything, key=lambda place: order[place])]
        plan = plan_rollouts(rollouts, self.plan_settings(), self.rollout_step)
        self.rollout_step += 1
        held, plans = rank_plans(plan, rollouts, ObjectiveSettings(), ranks_of(self.args), everything)
        return planned_experiences(items, held, plans)

    def plan_settings(self) -> PlanSettings:
        return plan_settings(self.args, whole_groups=False)


def plan_settings(args: SimpleNamespace, **of_objective: Any) -> PlanSettings:
    train = args.train
    return PlanSettings(
        groups_per_step=train.batch_size // args.rollout.n_samples_per_prompt,
        num_ranks=ranks_of(args),
        limit=limit_of(train, train.dynamic_batch_enable),
        seed=train.seed,
        epochs=train.max_epochs,
        **of_objective,
    )


def planned_experiences(
    items: list[Experience], held: list[Positions], plans: list[RankPlan]
) -> list[PlannedExperience]:
    """One Experience per rank, in rank order."""
    if not all(held):
        raise ValueError(
            f"the last rollout batch has {len(items)} rollouts for {len(held)} ranks: some have nothing. "
            "Use a number of prompts that is a multiple of --rollout.batch_size"
        )
    return [PlannedExperience.of([items[i] for i in own], plan) for own, plan in zip(held, plans, strict=True)]


def describe(
    samples: list[Experience], labels: Tensor, args: SimpleNamespace, values: Tensor | None = None
) -> Rollouts:
    """The batch as the plan sees it; rollouts of a prompt stand together."""
    size = args.rollout.n_samples_per_prompt
    return Rollouts(
        groups=torch.arange(len(samples)) // size,
        labels=labels,
        values=values,
        truncated=torch.cat([sample.truncated for sample in samples]).bool(),
        lengths=[int(sample.total_length) for sample in samples],
        actions=[int(sample.action_mask.sum()) for sample in samples],
    )


def columns_of(sample: Experience) -> Experience:
    """What a forward needs of a rollout."""
    return Experience(
        sequences=sample.sequences, action_mask=sample.action_mask, attention_mask=sample.attention_mask, info={}
    )


def objective_settings(args: SimpleNamespace) -> ObjectiveSettings:
    real = args.algo.real
    return ObjectiveSettings(real.objective, real.tau, real.uniform_groups, assignments(real.set))


def limit_of(args: SimpleNamespace, dynamic: bool) -> Limit:
    """Of a micro-batch, for training (`args.train`) or a forward without gradient (`args.rollout`)."""
    return Limit(max_tokens=args.max_tokens_per_gpu) if dynamic else Limit(size=args.micro_batch_size)
