"""metrics.jsonl, and the numbers of a rollout batch in it."""

import json
import math
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
import torch
from small_runs import run_args

from real_openrlhf.hooks.controller.labels import complete_info
from real_openrlhf.hooks.controller.run_log import RunLog
from real_openrlhf.training.progress import Progress, summary


def run_log(folder, group_size=4) -> RunLog:
    return RunLog(run_args(folder, group_size))


def sampled(*scores: float | None, prompt: str = "1 + 1 =", threshold=None) -> list:
    samples = [
        SimpleNamespace(
            prompts=[prompt],
            scores=None if score is None else torch.tensor([score]),
            action_mask=torch.tensor([[0, 1]]),
            rollout_log_probs=None,
            truncated=torch.tensor([False]),
            info={},
        )
        for score in scores
    ]
    complete_info(samples, run_args(real={"label_threshold": threshold}))
    return samples


def test_length_and_cut_answers_by_verdict(tmp_path):
    samples = sampled(1.0, 0.0, 1.0, None)
    for sample, length in zip(samples, (3, 7, 4, 9), strict=True):
        sample.action_mask, sample.truncated = torch.ones(1, length), torch.tensor([length == 7])
    stats = run_log(tmp_path).group_stats(samples)
    assert (stats["rollout/response_length_correct"], stats["rollout/response_length_incorrect"]) == (3.5, 7)
    assert (stats["rollout/frac_truncated_correct"], stats["rollout/frac_truncated_incorrect"]) == (0, 1)
    none_is_correct = run_log(tmp_path).group_stats(sampled(0.0, None))
    assert not {"rollout/response_length_correct", "rollout/frac_truncated_correct"} & {*none_is_correct}


def test_entropy_is_estimated_by_what_the_sampler_says_of_all_tokens_that_it_drew(tmp_path):
    samples = sampled(1.0, 1.0, 0.0, 0.0)
    assert "rollout/entropy" not in run_log(tmp_path).group_stats(samples)
    for sample, log_prob in zip(samples, (-1.0, -2.0, -3.0, -4.0), strict=True):
        sample.rollout_log_probs = torch.tensor([[math.nan, log_prob]])
    assert run_log(tmp_path).group_stats(samples)["rollout/entropy"] == 2.5


