"""The controller labels rollouts, plans what each rank trains, and sends it to the ranks: one way for every method."""

import math
from dataclasses import replace
from types import SimpleNamespace

import ray
import torch
from openrlhf.trainer.ppo_utils.experience import Experience, make_experience_batch, split_experience_batch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties
from torch import Tensor

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD
from real_openrlhf.algorithm.groups import IGNORED, RolloutBatch
from real_openrlhf.algorithm.objective import make_groups
from real_openrlhf.algorithm.schedule import SPARE, SPARE_ZERO_3, Packing, Positions
from real_openrlhf.algorithm.step_plan import Plan, PlannedUpdate, PlanRules, plan_rollouts
from real_openrlhf.base.run_files import enter
from real_openrlhf.flags.derived import MicroBatch, objective_of
from real_openrlhf.hooks.controller.advantages import add_advantages
from real_openrlhf.hooks.controller.groups import groups_of
from real_openrlhf.hooks.controller.labels import complete_info, label_rollouts

EPISODE = ("response_length", "total_length", "truncated")


class UpstreamExperienceMaker(RemoteExperienceMaker):
    """OpenRLHF's, for `--train.batching upstream`."""

    def split_rollout_samples(self, rollout_samples: list[Experience]) -> list[Experience]:
        complete_info(rollout_samples, self.args)
        return super().split_rollout_samples(rollout_samples)


