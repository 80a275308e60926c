"""Labels of rollouts, and the plan by which the controller deals them to steps, ranks and micro-batches.

Not among the fast tests only because importing OpenRLHF takes its time. What ranks train by the plan, also of rollouts
without a verdict, without tokens and of equal rewards: test_differential.py.
"""

import copy
import itertools
import math
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import ray
import torch
from openrlhf.cli.train_ppo_ray import parse_args
from openrlhf.trainer.ppo_trainer import BasePPOTrainer
from openrlhf.trainer.ppo_utils.experience import Experience, remove_padding_in_sequences, split_experience_batch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE
from real_openrlhf.algorithm.step_plan import Plan
from real_openrlhf.flags.derived import ESTIMATORS, derive
from real_openrlhf.hooks.controller.advantages import shaped_rewards
from real_openrlhf.hooks.controller.experience_maker import ExperienceMaker
from real_openrlhf.hooks.controller.groups import groups_of
from real_openrlhf.hooks.controller.labels import NO_ANSWER, label_rollouts
from real_openrlhf.hooks.controller.run_controller import RunController
from real_openrlhf.hooks.trainer_classes import experience_maker_class

PAD = 0
rollout_stats = BasePPOTrainer._compute_rollout_stats


@cache
def defaults() -> SimpleNamespace:
    words = "--actor.model_name_or_path model --reward.remote_url reward.py --actor.policy_loss_type real"
    return parse_args([*words.split(), "--rollout.n_samples_per_prompt", "4", "--train.seed", "7"])


def arguments(group=4, prompts=8, batch=16, micro=2, ranks=2, max_tokens=None, skip=False, **real) -> SimpleNamespace:
    """OpenRLHF's own, with a layout of few rollouts, and settings of --algo.real."""
    args = copy.deepcopy(defaults())
    args.actor.num_gpus_per_node = ranks
    args.rollout.n_samples_per_prompt, args.rollout.batch_size, args.rollout.micro_batch_size = group, prompts, 3
    args.train.batch_size, args.train.micro_batch_size = batch, micro
    args.train.dynamic_batch_enable = max_tokens is not None
    args.train.max_tokens_per_gpu = args.rollout.max_tokens_per_gpu = max_tokens
    args.train.skip_zero_gradient = skip
    vars(args.algo.real).update(real)
    args.derived = derive(args)
    return args


def rollout(prompt="1+1", score=1.0, reward=1.0, length=3, truncated=False, **info) -> Experience:
    """As upstream's sampler makes one; `reward=None` where the reward function raised."""
    tokens = 2 + length
    mask = torch.arange(1, tokens)[None] >= 2
    return Experience(
        sequences=torch.randint(1, 99, (1, tokens)),
        attention_mask=torch.ones(1, tokens, dtype=torch.long),
        action_mask=mask,
        rewards=None if reward is None else torch.tensor([reward]),
        scores=None if score is None else torch.tensor([score]),
        prompts=[prompt],
        labels=[""],
        response_length=torch.tensor([length]),
        truncated=torch.tensor([truncated]),
        total_length=torch.tensor([tokens]),
        info={name: torch.tensor([value]) for name, value in info.items()}
        | ({} if reward is None else {"reward": torch.tensor([reward]), "score": torch.tensor([score])}),
    )


# Labels.

LISTWISE = f"{Path(__file__).parents[2]}/examples/objectives/listwise.py:listwise"


def labels_of(samples, **changes) -> list[int]:
    return label_rollouts(samples, arguments(**{"group": len(samples), **changes}))[0].tolist()


NO_BOX, IGNORE = {NO_ANSWER: 1.0}, {"truncated": "ignore"}