def lines(folder, name="metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_one_flat_line_a_step_in_the_order_of_logging(tmp_path):
    log = run_log(tmp_path / "runs" / "mine")
    log.log_eval(0, {"eval_reverse_pass1": 0.25})
    log.log_train(
        1, {"policy_loss": 1.5, "generated_samples": ["text", 1.0], "name": "x", "nothing": None, "count": 3}
    )
    log.log_train(2, {"policy_loss": float("nan")})
    first, second, third = lines(tmp_path / "runs" / "mine")
    assert first | {"time": 0} == {"phase": "eval", "step": 0, "time": 0, "eval_reverse_pass1": 0.25}
    assert second | {"time": 0} == {"phase": "train", "step": 1, "time": 0, "policy_loss": 1.5, "count": 3.0}
    assert math.isnan(third["policy_loss"])  # a bad number stays visible
    assert first["time"] <= second["time"] <= third["time"]


def test_it_stands_where_tensorboard_does_and_hands_everything_on(tmp_path):
    tensorboard = Mock()
    log = RunLog(run_args(tmp_path), tensorboard)
    log.log_train(1, {"policy_loss": 1.0, "generated_samples": ["text", 1.0]})
    log.log_eval(1, {"eval_pass1": 0.5})
    log.close()
    assert tensorboard.mock_calls == [
        call.log_train(1, {"policy_loss": 1.0, "generated_samples": ["text", 1.0]}),
        call.log_eval(1, {"eval_pass1": 0.5}),
        call.close(),
    ]
    assert len(lines(tmp_path)) == 2
    run_log(tmp_path).close()  # without TensorBoard nothing is left open


def written(folder, *steps: tuple[str, int]) -> RunLog:
    log = run_log(folder)
    for phase, step in steps:
        log._write(phase, step, {"n": 1.0})
    return log


def resumed(folder, step, evaluates=False, **states) -> list[tuple[str, int]]:
    run_log(folder).resume({"global_step": step, **states}, evaluates)
    return [(line["phase"], line["step"]) for line in lines(folder)]


EIGHT = (("eval", 0), *(("train", step) for step in range(1, 5)), ("eval", 4), *(("train", n) for n in range(5, 8)))


def test_what_a_resume_makes_again_leaves_the_log_and_stays_beside_it(tmp_path):
    for folder in (tmp_path, tmp_path / "other"):
        written(folder, *EIGHT)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert resumed(tmp_path / "other", 4, evaluates=True) == list(EIGHT[:5])  # an evaluation that is made again
    assert resumed(tmp_path, 4, checkpoint="best_global_step4", damaged=["global_step6: x"]) == list(EIGHT[:6])
    assert (tmp_path / "metrics.jsonl").read_bytes() + (tmp_path / "metrics.discarded.jsonl").read_bytes() == before
    damaged, resumed_at = [json.loads(line)["say"] for line in (tmp_path / "notes.jsonl").read_text().splitlines()]
    assert (
        damaged.endswith("not used: global_step6: x") and resumed_at == "goes on after step 4, from best_global_step4"
    )


SHARES = {  # threshold, size of a group, scores, and the pass rate, prompts solved by all, by none, share ignored
    "one unknown": (None, 4, [1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, None], (8 / 15, 1 / 4, 1 / 4, 1 / 16)),
    "a strict threshold": (0.8, 2, [0.3, 0.2, 0.1, 0.2, 0.6, 0.9], (1 / 6, 0, 2 / 3, 0)),
    "a generous one": (0.15, 2, [0.3, 0.2, 0.1, 0.2, 0.6, 0.9], (5 / 6, 2 / 3, 0, 0)),
    "nothing known": (None, 2, [None, math.nan], (0, 0, 1, 1)),
}


@pytest.mark.parametrize("name", SHARES)
def test_shares_over_prompts_and_rollouts(tmp_path, name):
    threshold, size, scores, expected = SHARES[name]
    stats = run_log(tmp_path, size).group_stats(sampled(*scores, threshold=threshold))
    names = ("pass_rate", "frac_all_correct", "frac_all_wrong", "frac_ungraded")
    assert [stats[f"rollout/{name}"] for name in names] == pytest.approx(expected)


FLAT = {  # each step's scores of two prompts, the share with a weight, and what is told
    "none correct": ([0, 0, 0, 0], 0.0, "none of 12 responses was correct"),
    "all correct": ([1, 1, 1, 1], 0.0, "all of 12 responses were correct"),
    "all ungraded": ([None, None, None, math.nan], 0.0, "none of 12 responses was graded"),
    "prompts alike": ([0, 0, 1, 1], 0.0, "no prompt had correct and incorrect responses"),
    "a prompt with both": ([0, 0, 0, 1], 0.5, ""),
    "a loss, or a penalty, that learns of equal ones": ([0, 0, 0, 0], 1.0, ""),
    "OpenRLHF's own batching": ([0, 0, 0, 0], None, ""),
}


@pytest.mark.parametrize("name", FLAT)
def test_three_steps_that_teach_nothing_are_told_once_and_again_at_the_end(tmp_path, name, capsys):
    scores, share, told = FLAT[name]
    weighed = {} if share is None else {"update/frac_nonzero_weight": share}
    log, progress = run_log(tmp_path, 2), Progress(tmp_path, 5, tmp_path / "train.log")
    capsys.readouterr()
    for step in range(1, 6):
        log.log_train(step, log.group_stats(sampled(*scores, threshold=0.5)) | weighed)
        progress.update()
    log.close()
    progress.update()
    said = [line for line in capsys.readouterr().out.splitlines() if "in the last" in line]
    where = f"Look at `real-openrlhf show {tmp_path}`: prompts, template, reward, label column"
    expected = [f"in the last 3 steps {told}: there is nothing to learn from. {where}"] if told else []
    assert said == expected
    again = [line.replace("last 3 steps", "last 5 steps").replace(" of 12 ", " of 20 ") for line in expected]
    assert [line for line in summary(tmp_path).splitlines() if "learn" in line] == again


@pytest.mark.parametrize("sizes, told", [((9, 3, 4, 5.1, 3, 9), [4]), ((1, 9, 9, 10.9, 11), []), ((None, None), [])])
def test_memory_of_a_sleeping_engine_that_grows_is_told_once(tmp_path, sizes, told):
    log = run_log(tmp_path)
    for step, size in enumerate(sizes, 1):
        log.log_train(step, {} if size is None else {"memory/other_gb": float(size)})
    notes = lines(tmp_path, "notes.jsonl") if told else []
    assert [note["step"] for note in notes] == told
    assert all("grown from 3.0 to 5.1 GB" in note["say"] for note in notes)
    assert (tmp_path / "notes.jsonl").exists() == bool(told)


def test_a_real_run_whose_labels_were_never_right_says_so_under_its_table(tmp_path):
    """The lines of a run of the recipe `cpu` on labels of eight digits."""
    about = {"phase": "train", "actor_grad_norm": 0.0, "policy_loss": 0.0, "rollout/pass_rate": 0.0}
    entropies = (0.9289216153158272, 0.9724672334972262, 0.9738399214287755, 0.948557325178549)
    rows = [about | {"step": step, "rollout/entropy": value} for step, value in enumerate(entropies, 1)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    say = "in the last {} steps none of {} responses was correct: there is nothing to learn from. Look at "
    say += "`real-openrlhf show runs/never`: prompts, template, reward, label column"
    notes = {"step": 3, "say": say.format(3, 192)}, {"step": 4, "last": say.format(4, 256)}
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    assert summary(tmp_path).endswith(
        f"entropy                                     0.929     0.949\n{notes[1]['last']}"
    )


def test_steps_that_teach_nothing_before_a_better_one_are_not_in_the_closing_lines(tmp_path):
    log = run_log(tmp_path, 2)
    for step, scores in enumerate([[0, 0]] * 2 + [[0, 1]] + [[0, 0]] * 3 + [[0, 1]], 1):
        log.log_train(step, log.group_stats(sampled(*scores)) | {"update/frac_nonzero_weight": float(sum(scores))})
    log.close()
    (note,) = lines(tmp_path, "notes.jsonl")
    assert note["step"] == 6 and "learn" not in summary(tmp_path)
    with (tmp_path / "notes.jsonl").open("a") as file:
        file.write('{"step": 6, "last": "nothing to learn"}\n')  # of an end before a resume
    assert "learn" not in summary(tmp_path)


def test_the_same_prompts_have_the_same_number_in_any_order(tmp_path):
    log, a, b = run_log(tmp_path, 1), sampled(1, prompt="a"), sampled(0, prompt="b")
    number = log.group_stats(a + b)["rollout/prompts_crc"]
    assert number == log.group_stats(b + a)["rollout/prompts_crc"] != log.group_stats(a + a)["rollout/prompts_crc"]


def test_a_reward_function_cannot_rename_a_step(tmp_path):
    """Its `extra_logs` may have any keys."""
    run_log(tmp_path).log_train(3, {"phase": 9.0, "step": 7.0, "time": -1.0, "reward/x": 2.0})
    (line,) = lines(tmp_path)
    assert (line["phase"], line["step"], line["reward/x"]) == ("train", 3, 2.0) and line["time"] > 0
    assert list(line)[:3] == ["phase", "step", "time"]


NO_LINES = ("[1]", "7", "null", '{"step": 1}', '{"phase": "train", "step": "2"}', "[" * 100_000)
TORN = ('{"phase": "tra', '{"phase": "train", "step": 2, "time": 1.0}')  # behind which the next one would be written


@pytest.mark.parametrize("bad", [*(f"{one}\n" for one in NO_LINES), *TORN])
def test_a_resume_cuts_off_what_is_no_line_of_the_log(tmp_path, bad):
    log = run_log(tmp_path)
    log.log_train(1, {"loss": 1.0})
    log.log_train(2, {"loss": 1.0})
    good = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(good + bad)
    log.resume({"global_step": 2}, evaluates=True)
    assert (tmp_path / "metrics.jsonl").read_text() == good
    assert (tmp_path / "metrics.discarded.jsonl").read_text() == bad.rstrip("\n") + "\n"
