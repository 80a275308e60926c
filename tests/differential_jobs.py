"""What a rank runs for `slow/test_differential.py`: the package's controller and trainer beside one naive graph.

The naive side is written from the papers: loops over prompts, rollouts and tokens, a model in float64, no table, no
plan. It takes from the package only which prompts are in an update, and vLLM's and the reference's numbers.
"""

import math
from pathlib import Path

import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad
from naive import NAIVE_TOKENS, NAIVE_WITH_REFERENCE, naive_group_loss, naive_score
from openrlhf.models import Actor
from openrlhf.trainer.ppo_utils.experience import Experience
from zero_jobs import Case, arguments, fill, parameters, policy_actor, rollouts, statuses_of, whole

from real_openrlhf.algorithm.settings import ObjectiveSettings
from real_openrlhf.hooks.controller.labels import NO_ANSWER

# No means, or of the plan, or tested elsewhere: norms are compared below.
NOT_COMPARED = (
    "timing",
    "update/rollouts_crc",
    "real/max_live_micro_batches",
    "count/",
)
NOT_COMPARED += ("real/score_drift", "real/weight_cv")
NOT_COMPARED += ("truncated", "real/weight_bound", "real/score_abs_max")


# Of a score against the sampler nothing reads the old policy.
OF_THE_OLD = ("sampling/", "update/ratio_max", "ratio/", "ppo_kl")

# A batch's number is the mean of its updates', each with the number of what it is a mean over.
TOKEN_MEANS = ("ppo_kl", "kl_old", "kl", "logprobs_diff", "entropy_loss", "ppo_clip_ratio")
OVER = dict.fromkeys((*TOKEN_MEANS, "sampling/logprob_diff_mean", "sampling/kl"), "tokens")
OVER |= dict.fromkeys(("sampling/is_ratio_mean", "sampling/frac_is_ratio_capped"), "rollouts")
OVER |= {f"real/{one}": one for one in ("score_pos", "score_neg", "weight_pos", "weight_neg")}
OVER |= dict.fromkeys(("policy_loss", "real/loss", "rollout/frac_mixed", "real/frac_unlabelled"), "updates")
OF_BATCH = ("update/frac_trained", "update/frac_nonzero_weight", "reward")  # beside them


def compared(**changes) -> list[dict]:
    """Each update: the largest relative error of a gradient, {logged name: (logged, naive)}, forwards of the first
    layer for each micro-batch. Then the same of the batch. The naive side is the first rank's alone."""
    case = Case(**changes)
    args = arguments(case)
    policy = policy_actor(case, args)
    trainer, engine = policy.trainer, policy.actor.model
    samples = fill(policy, case)
    naive, records, forwards = None if dist.get_rank() else Naive(case, args, samples), [], []
    train_update, deepspeed_step = trainer.train_update, policy.strategy.optimizer_step
    first_mlp = next(module for name, module in engine.module.named_modules() if name.endswith("layers.0.mlp"))
    first_mlp.register_forward_pre_hook(lambda *_: forwards.append(1))

    def beside(*args_, **named) -> None:
        planned = trainer.plan.updates[len(records)]
        groups = planned.batch.groups[planned.rollouts].unique().tolist()
        names = [name for name, one in parameters(engine).items() if one.requires_grad]
        values = {name: whole(one) for name, one in parameters(engine).items()}
        got = {name: safe_get_full_grad(parameters(engine)[name]).double() for name in names}
        records.append({"gradient_error": 0.0, "numbers": {}})
        if naive:
            expected, numbers = naive(values, names, groups, first=len(records) == 1)
            norm = math.sqrt(sum(float(one.norm()) ** 2 for one in expected.values()))
            errors = [
                float((got[n] - expected[n]).norm()) / max(float(expected[n].norm()), 0.01 * norm, 1e-9) for n in names
            ]
            numbers |= {"actor_grad_norm": norm, "actor_lr": engine.basic_optimizer.param_groups[0]["lr"]}
            records[-1] = {"gradient_error": max(errors), "numbers": numbers}
        deepspeed_step(*args_, **named)

    def recorded(update) -> dict:
        forwards.clear()
        status = train_update(update)
        batches = sum(wave.depth for wave in update.planned.waves)
        known = {"scores_known": update.planned.scores_known}
        records[-1] |= {"micro_batches": batches, "forwards": len(forwards) / batches} | known
        return status

    policy.strategy.optimizer_step, trainer.train_update = beside, recorded
    statuses, status = statuses_of(policy)
    unread = () if args.derived.reads_old else OF_THE_OLD
    for record, logged in zip(records, statuses, strict=True):
        record |= {"status": logged, "pairs": pairs(logged, record.pop("numbers"), unread)}
    of_batch = naive.of_batch() if naive else {}
    of_batch = {name: of_batch.get(name) for name in (*OF_BATCH, *OVER) if name in status}
    batch = pairs({name: status[name] for name in of_batch}, of_batch, unread)
    return [*records, {"gradient_error": 0.0, "pairs": batch}]