@pytest.mark.parametrize(
    "label, score, sample, settings",
    [
        (POSITIVE, 1.0, {}, {}),
        (NEGATIVE, 0.0, {}, {}),
        (POSITIVE, 1.0, {"reward": -0.7}, {}),  # a reward that something else has shaped says nothing
        (NEGATIVE, 0.0, {"reward": 3.0}, {}),
        (IGNORED, math.nan, {}, {}),  # the verifier failed or timed out
        (IGNORED, math.nan, {}, {"label_threshold": 0.5}),
        (IGNORED, 1.0, {"length": 0}, {}),
        (IGNORED, 0.0, {"length": 0}, {}),
        (NEGATIVE, 0.0, {"truncated": True}, {}),
        (IGNORED, 0.0, {"truncated": True}, IGNORE),
        (POSITIVE, 1.0, {"truncated": True}, IGNORE),  # right, though cut
        (UNPARSABLE, 0.0, NO_BOX, {}),
        (NEGATIVE, 0.0, {NO_ANSWER: 0.0}, {}),
        (POSITIVE, 1.0, NO_BOX, {}),
        (IGNORED, 0.0, NO_BOX | {"truncated": True}, IGNORE),
        (POSITIVE, 0.51, {}, {"label_threshold": 0.5}),
        (NEGATIVE, 0.5, {}, {"label_threshold": 0.5}),  # above, not at
        (NEGATIVE, -3.0, {}, {"label_threshold": -3.0}),
        (NEGATIVE, 1.0, {}, {"label_threshold": 2.0}),
        (POSITIVE, math.inf, {}, {"label_threshold": 2.0}),
    ],
)
def test_a_rollouts_class_follows_from_score_tokens_and_settings(label, score, sample, settings):
    assert labels_of([rollout(score=score, **sample)], **settings) == [label]


@pytest.mark.parametrize("score", [0.5, -1.0, 2.0, 1.0 - 1e-6, math.inf])
def test_a_score_that_is_no_label_is_refused_with_the_sample_named(score):
    with pytest.raises(ValueError) as refused:
        labels_of([rollout(), rollout(score=score)])
    message = str(refused.value)
    assert message.startswith(f"rollout 1 of prompt '1+1' has score {score:g}: REAL's labels are 0 or 1.")
    assert "--algo.real.label_threshold" in message


def test_a_failed_reward_is_ignored_and_keeps_the_batchs_columns():
    samples = [rollout(**{"verifier/no_answer": 0.0}), rollout(score=None, reward=None), rollout(score=math.nan)]
    assert labels_of(samples) == [POSITIVE, IGNORED, IGNORED]
    assert len({tuple(sorted(sample.info)) for sample in samples}) == 1
    assert "verifier/no_answer" in samples[0].info  # a metric, which decides no label
    assert float(samples[1].rewards) == 0 and math.isnan(samples[1].scores)
    assert all("score" not in sample.info for sample in samples)  # nan there would make its logged mean nan
    split_experience_batch(Experience.concat_experiences(samples, PAD))  # one batch can be made of them


def test_a_failed_reward_keeps_the_columns_of_upstreams_batches():
    train = SimpleNamespace(batching="upstream", dynamic_batch_enable=False)
    derived = SimpleNamespace(whole_groups=False, threshold=0.5)
    real = SimpleNamespace(algo=SimpleNamespace(real=SimpleNamespace(truncated="negative")))
    args = SimpleNamespace(train=train, rollout=SimpleNamespace(micro_batch_size=2), derived=derived, **vars(real))
    made = object.__new__(experience_maker_class(args))
    made.args, made.tokenizer = args, SimpleNamespace(pad_token_id=PAD)
    samples = [rollout(**{"verifier/no_answer": 0.0}), rollout(**{"reward/failed_hangs": 1.0}), rollout()]
    batches = made.split_rollout_samples(samples)
    assert [len(split_experience_batch(batch)) for batch in batches] == [2, 1]


def test_graded_rewards_are_kept_for_an_objective_that_reads_them():
    samples = [rollout(score=score, reward=0.0) for score in (0.25, 0.75, -2.0, math.nan)]
    labels, values = label_rollouts(samples, arguments(group=4, objective=LISTWISE))
    assert labels.tolist() == [NEGATIVE, POSITIVE, NEGATIVE, IGNORED]
    assert values[:3].tolist() == [0.25, 0.75, -2.0]
    with pytest.raises(ValueError, match="has score inf, which no group can be compared with"):
        label_rollouts([rollout(score=math.inf)], arguments(group=1, objective=LISTWISE))


def test_neighbours_of_another_prompt_are_refused():
    with pytest.raises(ValueError, match="rollout 1 is not of the same prompt as rollout 0"):
        groups_of([rollout("1+1"), rollout("1+2")], arguments(group=2))


# The plan.


