"""Labels of rollouts, and the plan by which the controller deals them to steps, ranks and micro-batches.

Not among the fast tests only because importing OpenRLHF takes its time.
"""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from openrlhf.trainer.ppo_utils.experience import Experience, split_experience_batch

from real_openrlhf.algorithm.objective import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE
from real_openrlhf.hooks.experience_maker import (
    CARRIED,
    GROUP,
    LABEL,
    PLAN,
    ROLLOUT,
    RealExperienceMaker,
    label_of,
    label_rollouts,
)

PAD = 0


def arguments(
    group=4,
    prompts=8,
    batch=16,
    micro=2,
    ranks=2,
    epochs=1,
    max_tokens=None,
    scoring="auto",
    truncated="negative",
    threshold=None,
):
    return SimpleNamespace(
        actor=SimpleNamespace(num_nodes=1, num_gpus_per_node=ranks),
        ds=SimpleNamespace(ring_attn_size=1, tensor_parallel_size=1),
        data=SimpleNamespace(max_len=12),
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator="group_norm"),
            real=SimpleNamespace(
                scoring=scoring, objective="real", truncated=truncated, label_threshold=threshold, disco_kl_coef=0.0
            ),
        ),
        rollout=SimpleNamespace(
            n_samples_per_prompt=group, batch_size=prompts, micro_batch_size=3, max_tokens_per_gpu=max_tokens
        ),
        train=SimpleNamespace(
            batch_size=batch,
            micro_batch_size=micro,
            max_epochs=epochs,
            max_tokens_per_gpu=max_tokens,
            dynamic_batch_enable=max_tokens is not None,
            seed=7,
        ),
    )


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


def one(score=1.0, **changes) -> int:
    said = dict(empty=False, truncated=False, parsable=True, threshold=None, ignore_truncated=False, name="rollout 0")
    return label_of(score, **(said | changes))


@pytest.mark.parametrize(
    "label, score, changes",
    [
        (POSITIVE, 1.0, {}),
        (NEGATIVE, 0.0, {}),
        (IGNORED, math.nan, {}),  # the verifier failed or timed out
        (IGNORED, math.nan, {"threshold": 0.5}),
        (IGNORED, 1.0, {"empty": True}),
        (IGNORED, 0.0, {"empty": True}),
        (NEGATIVE, 0.0, {"truncated": True}),
        (IGNORED, 0.0, {"truncated": True, "ignore_truncated": True}),
        (POSITIVE, 1.0, {"truncated": True, "ignore_truncated": True}),  # right, though cut
        (UNPARSABLE, 0.0, {"parsable": False}),
        (POSITIVE, 1.0, {"parsable": False}),
        (IGNORED, 0.0, {"parsable": False, "truncated": True, "ignore_truncated": True}),
        (POSITIVE, 0.51, {"threshold": 0.5}),
        (NEGATIVE, 0.5, {"threshold": 0.5}),  # above, not at
        (NEGATIVE, -3.0, {"threshold": -3.0}),
        (POSITIVE, -2.0, {"threshold": -3.0}),
        (NEGATIVE, 1.0, {"threshold": 2.0}),
        (POSITIVE, math.inf, {"threshold": 2.0}),
    ],
)
def test_the_class_of_a_rollout(label, score, changes):
    assert one(score, **changes) == label


@pytest.mark.parametrize("score", [0.5, -1.0, 2.0, 1.0 - 1e-6, math.inf])
def test_a_score_that_is_no_label_is_refused_with_the_sample_named(score):
    with pytest.raises(ValueError) as refused:
        one(score, name="rollout 17 of prompt '1+1'")
    message = str(refused.value)
    assert message.startswith(f"rollout 17 of prompt '1+1' has score {score:g}: REAL's labels are 0 or 1.")
    assert "--algo.real.label_threshold" in message


def labels_of(samples, **changes) -> list[int]:
    label_rollouts(samples, arguments(**{"group": len(samples), **changes}))
    return [int(sample.info[LABEL]) for sample in samples]


