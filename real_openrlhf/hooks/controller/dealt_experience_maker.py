"""Upstream's advantages in REAL's updates: whole prompts, none dropped, the same for every loss of one seed."""

import torch
from openrlhf.trainer.ppo_utils.experience import Experience, split_experience_batch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from real_openrlhf.algorithm.objective import ObjectiveSettings
from real_openrlhf.algorithm.step_plan import PlanSettings, plan_rollouts, rank_plans
from real_openrlhf.hooks.controller.experience_maker import describe, limit_of, planned_experiences
from real_openrlhf.hooks.controller.labels import complete_columns
from real_openrlhf.hooks.controller.planned_experience import PlannedExperience
from real_openrlhf.hooks.refusals import ranks_of
from real_openrlhf.signs_of_life import enter


class DealtExperienceMaker(RemoteExperienceMaker):
    """Upstream's experience maker, whose experiences are dealt to updates, ranks and micro-batches by our plan."""

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
        train, rollout = self.args.train, self.args.rollout
        return PlanSettings(
            groups_per_step=train.batch_size // rollout.n_samples_per_prompt,
            num_ranks=ranks_of(self.args),
            limit=limit_of(train, train.dynamic_batch_enable),
            seed=train.seed,
            epochs=train.max_epochs,
            whole_groups=False,
        )