class Maker(ExperienceMaker):
    """The controller's part without the models, whose forward passes need Ray: a token's log-probability is its id."""

    def __init__(self, args, reference=False) -> None:
        tokenizer = SimpleNamespace(pad_token_id=PAD)
        groups = (SimpleNamespace(), None, None, SimpleNamespace() if reference else None)
        super().__init__(*groups, None, SimpleNamespace(args=args), tokenizer)
        self.live_tokens = math.inf
        self.forwards: list[list[torch.Tensor]] = []

    def send(self, plan: Plan) -> None:
        self.plan = plan

    def _dispatch_forward(self, group, sync_condition, sequences, action_mask, attention_mask):
        assert len(sequences) % self.num_ranks == 0  # as many on every rank, or ZeRO-3 waits for ever
        assert all(
            s.shape == a.shape and m.shape[1] == s.shape[1] - 1
            for s, m, a in zip(sequences, action_mask, attention_mask, strict=True)
        )
        self.forwards.append(sequences)
        sign = -1 if group is self.actor_model_group else 1
        return [[sign * (row[:, 1:] * mask).float() for row, mask in zip(sequences, action_mask, strict=True)]]

    def _flatten_results(self, refs, duplicate_factor):
        return list(itertools.chain.from_iterable(refs[::duplicate_factor]))


def batch_of_rollouts(count: int, group: int, seed: int = 0) -> list[Experience]:
    draw = torch.Generator().manual_seed(seed)
    return [
        rollout(
            f"prompt {i // group}", score=float(i % 2), length=int(torch.randint(1, 9, (), generator=draw)), number=i
        )
        for i in range(count)
    ]


def planned(args, count: int, made: Maker | None = None) -> Plan:
    made = made or Maker(args)
    made.make_experience_batch(batch_of_rollouts(count, args.rollout.n_samples_per_prompt))
    return made.plan


def numbers(experience: Experience) -> list[int]:
    return [int(number) for number in experience.info["number"]]


LAYOUTS = [
    dict(ranks=2),
    dict(ranks=4, micro=1),
    dict(max_tokens=30),
    dict(max_tokens=1),  # each rollout is too long
    dict(micro=1, max_live_micro_batches="1000"),
]


def test_a_rollouts_tokens_and_log_probabilities_stay_together():
    """Through batching, reordering by length, splitting and dealing, there and back."""
    for args in (arguments(), arguments(max_tokens=30, ranks=3)):
        samples = batch_of_rollouts(32, 4)
        tokens = [sample.sequences[0].clone() for sample in samples]
        made = Maker(args, reference=True)
        for rank, experience in enumerate(made.make_experience_batch(samples)):
            items = remove_padding_in_sequences(split_experience_batch(experience))
            assert numbers(experience) == made.plan.held(rank)
            for position, item in zip(made.plan.held(rank), items, strict=True):
                expected = tokens[position]
                assert torch.equal(item.sequences, expected)
                assert int(item.action_mask.sum()) == len(expected) - 2
                visible = item.action_mask.bool()
                assert torch.equal(item.base_action_log_probs[visible], expected[1:][visible].float())
                old = item.action_log_probs[visible]
                if position in made.plan.updates[0].trained:
                    assert old.isnan().all()  # the training forward makes them
                else:
                    assert torch.equal(old, -expected[1:][visible].float())


@pytest.mark.parametrize(("changes", "share"), [({}, 0.5), ({"batch": 32}, 0.0), ({"batch": 8}, 0.75)])
def test_only_rollouts_of_later_updates_need_a_forward(changes, share):
    made = Maker(arguments(**changes))
    assert planned(made.args, 32, made).updates[0].on_policy
    assert sum(len(batch) for forward in made.forwards for batch in forward) >= 32 * share
    assert bool(made.forwards) == bool(share)


SAMPLERS = {"set": ["score=log_ratio_rollout"]}


@pytest.mark.parametrize(("changes", "share"), [({}, 0.0), ({"kl_old_coef": 0.1}, 0.5)])
def test_scores_against_the_sampler_need_no_old_forward_but_for_a_kl_term(changes, share):
    """And they are exchanged in every update."""
    made = Maker(arguments(**SAMPLERS, **changes))
    samples = batch_of_rollouts(32, 4)
    for sample in samples:
        sample.rollout_log_probs = -sample.action_mask.float()
    ranks = made.make_experience_batch(samples)
    assert not any(update.scores_known for update in made.plan.updates)
    assert [update.on_policy for update in made.plan.updates] == [True, False]
    assert share or all(torch.equal(rank.action_log_probs, rank.rollout_log_probs) for rank in ranks)
    assert bool(made.forwards) == bool(share)


