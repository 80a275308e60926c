"""A run that was killed and resumed is the run that was not killed: every number but the times, bit for bit."""

import json

from every import every
from small_runs import REAL, SHORT, as_killed

from real_openrlhf.base.files import ROLLOUTS


def test_killed_and_resumed_is_not_killed(real, train):
    """Nor does it matter that one keeps answers and the other does not."""
    through = train("through", *REAL, "--train.keep_groups", "0")
    assert (real.folder / ROLLOUTS).exists() and not (through.folder / ROLLOUTS).exists()
    assert real.numbers()[:10] == through.numbers()
    assert real.numbers("eval")[:3] == through.numbers("eval")
    assert len(through.numbers()) == 10 and len(through.numbers()[0]) > 40


def test_the_run_says_that_it_was_killed_and_where_it_goes_on(killed, real):
    assert "failed (killed by SIGKILL)" in killed.output and "--resume" in killed.output
    assert "goes on after step 5, from global_step5" in real.output
    assert json.loads((real.folder / "resumes.jsonl").read_text().splitlines()[0])["step"] == 5


@every  # of the engines alone: tests/slow/test_checkpoints.py
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(train):
    run = train("damaged", "--algo", "real", "--seed", "2", *SHORT)
    numbers = run.numbers()
    (weights,) = (run.folder / "checkpoints" / "_actor" / "global_step4").glob("*model_states.pt")
    weights.write_bytes(weights.read_bytes()[:-1])
    as_killed(run.folder)
    resumed = train("damaged", "--algo", "real", "--seed", "2", *SHORT, "--resume")
    assert f"a checkpoint is not whole and not used: global_step4: {weights.name} has" in resumed.output
    assert resumed.numbers() == numbers


def test_a_finished_run_is_not_run_again(real, train):
    before = (real.folder / "metrics.jsonl").read_text()
    assert "is finished: there is nothing to continue" in train("real", *REAL, "--resume").output
    assert (real.folder / "metrics.jsonl").read_text() == before