def test_labels_ids_and_groups_of_a_batch():
    samples = [rollout(prompt) for prompt in "aaabbb"]
    label_rollouts(samples, arguments(group=3))
    assert [int(sample.info[ROLLOUT]) for sample in samples] == [0, 1, 2, 3, 4, 5]
    assert [int(sample.info[GROUP]) for sample in samples] == [0, 0, 0, 1, 1, 1]


def test_labels_are_the_verifiers_not_the_rewards():
    """A reward that something else has shaped says nothing."""
    assert labels_of([rollout(score=1.0, reward=-0.7), rollout(score=0.0, reward=3.0)]) == [POSITIVE, NEGATIVE]


def test_a_failed_reward_is_ignored_and_keeps_the_batchs_columns(caplog):
    samples = [rollout(**{"verifier/no_answer": 0.0}), rollout(score=None, reward=None), rollout(score=math.nan)]
    with caplog.at_level("WARNING"):
        assert labels_of(samples) == [POSITIVE, IGNORED, IGNORED]
    assert "the reward of 1 of 3 rollouts failed" in caplog.text
    assert len({tuple(sorted(sample.info)) for sample in samples}) == 1
    assert float(samples[1].rewards) == 0 and math.isnan(samples[1].scores)
    assert all("score" not in sample.info for sample in samples)  # nan there would make its logged mean nan
    split_experience_batch(Experience.concat_experiences(samples, PAD))  # one batch can be made of them


def test_what_is_empty_truncated_or_without_an_answer():
    def samples():
        return [
            rollout(score=0.0, length=0),
            rollout(score=0.0, truncated=True),
            rollout(score=0.0, **{"verifier/no_answer": 1.0}),
            rollout(score=0.0, **{"verifier/no_answer": 0.0}),
        ]

    assert labels_of(samples()) == [IGNORED, NEGATIVE, UNPARSABLE, NEGATIVE]
    assert labels_of(samples(), truncated="ignore") == [IGNORED, IGNORED, UNPARSABLE, NEGATIVE]


def test_a_threshold_takes_any_score():
    samples = [rollout(score=score) for score in (0.2, 0.9, 0.5)]
    assert labels_of(samples, threshold=0.5) == [NEGATIVE, POSITIVE, NEGATIVE]


def test_half_a_score_is_refused_with_its_rollout_and_prompt():
    with pytest.raises(ValueError, match=r"rollout 1 of prompt '1\+1' has score 0.5"):
        labels_of([rollout(), rollout(score=0.5)])


def test_neighbours_of_another_prompt_are_refused():
    with pytest.raises(ValueError, match="rollout 1 is not of the same prompt as rollout 0"):
        labels_of([rollout("1+1"), rollout("1+2")])


# The plan.


class Maker(RealExperienceMaker):
    """The controller's part without the models, whose forward passes need Ray: a token's log-probability is its id."""

    def make_experience(self, samples_list):
        assert len(samples_list) >= self.ranks  # each rank has a batch to run, or ZeRO-3 waits for ever
        for batch in samples_list:
            batch.action_log_probs = -batch.sequences[:, 1:].float()
        self.batch_sizes = [len(batch.sequences) for batch in samples_list]
        return samples_list


def maker(args) -> Maker:
    tokenizer = SimpleNamespace(pad_token_id=PAD)
    return Maker(None, None, None, None, None, SimpleNamespace(args=args), tokenizer)


def batch_of_rollouts(count: int, group: int, seed: int = 0) -> list[Experience]:
    draw = torch.Generator().manual_seed(seed)
    return [
        rollout(f"prompt {i // group}", score=float(i % 2), length=int(torch.randint(1, 9, (), generator=draw)))
        for i in range(count)
    ]


def dealt(args, count: int, made: Maker | None = None) -> list[Experience]:
    return (made or maker(args)).make_experience_batch(batch_of_rollouts(count, args.rollout.n_samples_per_prompt))