def pairs(logged: dict[str, float], naive: dict[str, float], unread: tuple = ()) -> dict:
    """Each logged mean beside the naive one, which is missing if nobody wrote it."""
    names = [name for name in sorted({*logged, *naive}) if not name.startswith((*NOT_COMPARED, *unread))]
    return {name: (logged[name], naive.get(name)) for name in names}


class Naive:
    """An update's objective as one graph in float64, and the means that should be logged."""

    def __init__(self, case: Case, args, samples: list[Experience]) -> None:
        self.case, self.args, self.samples = case, args, samples
        lora = {"lora_rank": 4, "target_modules": "all-linear"} if case.lora else {}
        self.model = Actor(case.model, attn_implementation="eager", param_dtype="fp32", **lora).model.double()
        raw = rollouts(case)
        self.masks = [sample.action_mask[0].bool() for sample in raw]
        self.rewards = [float(sample.scores) for sample in raw]
        known = [not math.isnan(r) and bool(mask.any()) for r, mask in zip(self.rewards, self.masks, strict=True)]
        self.labels = [1 if r > 0.5 else 0 for r in self.rewards]
        if case.levels:
            unparsable = [bool(sample.info[NO_ANSWER]) for sample in raw]
            self.labels = [
                -2 if has_none and not label else label
                for has_none, label in zip(unparsable, self.labels, strict=True)
            ]
        self.labels = [label if has else -1 for label, has in zip(self.labels, known, strict=True)]
        self.old: dict[int, torch.Tensor] = {}
        self.updates: list[tuple[dict[str, float], dict[str, int]]] = []  # numbers, and what they are means over
        real, self.objective, self.token_loss = args.algo.real, None, None
        if case.loss == "real":
            own = dict(word.split("=") for word in real.set or ())
            self.objective = ObjectiveSettings(real.objective, real.uniform_groups, own | {"tau": real.tau})
            if self.objective.objective.of_tokens:
                self.objective, self.token_loss = None, self.objective
        self.advantages = self.made_advantages(known)
        terms = args.actor.entropy_coef or args.algo.kl.init_coef > 0 or real.kl_old_coef
        self.signal = [self.has_signal(position) for position in range(len(raw))]
        self.trained = [not case.skip or bool(terms) or signal for signal in self.signal]

    def members(self, group: int) -> range:
        return range(group * self.case.group, (group + 1) * self.case.group)

    def made_advantages(self, known: list[bool]) -> list[float]:
        found = []
        for group in range(self.case.prompts):
            own = [self.rewards[p] for p in self.members(group) if known[p]]
            mean = sum(own) / max(len(own), 1)
            spread = math.sqrt(sum((r - mean) ** 2 for r in own) / (len(own) - 1)) if len(own) > 1 else 0
            flat = len({round(r, 6) for r in own}) < 2
            found += [0.0 if flat or not known[p] else (self.rewards[p] - mean) / spread for p in self.members(group)]
        return found

    def has_signal(self, position: int) -> bool:
        if self.token_loss and not self.token_loss.objective.two_sides:
            return self.labels[position] != -1
        if self.objective is None:
            return self.advantages[position] != 0
        own = [p for p in self.members(position // self.case.group) if self.labels[p] != -1]
        seen = {self.rewards[p] if self.objective.objective.graded else self.side(p) for p in own}
        both = len(seen) > 1 or self.objective.uniform_groups == "keep" or not self.objective.objective.two_sides
        return self.labels[position] != -1 and both

    def side(self, position: int) -> int:
        label = self.labels[position]
        return label if self.objective and self.objective.objective.levels else max(label, 0)

    def tokens(self, position: int) -> dict[str, torch.Tensor]:
        sample, mask = self.samples[position], self.masks[position]
        logits = self.model(sample.sequences).logits[0].double()
        every = logits.log_softmax(-1)[:-1]
        new = every.gather(-1, sample.sequences[0, 1:, None]).squeeze(-1)[mask]
        given = sample.action_log_probs[0][mask].double()
        if position not in self.old:  # in the first update of an objective over groups the policy is the old one
            self.old[position] = new.detach() if given.isnan().any() else given
        reference = sample.base_action_log_probs
        reference = new.detach() * torch.nan if reference is None else reference[0][mask].double()
        entropy = -(every.exp() * every).sum(-1)[mask]
        sampler = sample.rollout_log_probs[0][mask].double()
        return {"new": new, "old": self.old[position], "ref": reference, "drawn": sampler, "entropy": entropy}

    def __call__(self, values: dict, names: list[str], groups: list[int], first: bool):
        weights = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in values.items():
                weights[name].copy_(value)
        every = [p for group in groups for p in self.members(group)]
        columns = {p: self.tokens(p) for p in every}
        loss, numbers = self.of_groups(groups, columns)
        if self.objective is None:
            loss, numbers = self.of_tokens(columns)
        total = sum(len(one["new"]) for one in columns.values())
        objective, terms = loss, self.terms(columns)
        kl, entropy, real = self.args.algo.kl, self.args.actor.entropy_coef, self.args.algo.real
        if kl.use_loss and kl.init_coef:
            objective = objective + kl.init_coef * terms["kl"].sum() / total
        if entropy:
            objective = objective - entropy * terms["entropy_loss"].sum() / total
        if real.kl_old_coef:
            objective = objective + real.kl_old_coef * terms["kl_old"].sum() / total
        gradients = torch.autograd.grad(objective, [weights[name] for name in names], allow_unused=True)
        found = {n: torch.zeros_like(weights[n]) if g is None else g for n, g in zip(names, gradients, strict=True)}
        numbers = {"policy_loss": float(loss), **numbers, **self.means(columns, terms)}
        self.updates.append((numbers, self.counts(columns)))
        return found, numbers

    def counts(self, columns: dict) -> dict[str, int]:
        trained = [p for p in columns if self.trained[p]]
        found = {"updates": 1, "rollouts": len(trained), "tokens": sum(len(columns[p]["new"]) for p in trained)}
        for side, own in {"pos": [p for p in columns if self.labels[p] == 1], "neg": self.wrong(columns)}.items():
            found |= {f"weight_{side}": len(own), f"score_{side}": sum(self.trained[p] for p in own)}
        return found

    def terms(self, columns: dict) -> dict[str, torch.Tensor]:
        """Of every token of every rollout, whether it is trained or not."""
        new, old, ref, ent = (
            torch.cat([one[n] for one in columns.values()]) for n in ("new", "old", "ref", "entropy")
        )
        gap, away = new - old, new - ref
        return {
            "ppo_kl": -gap,
            "kl_old": torch.exp(-gap) - 1 + gap,
            "kl": torch.exp(-away) - 1 + away,
            "logprobs_diff": away,
            "entropy_loss": ent,
        }

    def of_groups(self, groups: list[int], columns: dict) -> tuple[torch.Tensor, dict]:
        """The mean over prompts of an objective over their scores."""
        if self.objective is None:
            return torch.zeros(()), {}
        kind = self.objective.score
        scores = {p: naive_score(kind, one["new"], one["old"], one["ref"], one["drawn"]) for p, one in columns.items()}
        sizes, mixed, losses, values, clip = {}, 0, [], [], self.args.algo.real.tis_cap
        gaps = {p: float((one["old"] - one["drawn"]).sum()) for p, one in columns.items()}
        factors = {p: 1.0 if clip is None else min(math.exp(gap), clip) for p, gap in gaps.items()}
        for group in groups:
            own = list(self.members(group))
            leaves = [scores[p].detach().requires_grad_() for p in own]
            shared = [[column[p] for p in own] for column in (self.labels, self.rewards)]
            alone, _ = naive_group_loss(self.objective, leaves, *shared)
            slopes = torch.autograd.grad(alone, leaves, allow_unused=True)
            sizes |= {p: 0.0 if s is None else abs(float(s)) for p, s in zip(own, slopes, strict=True)}
            losses.append(naive_group_loss(self.objective, [scores[p] for p in own], *shared)[0])
            values.append(float(losses[-1]))
            if clip is not None:  # the same slopes, times a factor each
                pushed = [factors[p] * s * scores[p] for p, s in zip(own, slopes, strict=True) if s is not None]
                losses[-1] = sum(pushed, 0 * losses[-1])
            mixed += {1, 0} <= {max(self.labels[p], 0) for p in own if self.labels[p] != -1}
        numbers = {"rollout/frac_mixed": mixed / len(groups), "real/loss": sum(values) / len(groups)}
        numbers["policy_loss"] = numbers["real/loss"]
        if clip is not None:
            trained = [p for p in columns if self.trained[p]]
            numbers["sampling/is_ratio_mean"] = sum(factors[p] for p in trained) / max(len(trained), 1)
            numbers["sampling/frac_is_ratio_capped"] = sum(factors[p] == clip for p in trained) / max(len(trained), 1)
        numbers["real/frac_unlabelled"] = sum(self.labels[p] == -1 for p in columns) / len(columns)
        numbers["real/weight_abs_max"] = max(sizes.values())
        for name, chosen in (("pos", [p for p in columns if self.labels[p] == 1]), ("neg", self.wrong(columns))):
            seen = [float(scores[p]) for p in chosen if self.trained[p]]
            numbers[f"real/score_{name}"] = sum(seen) / max(len(seen), 1)
            numbers[f"real/weight_{name}"] = sum(sizes[p] for p in chosen) / max(len(chosen), 1)
        seen = torch.tensor([float(scores[p]) for p in columns if self.trained[p] and self.labels[p] != -1])
        numbers["real/score_std"] = float(seen.double().std(correction=0)) if len(seen) else 0.0
        self.sizes = {p: sizes[p] * factors[p] for p in columns}
        return sum(losses) / len(groups), numbers

    def wrong(self, columns: dict) -> list[int]:
        return [p for p in columns if self.labels[p] in (0, -2)]

    def of_tokens(self, columns: dict) -> tuple[torch.Tensor, dict]:
        """OpenRLHF's losses, from their papers."""
        low, high = self.args.actor.eps_clip_low_high or (0.2, 0.2)
        each, cut, logged = [], [], []
        for position, one in columns.items():
            if self.token_loss:
                weights = self.weights_of(position, one)
                logged.append(-weights * one["new"].detach())
                each.append(self.token_losses(position, one))
                cut.append(self.weights_of(position, one, 1 if self.labels[position] == 1 else -1) == 0)
                continue
            new, advantage = one["new"], self.advantages[position]
            ratio = torch.exp(new - one["old"])
            if self.case.loss == "gspo" and len(new):
                ratio = torch.exp((new - one["old"]).mean()).expand(len(new))
            clamped = ratio.clamp(1 - low, 1 + high)
            each.append(-torch.minimum(ratio * advantage, clamped * advantage))
            cut.append(clamped * advantage < ratio * advantage)
        trained = [number for number, position in enumerate(columns) if self.trained[position]]
        count = sum(len(each[number]) for number in trained)
        share = sum(float(cut[number].sum()) for number in trained) / max(count, 1)
        mode = self.token_loss.objective.mean if self.token_loss else self.args.actor.loss_agg_mode

        def mean(parts: list[torch.Tensor]) -> torch.Tensor:
            if mode == "token-mean" and self.case.loss != "gspo":
                return torch.cat(parts).sum() / max(sum(map(len, parts)), 1)
            filled = [one.mean() for one in parts if len(one)]
            return sum(filled) / max(len(filled), 1)

        numbers = {"policy_loss": float(mean(logged))} if logged else {}  # of constant weights
        return mean(each), {"ppo_clip_ratio": share, **numbers}

    def token_losses(self, position: int, one: dict, advantage: float | None = None) -> torch.Tensor:
        """(tokens,) the loss of a file in examples/objectives/, as its paper has it; 0 without a verdict."""
        own = [self.labels[p] for p in self.members(position // self.case.group) if self.labels[p] != -1]
        rate = sum(label == 1 for label in own) / max(len(own), 1)
        graded = advantage is not None or self.labels[position] != -1
        advantage = self.advantages[position] if advantage is None else advantage
        if not (graded and (advantage or not self.token_loss.objective.two_sides) and len(one["new"])):
            return 0 * one["new"]
        name = Path(self.token_loss.name).name.replace(".py:", ":")
        loss = (NAIVE_TOKENS | NAIVE_WITH_REFERENCE)[name]
        columns = (one[column] for column in ("new", "old", "ref" if name in NAIVE_WITH_REFERENCE else "drawn"))
        return torch.stack(loss(*columns, advantage, self.labels[position] == 1, rate, self.token_loss))

    def weights_of(self, position: int, one: dict, advantage: float | None = None) -> torch.Tensor:
        """(tokens,) minus the gradient of the sum of a rollout's losses in its log-probabilities."""
        new = one["new"].detach().requires_grad_()
        return -torch.autograd.grad(self.token_losses(position, one | {"new": new}, advantage).sum(), new)[0]

    def means(self, columns: dict, terms: dict[str, torch.Tensor]) -> dict[str, float]:
        """Means over trained tokens, and the paper's Table 1."""
        keep = torch.cat([torch.full((len(one["new"]),), self.trained[p]) for p, one in columns.items()])
        count = max(int(keep.sum()), 1)
        found = {name: float(one[keep].sum()) / count for name, one in terms.items()}
        if not (self.args.algo.kl.use_loss and self.args.algo.kl.init_coef):
            found |= {"kl": 0.0, "logprobs_diff": 0.0}
        if not self.args.algo.real.kl_old_coef:
            found["kl_old"] = 0.0
        if self.args.actor.entropy_coef is None:
            found["entropy_loss"] = 0.0
        gap = torch.cat([one["drawn"] - one["old"] for one in columns.values()])[keep]
        found |= {
            "sampling/logprob_diff_mean": float(gap.abs().sum()) / count,
            "sampling/kl": float(gap.sum()) / count,
        }
        found["sampling/logprob_diff_max"] = float(gap.abs().max()) if len(gap) else 0.0
        largest = [
            float((one["new"] - one["old"]).max()) for p, one in columns.items() if self.trained[p] and len(one["new"])
        ]
        found["update/ratio_max"] = math.exp(max([0.0, *largest]))
        cells: dict[tuple[str, str], list[float]] = {}
        sides = {"pos": [p for p in columns if self.labels[p] == 1], "neg": self.wrong(columns)}
        for side, own in sides.items():
            for position in (p for p in own if self.trained[p]):
                one = columns[position]
                for ratio, size in zip(
                    torch.exp(one["new"] - one["old"]).tolist(), self.magnitudes(position, one), strict=True
                ):
                    name = "below" if ratio < 0.8 else "low" if ratio < 1 else "high" if ratio <= 1.2 else "above"
                    cells.setdefault((side, name), []).append(size)
        for side in sides:
            tokens = sum(len(values) for (one, _), values in cells.items() if one == side)
            for name in ("below", "low", "high", "above"):
                values = cells.get((side, name), [])
                found[f"ratio/{side}/{name}/share"] = 100 * len(values) / max(tokens, 1)
                found[f"ratio/{side}/{name}/grad"] = sum(values) / max(len(values), 1)
        return found

    def magnitudes(self, position: int, one: dict) -> list[float]:
        """|W| of each token, with the advantage taken as 1 for OpenRLHF's losses."""
        ratio = torch.exp(one["new"] - one["old"])
        if self.objective:
            kind = self.objective.score
            slope = (
                ratio if kind.endswith("ratio_old") and not kind.endswith("log_ratio_old") else torch.ones_like(ratio)
            )
            return (self.sizes[position] * slope * (len(ratio) if kind.startswith("sum_") else 1)).tolist()
        if self.token_loss:
            return self.weights_of(position, one, 1 if self.labels[position] == 1 else -1).abs().tolist()
        low, high = self.args.actor.eps_clip_low_high
        if self.case.loss == "gspo":
            ratio = torch.exp((one["new"] - one["old"]).mean()).expand(len(ratio))
        gone = ratio > 1 + high if self.labels[position] == 1 else ratio < 1 - low
        return ratio.masked_fill(gone, 0.0).tolist()

    def of_batch(self) -> dict[str, float]:
        return {
            "update/frac_trained": sum(self.trained) / len(self.trained),
            "update/frac_nonzero_weight": sum(self.signal) / len(self.signal),
            "reward": sum(0.0 if math.isnan(r) else r for r in self.rewards) / len(self.rewards),
            **{name: self.merged(name, over) for name, over in OVER.items()},
        }

    def merged(self, name: str, over: str) -> float:
        parts = [(numbers.get(name, 0.0), counts[over]) for numbers, counts in self.updates]
        return sum(value * count for value, count in parts) / max(sum(count for _, count in parts), 1)