@pytest.mark.parametrize("changes", [SAMPLERS, {"tis_cap": 2.0}])
def test_an_agent_without_log_probabilities_is_refused_where_they_are_read(changes):
    """The factor of --algo.real.tis_cap would be 1, in silence."""
    with pytest.raises(ValueError, match="the agent returned responses without them. Return them as `rollout_log"):
        Maker(arguments(**changes)).make_experience_batch(batch_of_rollouts(32, 4))


def test_each_rollout_step_is_dealt_anew_and_a_seed_and_the_step_decide_it():
    args = arguments()
    args.train.max_steps = 4

    def plan(made) -> tuple[float, float]:
        found = planned(args, 32, made)
        return found.metrics["update/rollouts_crc"], found.updates[0].training_progress.progress

    made, resumed = Maker(args), Maker(args)
    first, second, third = (plan(made) for _ in range(3))
    assert len({first[0], second[0], third[0]}) == 3 and [first[1], second[1], third[1]] == [0, 0.25, 0.5]
    trainer = SimpleNamespace(args=args, experience_maker=resumed, kl_ctl=SimpleNamespace(value=0.0))
    RunController(trainer).restore({"global_step": 2})
    assert plan(resumed) == third
    for target, value in ((None, 0.0), (6.0, 0.5)):  # a fixed coefficient is its flag's, which a resume may change
        args.algo.kl.target = target
        RunController(trainer).restore({"global_step": 2, "kl_coef": 0.5})
        assert trainer.kl_ctl.value == value
    args.train.seed += 1
    assert plan(Maker(args)) != first


def test_the_layout_does_not_change_what_an_update_trains_on():
    assert len({planned(arguments(**layout), 32).metrics["update/rollouts_crc"] for layout in LAYOUTS}) == 1