def plans(ranks: list[Experience]) -> dict[int, tuple[int, int, list]]:
    """{rollout: (rank, group, [(step, micro-batch) of each epoch])}"""
    found = {}
    for rank, experience in enumerate(ranks):
        columns = (experience.info[name].tolist() for name in (ROLLOUT, GROUP, PLAN))
        for number, group, plan in zip(*columns, strict=True):
            assert number not in found  # no rollout is on two ranks
            found[number] = (rank, group, [tuple(place) for place in plan])
    return found


def assert_sound(args, ranks: list[Experience], count: int) -> None:
    """What the actor trainer relies on, whatever the layout."""
    group, per_step = args.rollout.n_samples_per_prompt, args.train.batch_size // args.rollout.n_samples_per_prompt
    found = plans(ranks)
    assert sorted(found) == list(range(count)) and len(ranks) == args.actor.num_gpus_per_node
    whole = maker(args).whole_groups
    for epoch in range(args.train.max_epochs):
        in_step: dict[int, set[int]] = {}
        micro: dict[tuple[int, int, int], list[int]] = {}
        for number, (rank, own, places) in found.items():
            step, batch = places[epoch]
            in_step.setdefault(step, set()).add(own)
            micro.setdefault((rank, step, batch), []).append(number)
        groups = math.ceil(count / group)
        # every group in exactly one step, all steps full but the last
        assert sum(map(len, in_step.values())) == groups
        sizes = [len(in_step[step]) for step in sorted(in_step)]
        assert sorted(in_step) == list(range(math.ceil(groups / per_step)))
        assert all(size == per_step for size in sizes[:-1]) and sizes[-1] == groups - per_step * (len(sizes) - 1)
        for numbers in micro.values():
            tokens = sum(batch_lengths(count, group)[number] for number in numbers)
            units = {number // group for number in numbers} if whole else numbers
            if args.train.dynamic_batch_enable:
                assert tokens <= args.train.max_tokens_per_gpu or len(units) == 1
            else:
                assert len(numbers) <= args.train.micro_batch_size
        if whole:  # all of a group in one micro-batch of one rank
            where = {}
            for place, numbers in micro.items():
                for number in numbers:
                    where.setdefault(number // group, set()).add(place)
            assert all(len(places) == 1 for places in where.values())


def batch_lengths(count: int, group: int) -> list[int]:
    return [int(sample.total_length) for sample in batch_of_rollouts(count, group)]


LAYOUTS = {
    "torn groups": dict(),
    "one rank": dict(ranks=1),
    "four ranks": dict(ranks=4, micro=1),
    "three ranks, torn": dict(ranks=3, micro=3, max_tokens=40),
    "several epochs": dict(epochs=3),
    "one update": dict(batch=32),
    "dynamic": dict(max_tokens=30),
    "dynamic, all too long": dict(max_tokens=1),
    "whole groups": dict(micro=4),
    "two whole groups": dict(micro=8, epochs=2),
    "whole groups, dynamic": dict(max_tokens=4 * 12, epochs=2),
    "whole groups as asked": dict(scoring="micro_batch", micro=4, batch=8),
}


@pytest.mark.parametrize("count", [32, 28, 12])  # a full rollout batch, and short last ones
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_rollout_has_its_place_in_every_epoch(name, count):
    args = arguments(**LAYOUTS[name])
    assert maker(args).whole_groups == ("whole groups" in name)
    assert_sound(args, dealt(args, count), count)


@given(
    st.integers(2, 5),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.booleans(),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_any_layout(group, groups, ranks, per_step, epochs, dynamic, data):
    args = arguments(
        group=group,
        prompts=groups,
        batch=per_step * group,
        ranks=ranks,
        epochs=epochs,
        micro=data.draw(st.integers(1, 2 * group)),
        max_tokens=data.draw(st.integers(1, 60)) if dynamic else None,
    )
    assume(args.train.batch_size >= ranks)  # else refused at start
    count = group * groups
    shares = groups if maker(args).whole_groups else count
    if shares < ranks:
        with pytest.raises(ValueError, match=f"{shares} .* for {ranks} ranks"):
            dealt(args, count)
    else:
        assert_sound(args, dealt(args, count), count)


def test_a_rollouts_tokens_labels_and_log_probabilities_stay_together():
    """Through batching, reordering by length, splitting and dealing."""
    for args in (arguments(), arguments(max_tokens=30, ranks=3)):
        samples = batch_of_rollouts(32, 4)
        tokens = [sample.sequences[0].clone() for sample in samples]
        for experience in maker(args).make_experience_batch(samples):
            for row, number in enumerate(experience.info[ROLLOUT].tolist()):
                length = len(tokens[number])
                assert torch.equal(experience.sequences[row, :length], tokens[number])
                assert torch.equal(experience.action_log_probs[row, : length - 1], -tokens[number][1:].float())
                assert int(experience.action_mask[row].sum()) == length - 2
                assert int(experience.info[LABEL][row]) == (POSITIVE if number % 2 else NEGATIVE)
                assert int(experience.info[GROUP][row]) == number // 4


def test_columns_are_tensors_over_rollouts():
    """Upstream's statistics and replay buffer read them so."""
    for experience in dealt(arguments(epochs=2), 32):
        assert {*CARRIED, "reward"} <= experience.info.keys()
        assert all(len(column) == len(experience.sequences) for column in experience.info.values())
        assert experience.info[PLAN].shape == (len(experience.sequences), 2, 2)


def test_ranks_have_the_same_number_of_rollouts_and_similar_work():
    experiences = dealt(arguments(ranks=4, micro=1), 32)
    assert [len(experience.sequences) for experience in experiences] == [8] * 4
    tokens = [int(experience.total_length.sum()) for experience in experiences]
    assert max(tokens) - min(tokens) <= 2 * 10  # two steps, each within one rollout


def test_each_rollout_step_is_dealt_anew_and_a_seed_decides_it():
    args = arguments()
    first, second = maker(args), maker(args)
    one = [plans(dealt(args, 32, first)) for _ in range(3)]
    assert one == [plans(dealt(args, 32, second)) for _ in range(3)]
    assert one[0] != one[1] != one[2]
    args.train.seed += 1
    assert plans(dealt(args, 32)) != one[0]


def test_epochs_go_through_the_groups_in_another_order():
    steps = {}
    for _, group, places in plans(dealt(arguments(epochs=2, batch=8), 32)).values():
        steps[group] = [step for step, _ in places]
    assert [first for first, _ in steps.values()] != [second for _, second in steps.values()]


def test_old_log_probabilities_of_a_short_batch_are_made_on_every_rank():
    made = maker(arguments(ranks=4))
    dealt(made.args, 4, made)
    assert made.batch_sizes == [1, 1, 1, 1]
    made = maker(arguments(ranks=2))
    dealt(made.args, 32, made)
    assert set(made.batch_sizes[:-1]) == {3}  # --rollout.micro_batch_size


def test_too_few_rollouts_for_the_ranks_are_told_with_the_fix():
    with pytest.raises(ValueError, match="2 rollouts for 4 ranks. Use a number of prompts that is a multiple"):
        dealt(arguments(group=2, ranks=4, batch=8, micro=1), 2)
    whole = arguments(ranks=4, batch=32, micro=4)
    assert maker(whole).whole_groups
    with pytest.raises(ValueError, match="3 prompts for 4 ranks"):
        dealt(whole, 12)


def test_micro_batches_of_the_ranks_run_side_by_side():
    """ZeRO-3 gathers in each forward: in a step the ranks' counts agree, up to trailing ones that get a dummy."""
    for layout in LAYOUTS.values():
        counts: dict[int, dict[int, int]] = {}
        for rank, _, places in plans(dealt(arguments(**layout), 32)).values():
            for step, batch in places[:1]:
                held = counts.setdefault(step, {}).setdefault(rank, 0)
                counts[step][rank] = max(held, batch + 1)
        for ranks in counts.values():
            assert max(ranks.values()) - min(ranks.values()) <= 1


def test_the_plan_is_not_logged_as_a_metric():
    from real_openrlhf.hooks import actor_trainer

    assert set(CARRIED) == {ROLLOUT, GROUP, LABEL, PLAN} == set(actor_trainer.CARRIED)
    assert len(set(itertools.chain(CARRIED))) == 4
