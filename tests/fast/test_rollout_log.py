"""What a run leaves for readers: rollouts.jsonl, and `real-openrlhf show`."""

import math
from types import SimpleNamespace

import pytest
import torch
from small_runs import run_args
from tiny_models import Numbers

from real_openrlhf.base.run_files import ROLLOUTS
from real_openrlhf.base.terminal import CONTROLS
from real_openrlhf.cli import main
from real_openrlhf.hooks.controller import run_log as run_log_module
from real_openrlhf.hooks.controller.labels import complete_info, evaluate_by_label
from real_openrlhf.hooks.controller.rollout_logger import RolloutLogger, choose
from real_openrlhf.report import show

HOSTILE = "<script>alert(1)</script>\x1b[2J\x07\r\u202e\ud800' onload='x\nline 2 \x9b31m</td>"


def rollout_logger(folder, count=2) -> RolloutLogger:
    return RolloutLogger(with_groups(folder, count), Numbers())


def with_groups(folder, count=2) -> SimpleNamespace:
    return run_args(folder, group_size=2, kept=count)


def run_log(folder) -> run_log_module.RunLog:
    return run_log_module.RunLog(with_groups(folder))


def sampled(prompt: str, *scores: float, gold="4") -> list:
    samples = [
        SimpleNamespace(
            prompts=[prompt],
            labels=[gold],
            sequences=torch.tensor([[7, 8, number, 9]]),
            action_mask=torch.tensor([[0, 1, 1]]),
            scores=torch.tensor([score]),
            rewards=torch.tensor([score]),
            truncated=torch.tensor([False]),
            rollout_log_probs=None,
            info={},
        )
        for number, score in enumerate(scores)
    ]
    complete_info(samples, run_args())
    return samples


def test_a_mixed_group_is_among_those_kept_that_of_the_last_update():
    right, wrong, mixed = {"positive"}, {"negative", "ungraded"}, {"positive", "negative"}
    assert choose([right, wrong, right], [], 2) == [0, 1]
    assert choose([right, wrong, mixed, mixed], [], 2) == [0, 3]
    assert choose([mixed, mixed, mixed, wrong], [2, 0, 1, 3], 2) == [0, 1]
    assert choose([mixed, right, wrong], [2, 1, 0], 2) == [1, 0]
    assert choose([mixed], [], 2) == [0] and choose([right, mixed], [], 1) == [1]


def test_scores_and_weights_are_those_of_the_last_update_of_a_group(tmp_path):
    """A rollout that was left out has weight 0 and no score; the weight's sign is turned."""
    nan = torch.nan
    last = torch.tensor([[1.0, 1, 0, 0], [0.5, -0.5, nan, nan], [-0.75, 0.25, 0, 0]])
    before = last.clone()
    before[1:] = 9.0
    samples = sampled("a", 1.0, torch.nan) + sampled("b", 1.0, 0.0)
    rows = rollout_logger(tmp_path).of_step(samples, [before, last[:, :2], last[:, 2:]])
    assert [row["prompt"] for row in rows] == ["a", "b"]
    shown = [[(one["label"], one["score"], one["weight"]) for one in row["rollouts"]] for row in rows]
    assert shown == [
        [("positive", None, 0.0), ("ungraded", None, 0.0)],
        [("positive", 0.5, 0.75), ("negative", -0.5, -0.25)],
    ]
    assert rows[0]["rollouts"][1] == {
        "answer": "1 9",
        "label": "ungraded",
        "reward": None,
        "score": None,
        "weight": 0.0,
        "tokens": 2,
        "truncated": False,
    }


def test_a_response_that_training_ignores_is_ignored_in_the_log_of_every_method(tmp_path, capsys):
    """Cut, or without a token: neither in a table nor without one is it incorrect."""
    samples = sampled("a", 0.0, 0.0, 1.0, 0.0)
    samples[0].truncated, samples[1].action_mask[:] = torch.tensor([True]), 0
    complete_info(samples, run_args(real={"truncated": "ignore"}))
    log, nan = run_log(tmp_path), torch.nan
    for tables in ([], [torch.tensor([[0.0, 0.0], [nan, nan], [0.0, 0.0]])]):
        log.groups = rollout_logger(tmp_path).of_step(samples, tables)
        assert [[one["label"] for one in row["rollouts"]] for row in log.groups] == [
            ["ungraded", "ungraded"],
            ["positive", "negative"],
        ]
    assert (log.group_stats(samples)["rollout/pass_rate"], len(log.groups)) == (1 / 4, 2)
    log.log_train(1, {})
    assert [line.split()[0] for line in shown(capsys, tmp_path).splitlines() if "  reward " in line] == [
        *("ungraded", "ungraded", "correct", "incorrect")
    ]


