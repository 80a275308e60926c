"""REAL in TRL 1.16: a subclass of GRPOTrainer keeps its rewards and replaces its loss.

Another loss is a subclass's `objective`: a built-in name, or "/path/to/file.py:NAME". It overrides private methods,
which can change with any release. docs/change/elsewhere.md has the settings.
"""

import torch
from trl import GRPOTrainer

from real_openrlhf import check_whole_groups, real_policy_loss


class GroupLossTrainer(GRPOTrainer):
    objective, over_ranks = "real", False  # real: rewards are 1, 0, or None for ungraded

    def _calculate_rewards(self, *args, **kwargs):
        self.kept_rewards = super()._calculate_rewards(*args, **kwargs)  # of all ranks, a column for each function
        return self.kept_rewards

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        first = self.accelerator.process_index * len(inputs)
        rows = torch.arange(first, first + len(inputs), device=self.kept_rewards.device)
        rewards = self.kept_rewards[rows]
        unknown = rewards.isnan().all(-1)  # no function could tell: ungraded
        batch["rewards"] = (rewards * self.reward_weights.to(rewards)).nansum(-1).masked_fill(unknown, torch.nan)
        batch["groups"] = rows // self.num_generations
        return batch

    def _compute_loss(self, model, inputs):
        if not model.training:
            return super()._compute_loss(model, inputs)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        new, _, _ = self._get_per_token_logps_and_entropies(model, ids, seen, mask.size(1))
        old = inputs.get("old_per_token_logps", new.detach())
        columns = inputs["rewards"], inputs["groups"]
        check_whole_groups(inputs["groups"], self.num_generations, self.over_ranks)
        loss, metrics = real_policy_loss(
            new, old, mask, *columns, objective=self.objective, over_ranks=self.over_ranks
        )
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        return loss / self.current_gradient_accumulation_steps