def test_statistics_of_a_step_are_of_all_its_responses_also_of_those_that_are_left_out():
    """Seven prompts of eight have only incorrect responses, which no rank holds."""
    args = arguments(skip=True)
    args.train.run_dir = ""
    samples = [
        rollout(f"prompt {i // 4}", score=float(i < 2), length=1 + i // 4, reward=float(i < 2)) for i in range(32)
    ]
    made = Maker(args)
    ranks = made.make_experience_batch(samples)
    assert sum(len(rank.info["reward"]) for rank in ranks) == 4
    trainer = SimpleNamespace(args=args, experience_maker=made, _compute_rollout_stats=partial(rollout_stats, None))
    stats = rollout_stats(None, ranks) | RunController(trainer).group_stats(samples)
    assert stats["rollout/num_samples"] == 32 and stats["rollout/reward_mean"] == 2 / 32
    assert stats["rollout/response_length_mean"] == 4.5
    assert (made.plan.metrics["reward"], made.plan.metrics["response_length"]) == (2 / 32, 4.5)


# Advantages of OpenRLHF's losses.


def of_tokens(estimator="group_norm", kl=0.0, use_loss=True, **changes) -> SimpleNamespace:
    args = arguments(**changes)
    args.actor.policy_loss_type, args.algo.advantage.estimator = "ppo", estimator
    args.algo.kl.init_coef, args.algo.kl.use_loss = kl, use_loss
    args.derived = derive(args)
    return args


def token_maker(args) -> "Maker":
    made = Maker(args, reference=args.algo.kl.init_coef > 0)
    made.kl_ctl = SimpleNamespace(value=args.algo.kl.init_coef)
    return made


def advantages(made: "Maker", samples: list[Experience]) -> list[float]:
    """Of each rollout's first token, in the order of the samples."""
    made.make_experience_batch(samples)
    return [
        float((sample.advantages * sample.action_mask).sum(-1) / max(int(sample.action_mask.sum()), 1))
        for sample in samples
    ]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_advantages_are_openrlhfs_where_all_have_a_verdict(estimator):
    args = of_tokens(estimator, group=4, prompts=6, batch=8, ranks=1)
    args.reward.overlong_buffer_len, args.reward.overlong_penalty_factor, args.rollout.max_new_tokens = 3, 0.7, 8

    def samples():
        torch.manual_seed(0)
        return batch_of_rollouts(24, 4)

    made, mine, theirs = token_maker(args), samples(), samples()
    for sample in mine + theirs:
        sample.rewards = sample.scores.clone()
    made.make_experience_batch(mine)
    with mock.patch.object(ray, "put", lambda value: value):
        theirs = RemoteExperienceMaker.make_experience(made, made.split_rollout_samples(theirs))
    theirs = made.compute_advantages_and_returns(theirs)
    joined = Experience.concat_experiences(theirs, PAD)
    for position, sample in enumerate(mine):
        width = sample.advantages.shape[1]
        expected = joined.advantages[position, :width] * sample.action_mask[0]
        torch.testing.assert_close(sample.advantages[0] * sample.action_mask[0], expected, rtol=1e-5, atol=1e-6)
        assert float(sample.info["return"]) == pytest.approx(float(joined.info["return"][position]), abs=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_rewards_have_no_advantage(estimator):
    """The float32 deviation of eight times 0.1 is not 0, and their mean not 0.1."""
    shaped, _ = shaped_rewards(estimator, torch.full((8,), 0.1), torch.ones(8, dtype=torch.bool), 8)
    assert not shaped.any()


@pytest.mark.parametrize("prompts, ranks", [(8, 2), (1, 2), (5, 4), (3, 4), (1, 16)])
def test_a_small_last_batch_gives_every_rank_as_many_forwards(prompts, ranks):
    """Of a loss that skips nothing, too: `Maker` asserts it for policy and reference."""
    args = of_tokens(group=8, prompts=8, batch=64, ranks=ranks, kl=0.001)
    args.rollout.micro_batch_size = 64
    made = token_maker(args)
    planned = made.make_experience_batch(batch_of_rollouts(prompts * 8, 8))
    assert len(made.forwards) == 2 and len(planned) == ranks
    assert not any(bool(one.action_log_probs.isnan().any()) for one in planned)


# What has no gradient.

ONE_SIDED = """
from real_openrlhf.algorithm.formulas import TokenLoss
push = TokenLoss(lambda log_ratio, advantage, mask, group: mask.float(), two_sides=False)
"""


@pytest.mark.parametrize("two_sides, share", [("True", 16 / 32), ("False", 31 / 32)])
def test_a_loss_of_tokens_of_one_side_has_a_gradient_wherever_there_is_a_verdict(tmp_path, two_sides, share):
    """Of eight prompts every second one is all right; one rollout has no verdict."""
    (tmp_path / "mine.py").write_text(ONE_SIDED.replace("two_sides=False", f"two_sides={two_sides}"))
    args, samples = arguments(objective=f"{tmp_path}/mine.py:push"), batch_of_rollouts(32, 4)
    args.algo.advantage.estimator = "group_norm"
    for i, sample in enumerate(samples):
        sample.scores = torch.ones(1) if i // 4 % 2 else sample.scores
        sample.rewards = sample.scores.clone()
    samples[5].scores = torch.tensor([math.nan])
    made = token_maker(args)
    made.make_experience_batch(samples)
    assert made.plan.metrics["update/frac_nonzero_weight"] == share


@pytest.mark.parametrize("max_tokens", [None, 30])
def test_what_has_no_gradient_is_counted_and_neither_forwarded_nor_sent(max_tokens):
    """Of eight prompts every second one is all right; one rollout of a mixed prompt has no verdict."""

    def samples():
        every = batch_of_rollouts(32, 4)
        for i, sample in enumerate(every):
            if i // 4 % 2:
                sample.scores, sample.info["reward"] = torch.ones(1), torch.ones(1)
        every[1].scores = every[1].rewards = None
        del every[1].info["reward"]
        return every

    def made(**changes):
        maker = Maker(arguments(max_tokens=max_tokens, **changes))
        return maker, maker.make_experience_batch(samples())

    (every, _), (maker, ranks) = made(), made(skip=True)
    trained = sorted(itertools.chain.from_iterable(map(numbers, ranks)))
    assert trained == [i for i in range(32) if i // 4 % 2 == 0 and i != 1]
    metrics, all_metrics = maker.plan.metrics, every.plan.metrics
    assert metrics["update/frac_trained"] == 15 / 32 and all_metrics["update/frac_trained"] == 1
    of_all = ("update/rollouts_crc", "reward", "number", "response_length", "total_length", "truncated")
    assert [metrics[name] for name in of_all] == [all_metrics[name] for name in of_all]
    assert metrics["number"] == 15.5 and metrics["reward"] == 31 / 32
    assert sum(len(batch) for forward in maker.forwards for batch in forward) < 16  # a rank's batch may be a repeat
