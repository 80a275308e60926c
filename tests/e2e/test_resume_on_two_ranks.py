"""Runs on two ranks that were killed and resumed; asynchronously as far as they are decided by the seed."""

import pytest
from every import every
from small_runs import SHORT, as_killed

from real_openrlhf.answers import kept


@every
@pytest.mark.parametrize("algo", ["real", "grpo", "dapo", "trpa"])
def test_on_two_ranks_too(train_on_two, algo):
    words = ("--algo", algo, "--seed", "1", *SHORT)
    run = train_on_two(f"{algo}-again", *words)
    numbers = run.numbers()
    as_killed(run.folder, before="global_step4")
    assert train_on_two(f"{algo}-again", *words, "--resume").numbers() == numbers


@every
@pytest.mark.parametrize("algo", ["real", "grpo", "dapo", "trpa"])
def test_asynchronously_no_prompt_is_lost_and_none_is_drawn_twice(train_on_two, algo):
    """The rollouts after a checkpoint are drawn again, by the policy of then: only the prompts can be the same."""
    words = ("--algo", algo, "--train.async_enable", "--seed", "1", *SHORT)
    run = train_on_two(f"{algo}-async-again", *words)
    before, numbers = run.values("rollout/prompts_crc"), run.numbers()
    as_killed(run.folder, before="global_step4")
    resumed = train_on_two(f"{algo}-async-again", *words, "--resume")
    assert resumed.values("rollout/prompts_crc") == before
    assert resumed.numbers()[:2] == numbers[:2]
    assert [line["step"] for line in resumed.lines("eval")] == [2, 4]
    lines = [(group.phase, group.step) for group in kept.read(run.folder)]
    assert sorted(lines) == sorted([("eval", 2), ("eval", 4)] * 4 + [("train", step) for step in (1, 2, 3, 4)] * 2)