class ExperienceMaker(RemoteExperienceMaker):
    """For every method: labels rollouts, plans the rank and update of each, and lets ranks compute log-probabilities.

    A method brings an objective over the scores of whole groups, whose weights follow on the ranks, or a loss of each
    rollout's tokens, for which advantages are made here.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_step, self.num_ranks = 0, self.args.derived.layout.data_parallel
        self.objective, self.by_scores = objective_of(self.args), self.args.derived.loss == "scores"
        self.live_tokens: float | None = None

    @torch.no_grad()
    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[Experience]:
        """One Experience per rank, in rank order; upstream's append then gives each rank exactly its own."""
        enter(self.args.train.run_dir, "log-probabilities")
        samples = rollout_samples
        table = describe(samples, *label_rollouts(samples, self.args), self.args)
        if not self.by_scores:
            apply_length_penalties(samples, self.args)
        table = self.with_gradients(samples, table)
        plan = plan_rollouts(table, self.plan_rules(), self.rollout_step)
        self.rollout_step += 1
        self.log_probs(samples, table, self.needs_forward(table, plan.updates))
        items = [item for sample in samples for item in split_experience_batch(sample)]
        self.send(replace(plan, metrics=rollout_means(items) | plan.metrics))
        all_held = map(plan.held, range(self.num_ranks))
        batches = [make_experience_batch([items[position] for position in held]) for held in all_held]
        for batch in batches:  # upstream leaves lists, which its statistics cannot read
            batch.info = {name: torch.stack([*map(torch.as_tensor, values)]) for name, values in batch.info.items()}
        return batches

    def send(self, plan: Plan) -> None:
        """One object for all ranks: each node gets it once."""
        ray.get(self.actor_model_group.async_run_method("call_trainer", "set_plan", ray.put(plan)))

    def with_gradients(self, samples: list[Experience], table: RolloutBatch) -> RolloutBatch:
        """The table with what has a gradient and what is trained; a loss of tokens gets its advantages."""
        if self.objective and self.by_scores:
            has_gradient = make_groups(self.objective, table).valid
        else:
            known = table.labels != IGNORED
            add_advantages(self, samples, known)
            has_gradient = torch.tensor([bool((sample.advantages * sample.action_mask).any()) for sample in samples])
            if self.objective and not self.objective.objective.two_sides:  # it may weigh tokens of advantage 0
                has_gradient = known
        return replace(table, has_gradient=has_gradient, is_trained=has_gradient if self.args.derived.skips else None)

    def needs_forward(self, table: RolloutBatch, updates: list[PlannedUpdate]) -> Positions:
        """The rollouts whose old log-probabilities are computed before training.

        Those of an objective's first update come with its own forward, because the policy is still the old policy.
        """
        if not self.args.derived.reads_old:
            return []
        if not self.by_scores:
            return table.trained
        return sorted({*table.trained} - {*(updates[0].trained if updates else ())})

    def plan_rules(self) -> PlanRules:
        train, live = self.args.train, self.args.algo.real.max_live_micro_batches
        limit = MicroBatch.of(self.args, "train")
        if self.by_scores and self.live_tokens is None:
            self.live_tokens = min(ray.get(self.actor_model_group.async_run_method("call_trainer", "live_tokens")))
        return PlanRules(
            groups_per_update=train.batch_size // self.args.rollout.n_samples_per_prompt,
            num_ranks=self.num_ranks,
            size=limit.rollouts,
            max_tokens=limit.tokens,
            seed=train.seed,
            steps=train.max_steps,
            by_scores=self.by_scores,
            depth=None if live == "auto" else int(live) or None,
            live_tokens=self.live_tokens or 0.0,
            score_first=live == "0",
            known_at_old=self.args.derived.score in KNOWN_AT_OLD,
            spare=SPARE_ZERO_3 if self.args.ds.zero_stage == 3 else SPARE,
        )

    def log_probs(self, samples: list[Experience], table: RolloutBatch, needs_forward: Positions) -> None:
        """Compute old log-probabilities of these rollouts, and the reference model's of all trained ones.

        Unknown values are nan, so that reading one by mistake ends the run. If nothing reads the old policy (the
        score is against vLLM, without a KL), vLLM's log-probabilities stand in for the old ones.
        """
        reads_sampler = not self.args.derived.reads_old or self.args.algo.real.tis_cap is not None
        if reads_sampler and any(sample.rollout_log_probs is None for sample in samples):
            raise ValueError(
                "--algo.real.tis_cap and scores against vLLM need its log-probabilities, and the agent returned "
                "responses without them. Return them as `rollout_log_probs`"
            )
        for sample in samples:
            sample.action_log_probs = torch.full(sample.action_mask.shape, math.nan)
            if not self.args.derived.reads_old:
                sample.action_log_probs = sample.rollout_log_probs.clone()
            sample.base_action_log_probs = sample.action_log_probs if self.initial_model_group is not None else None
        lengths, trained = table.total_lengths.tolist(), table.trained
        if needs_forward:
            self.forward(self.actor_model_group, samples, lengths, needs_forward, "action_log_probs")
        if trained and self.initial_model_group is not None:
            self.forward(self.initial_model_group, samples, lengths, trained, "base_action_log_probs")

    def forward(self, group, samples: list[Experience], lengths: list[int], chosen: Positions, field: str) -> None:
        """Let a model group compute `field` of the chosen rollouts, in equally many batches per rank, for ZeRO-3."""
        train = self.args.train
        wave = Packing(lengths, self.num_ranks, *MicroBatch.of(self.args, "rollout")).one_wave(
            [[position] for position in chosen]
        )
        # a rank with nothing left repeats a rollout
        batches = [micro_batch or chosen[:1] for rank in wave.ranks for micro_batch in rank]
        columns = ("sequences", "action_mask", "attention_mask")
        alone = [Experience(**{name: getattr(sample, name) for name in columns}, info={}) for sample in samples]
        joined = [
            Experience.concat_experiences([alone[position] for position in batch], self.tokenizer.pad_token_id)
            for batch in batches
        ]
        references = self._dispatch_forward(
            group,
            train.colocate_all or train.colocate_actor_ref,
            **{name: [getattr(batch, name) for batch in joined] for name in columns},
        )
        duplicates = self.args.ds.ring_attn_size * self.args.ds.tensor_parallel_size
        for batch, log_probs in zip(batches, self._flatten_results(references, duplicates), strict=True):
            for position, row in zip(batch, log_probs, strict=True):
                setattr(samples[position], field, row[None, : samples[position].action_mask.shape[1]].clone())


def rollout_means(items: list[Experience]) -> dict[str, float]:
    """Means over all rollouts of upstream's logged numbers: rewards, lengths, the reward function's extra logs."""
    rows = [
        [*(float(item.info[name]) for name in sorted(items[0].info)), *(float(getattr(item, f)) for f in EPISODE)]
        for item in items
    ]
    names = [*sorted(items[0].info), *EPISODE]
    return dict(zip(names, (torch.tensor(rows, dtype=torch.float64).sum(0) / len(items)).tolist(), strict=True))


def describe(samples: list[Experience], labels: Tensor, values: Tensor, args: SimpleNamespace) -> RolloutBatch:
    return RolloutBatch(
        labels=labels,
        groups=torch.tensor([number for number, own in enumerate(groups_of(samples, args)) for _ in own]),
        values=values,
        lengths=torch.tensor([int(sample.action_mask.sum()) for sample in samples]),
        total_lengths=torch.tensor([int(sample.total_length) for sample in samples]),
    )
