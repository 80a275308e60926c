"""Labels and groups instead of advantages: what the controller sends to the training ranks."""

import logging
import math

import torch
from openrlhf.trainer.ppo_utils.experience import Experience, make_experience_batch, split_experience_batch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from real_openrlhf.algorithm.objective import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE
from real_openrlhf.algorithm.schedule import micro_batches, schedule
from real_openrlhf.algorithm.scoring import whole_groups

logger = logging.getLogger(__name__)

# What a rollout carries to its rank, beside the tokens, in `Experience.info`.
ROLLOUT, GROUP, LABEL, PLAN = "real_rollout", "real_group", "real_label", "real_plan"
CARRIED = (ROLLOUT, GROUP, LABEL, PLAN)


class RealExperienceMaker(RemoteExperienceMaker):
    """Labels rollouts, plans which optimizer step and micro-batch each trains in, and deals them to the ranks."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_step = 0
        actor, ds = self.args.actor, self.args.ds
        self.ranks = actor.num_nodes * actor.num_gpus_per_node // ds.ring_attn_size // ds.tensor_parallel_size
        self.whole_groups = whole_groups(self.args, self.ranks)

    @torch.no_grad()
    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[Experience]:
        """One Experience per rank, in rank order; upstream's append then gives each rank exactly its own."""
        label_rollouts(rollout_samples, self.args)
        experiences = self.make_experience(self.split_rollout_samples(rollout_samples))
        items = [item for experience in experiences for item in split_experience_batch(experience)]
        items.sort(key=lambda item: int(item.info[ROLLOUT]))
        return self.deal(items)

    def split_rollout_samples(self, rollout_samples: list[Experience]) -> list[Experience]:
        """Upstream's micro-batches for the old log-probabilities; a short last batch still has one for every rank."""
        whole = self.whole_groups
        shares = len(rollout_samples) // (self.args.rollout.n_samples_per_prompt if whole else 1)
        if shares < self.ranks:
            raise ValueError(
                f"the last rollout batch has {shares} {'prompts' if whole else 'rollouts'} for {self.ranks} ranks. Use a "
                "number of prompts that is a multiple of --rollout.batch_size"
            )
        if self.args.train.dynamic_batch_enable:
            return super().split_rollout_samples(rollout_samples)
        size = min(self.args.rollout.micro_batch_size, math.ceil(len(rollout_samples) / self.ranks))
        size = min(size, len(rollout_samples) // self.ranks)
        return [
            Experience.concat_experiences(rollout_samples[i : i + size], self.tokenizer.pad_token_id)
            for i in range(0, len(rollout_samples), size)
        ]

    def deal(self, items: list[Experience]) -> list[Experience]:
        """Write each rollout's plan, one row (step, micro-batch) per epoch, and give every rank its rollouts."""
        args = self.args
        lengths = [int(item.total_length) for item in items]
        groups = [int(item.info[GROUP]) for item in items]
        groups_per_step = args.train.batch_size // args.rollout.n_samples_per_prompt
        limit = (
            {"max_tokens": args.train.max_tokens_per_gpu}
            if args.train.dynamic_batch_enable
            else {"size": args.train.micro_batch_size}
        )
        owner: dict[int, int] = {}  # the first epoch decides which rank holds a rollout
        plans: list[list[list[int]]] = [[] for _ in items]
        for epoch in range(args.train.max_epochs):
            steps = schedule(
                lengths, groups, groups_per_step, self.ranks, args.train.seed,
                rollout_step=self.rollout_step, epoch=epoch, tear=not self.whole_groups,
            )  # fmt: skip
            for step_index, step in enumerate(steps):
                for rank, positions in enumerate(step):
                    for position in positions:
                        owner.setdefault(position, rank)
                held = [[p for positions in step for p in positions if owner[p] == rank] for rank in range(self.ranks)]
                for rank in micro_batches(held, lengths, **limit, whole_groups=groups if self.whole_groups else None):
                    for micro_index, micro in enumerate(rank):
                        for position in micro:
                            plans[position].append([step_index, micro_index])
        self.rollout_step += 1
        for item, plan in zip(items, plans, strict=True):
            item.info[PLAN] = torch.tensor(plan)
        return [batch_of([item for i, item in enumerate(items) if owner[i] == rank]) for rank in range(self.ranks)]


def batch_of(items: list[Experience]) -> Experience:
    """Upstream's batch, with `info` as tensors again: it leaves lists there, which its own statistics cannot read."""
    batch = make_experience_batch(items)
    batch.info = {name: torch.stack([torch.as_tensor(value) for value in batch.info[name]]) for name in batch.info}
    return batch


def label_rollouts(samples: list[Experience], args) -> None:
    """Give every rollout its id, its group and its label, in `info`; a reward that failed becomes *ignored*."""
    size = args.rollout.n_samples_per_prompt
    failed = 0
    for position, sample in enumerate(samples):
        first = samples[position // size * size]
        if sample.prompts != first.prompts:
            raise ValueError(f"rollout {position} is not of the same prompt as rollout {position // size * size}")
        if sample.rewards is None:
            failed += 1
            sample.rewards = torch.zeros(1)
            sample.info["reward"] = torch.zeros(1)
        score = math.nan if sample.scores is None else float(sample.scores[0])
        sample.scores = torch.tensor([score], dtype=torch.float32)
        sample.info.pop("score", None)
        label = label_of(
            score,
            empty=not bool(sample.action_mask.any()),
            truncated=bool(sample.truncated[0]),
            # the maths verifier tells a wrong answer from a missing one, TRPA's lowest level
            parsable=float(sample.info.get("verifier/no_answer", torch.zeros(1))[0]) == 0,
            threshold=args.algo.real.label_threshold,
            ignore_truncated=args.algo.real.truncated == "ignore",
            name=f"rollout {position} of prompt {sample.prompts[0][:80]!r}",
        )
        sample.info[ROLLOUT] = torch.tensor([position])
        sample.info[GROUP] = torch.tensor([position // size])
        sample.info[LABEL] = torch.tensor([label])
    keys = set().union(*(sample.info for sample in samples))
    for sample in samples:  # a failed reward has no extra logs: complete them, rows must have the same columns
        for key in keys - sample.info.keys():
            sample.info[key] = torch.zeros(1)
    if failed:
        logger.warning(f"REAL: the reward of {failed} of {len(samples)} rollouts failed; they are ignored")


def label_of(
    score: float,
    *,
    empty: bool,
    truncated: bool,
    parsable: bool,
    threshold: float | None,
    ignore_truncated: bool,
    name: str,
) -> int:
    """The class of one rollout. A score that is neither 0 nor 1 is refused unless a threshold is given."""
    if math.isnan(score) or empty:
        return IGNORED
    if threshold is None and score not in (0.0, 1.0):
        raise ValueError(
            f"{name} has score {score:g}: REAL's labels are 0 or 1. Return 0 or 1 as `scores`, or give "
            "--algo.real.label_threshold"
        )
    if score > (0.5 if threshold is None else threshold):
        return POSITIVE
    if truncated and ignore_truncated:
        return IGNORED
    return NEGATIVE if parsable else UNPARSABLE
