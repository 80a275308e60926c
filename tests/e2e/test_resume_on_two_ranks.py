"""A run on two ranks that was killed and resumed; asynchronously as far as it is decided by the seed."""

from killed_runs import SHORT, as_killed


def test_grpo_on_two_ranks_too(train_on_two):
    words = ("--algo", "grpo", "--seed", "1", *SHORT)
    run = train_on_two("grpo-again", *words)
    numbers = run.numbers()
    as_killed(run.folder, before="global_step4")
    assert train_on_two("grpo-again", *words, "--resume").numbers() == numbers


def test_asynchronously_no_prompt_is_lost_and_none_is_drawn_twice(train_on_two):
    """The rollouts after a checkpoint are drawn again, by the policy of then: only the prompts can be the same."""
    words = ("--algo", "real", "--train.async_enable", "--seed", "1", *SHORT)
    run = train_on_two("async-again", *words)
    before, numbers = run.values("rollout/prompts_crc"), run.numbers()
    as_killed(run.folder, before="global_step4")
    resumed = train_on_two("async-again", *words, "--resume")
    assert resumed.values("rollout/prompts_crc") == before
    assert resumed.numbers()[:2] == numbers[:2]
    assert [line["step"] for line in resumed.lines("eval")] == [2, 4]