def test_a_built_in_loss_has_no_weights_and_labels_by_the_score(tmp_path):
    (row,) = rollout_logger(tmp_path, 1).of_step(sampled("a", 1.0, 0.0) + sampled("b", 1.0, 1.0), [])
    assert [(one["label"], one["score"], one["weight"]) for one in row["rollouts"]] == [
        ("positive", None, None),
        ("negative", None, None),
    ]


def test_a_held_out_answer_is_right_by_its_score_as_a_label_is():
    """Whatever its reward; without a verdict it is wrong. OpenRLHF's own loop keeps its rewards."""
    for batching, right in (("whole_groups", [0.0, 1.0, 0.0, 0.0]), ("upstream", [0.4, 0.6, -1.0, 0.0])):
        answers = [sampled("question", reward)[0] for reward in (0.4, 0.6, -1.0, 0.0)]
        answers[2].scores, answers[3].scores = torch.tensor([0.0]), torch.tensor([math.nan])
        generator = SimpleNamespace(
            args=run_args(batching=batching), generate_eval_samples=lambda answers=answers: answers
        )
        evaluate_by_label(generator)
        assert [float(one.rewards[0]) for one in generator.generate_eval_samples()] == pytest.approx(right)


def step(log, number: int, *texts: str) -> None:
    rollouts = [{"answer": text, "label": "positive", "reward": 1.0, "score": 0.1, "weight": 0.5} for text in texts]
    rollouts += [{"answer": "no", "label": "negative", "reward": 0.0, "score": -0.1, "weight": -0.25}]
    log.groups = [{"prompt": text, "gold": text, "rollouts": rollouts} for text in texts]
    log.log_train(number, {"loss": 1.0})


def written(folder) -> list[int]:
    return [group["step"] for group in show.read(folder)]


def test_after_a_resume_no_step_is_twice_or_lost(tmp_path):
    log = run_log(tmp_path)
    for number in (1, 2, 3):
        step(log, number, "a", "b")
    with (tmp_path / ROLLOUTS).open("a") as file:
        file.write('{"phase": "tra')  # a kill tore it
    log = run_log(tmp_path)
    log.resume({"global_step": 2}, evaluates=True)
    assert written(tmp_path) == [1, 1, 2, 2]
    step(log, 3, "a", "b")
    assert written(tmp_path)[-2:] == [3, 3]
    run_log(tmp_path).resume({"global_step": 0}, evaluates=True)
    assert written(tmp_path) == []


@pytest.fixture
def run(tmp_path):
    """Steps 1 to 3 and 7, in which all texts are hostile."""
    log = run_log(tmp_path / "run")
    for number in (1, 2, 3, 7):
        step(log, number, f"answer {number} {HOSTILE}", "b" * 5000)
    return tmp_path / "run"


def shown(capsys, *words) -> str:
    assert main(["show", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_show_prints_a_step(run, capsys):
    text = shown(capsys, run, "--step", 2)
    assert not CONTROLS.search(text + (run / ROLLOUTS).read_text()) and "\r" not in text
    assert "answer 2" in text and "answer 3" not in text and "b" * 700 not in text
    assert "  correct    reward 1  score +0.1000  weight +0.5000\n" in text
    assert "  incorrect  reward 0  score -0.1000  weight -0.2500\n" in text
    assert text.startswith("score: mean log") and text.endswith("logged steps: 1 to 3, 7\n")
    assert "answer 7" in shown(capsys, run)  # the last one


WITHOUT_STEP = b'{"phase": "train", "prompt": "", "gold": "", "rollouts": '
LINE = WITHOUT_STEP.replace(b"{", b'{"step": 1, ', 1)
BAD = (b"", b"[1]", b"null", b"{}", b"[" * 9**6, b"\xff\xfe", b'{"phase": "tr')
BAD += (LINE + b"[7]}", WITHOUT_STEP + b'[{"answer": 1, "label": 1}], "step": 1e999}')


def test_what_is_no_line_of_the_file_is_passed_over(run):
    good = show.read(run)
    (run / ROLLOUTS).write_bytes(b"\n".join(BAD) + b"\n" + (run / ROLLOUTS).read_bytes())
    assert show.read(run) == good
    odd = b",".join(b'{"answer": "", "label": "", "weight": %s}' % value for value in (b"NaN", b"[]", b"9" * 400))
    (run / ROLLOUTS).write_bytes(LINE + b"[" + odd + b"]}")
    ((*weights,),) = ([rollout["weight"] for rollout in group["rollouts"]] for group in show.read(run))
    assert weights == [None, None, None]
