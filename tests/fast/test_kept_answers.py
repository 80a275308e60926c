"""What a run leaves for readers: rollouts.jsonl, its page and terminal, and `model/README.md`."""

import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch
import untrusted_text as untrusted
import yaml
from invented_runs import write_evaluation, write_run
from small_runs import run_args
from tiny_models import Numbers

from real_openrlhf.base.errors import OBEYED
from real_openrlhf.base.files import ROLLOUTS
from real_openrlhf.cli import main
from real_openrlhf.hooks.controller import run_log as run_log_module
from real_openrlhf.hooks.controller.kept_groups import LETTERS, GroupKeeper, choose, judge_answers
from real_openrlhf.report import answers as kept
from real_openrlhf.report import page
from real_openrlhf.report.model_card import write_card
from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.settings import compare
from real_openrlhf.report.table_forms import Table

HOSTILE = "<script>alert(1)</script>\x1b[2J\x07\r\u202e\ud800' onload='x\nline 2 \x9b31m</td>"


def keeper(folder, count=2) -> GroupKeeper:
    return GroupKeeper(with_groups(folder, count), Numbers())


def with_groups(folder, count=2) -> SimpleNamespace:
    return run_args(folder, group_size=2, keep_groups=count)


def run_log(folder) -> run_log_module.RunLog:
    return run_log_module.RunLog(with_groups(folder))


def sampled(prompt: str, *scores: float, gold="4") -> list:
    return [
        SimpleNamespace(
            prompts=[prompt],
            labels=[gold],
            sequences=torch.tensor([[7, 8, number, 9]]),
            action_mask=torch.tensor([[0, 1, 1]]),
            scores=torch.tensor([score]),
            rewards=torch.tensor([score]),
            truncated=torch.tensor([False]),
        )
        for number, score in enumerate(scores)
    ]


def test_a_mixed_group_is_among_those_kept_that_of_the_last_update():
    right, wrong, mixed = {"positive"}, {"negative", "ignored"}, {"positive", "negative"}
    assert choose([right, wrong, right], [], 2) == [0, 1]
    assert choose([right, wrong, mixed, mixed], [], 2) == [0, 3]
    assert choose([mixed, mixed, mixed, wrong], [2, 0, 1, 3], 2) == [0, 1]
    assert choose([mixed, right, wrong], [2, 1, 0], 2) == [1, 0]
    assert choose([mixed], [], 2) == [0] and choose([right, mixed], [], 1) == [1]


@pytest.mark.parametrize(
    "label, expected",
    [
        (json.dumps({"answer": "Lorenzo", "metadata": "x" * 900}), "Lorenzo"),
        ('["1", "2"]', '["1", "2"]'),
        ('{"answer', '{"answer'),
        ("4", "4"),
    ],
)
def test_what_is_expected_is_the_answer_and_not_the_whole_question(tmp_path, label, expected):
    (row,) = keeper(tmp_path).of_evaluation(sampled("a", 1.0, gold=label))
    assert row["gold"] == expected


def test_scores_and_weights_are_those_of_the_last_update_of_a_group(tmp_path):
    """Two epochs. A rollout that was left out has weight 0 and no score; the weight's sign is turned."""
    nan = torch.nan
    last = torch.tensor([[1.0, 1, 0, 0], [1, 0, 1, -1], [0.5, -0.5, nan, nan], [-0.75, 0.25, 0, 0]])
    before = last.clone()
    before[2:] = 9.0
    samples = sampled("a", 1.0, torch.nan) + sampled("b", 1.0, 0.0)
    rows = keeper(tmp_path).of_step(samples, [before, last[:, :2], last[:, 2:]])
    assert [row["prompt"] for row in rows] == ["a", "b"]
    shown = [[(one["label"], one["score"], one["weight"]) for one in row["rollouts"]] for row in rows]
    assert shown == [
        [("positive", None, 0.0), ("ignored", None, 0.0)],
        [("positive", 0.5, 0.75), ("negative", -0.5, -0.25)],
    ]
    assert rows[0]["rollouts"][1] == {
        "answer": "1 9",
        "label": "ignored",
        "reward": None,
        "score": None,
        "weight": 0.0,
        "tokens": 2,
        "truncated": False,
    }


def test_a_built_in_loss_has_no_weights_and_labels_by_the_score(tmp_path):
    (row,) = keeper(tmp_path, 1).of_step(sampled("a", 1.0, 0.0) + sampled("b", 1.0, 1.0), [])
    assert [(one["label"], one["score"], one["weight"]) for one in row["rollouts"]] == [
        ("positive", None, None),
        ("negative", None, None),
    ]


def test_long_texts_are_cut_in_their_middle_with_a_mark(tmp_path):
    (row,) = keeper(tmp_path, 1).of_step(sampled("begin" + "x" * 10**6 + "end", 1.0, 0.0), [])
    assert len(row["prompt"]) < LETTERS["prompt"] + 60
    assert row["prompt"].startswith("begin") and row["prompt"].endswith("end")
    assert "... [998008 letters left out] ..." in row["prompt"]


class Generator:
    """As OpenRLHF's samples generator: it answers in another order each time."""

    def __init__(self, args) -> None:
        self.args, self.tokenizer, self.drawn = args, Numbers(), 0

    def generate_eval_samples(self, **named) -> list:
        self.drawn += 1
        questions = [sampled(f"question {n}", 1.0, 0.0) for n in range(9)]
        return [sample for own in (questions[::-1] if self.drawn % 2 else questions) for sample in own]


def test_every_evaluation_keeps_the_same_questions(tmp_path):
    generator, log = Generator(with_groups(tmp_path)), run_log(tmp_path)
    judge_answers(generator)
    for step in (0, 5, 10):
        assert len(generator.generate_eval_samples(temperature=1.0)) == 18
        log.log_eval(step, {"eval_x_pass1": 0.5})
    log.log_eval(11, {"eval_x_pass1": 0.5})  # its node has another disk
    groups = kept.read(tmp_path)
    asked = {step: [group.prompt for group in groups if group.step == step] for step in kept.steps(groups, "eval")}
    assert [*asked] == [0, 5, 10] and len({*map(tuple, asked.values())}) == 1
    assert len({*asked[0]}) == 4 and all((group.right, group.of) == (1, 2) for group in groups)


def test_none_are_kept_if_not_asked(tmp_path):
    for args in (with_groups(tmp_path, 0), with_groups(tmp_path)):
        args.train.run_dir = args.train.keep_groups and None
        generator = Generator(args)
        judge_answers(generator)
        generator.generate_eval_samples()
    assert list(tmp_path.iterdir()) == []


def test_a_held_out_answer_is_right_by_its_score_as_a_label_is(tmp_path):
    """Whatever its reward; without a verdict it is wrong. OpenRLHF's own loop keeps its rewards."""
    for deal, right in (("groups", [0.0, 1.0, 0.0, 0.0]), ("upstream", [0.4, 0.6, -1.0, 0.0])):
        generator = Generator(with_groups(tmp_path))
        generator.args.train.deal = deal
        answers = [sampled("question", reward)[0] for reward in (0.4, 0.6, -1.0, 0.0)]
        answers[2].scores, answers[3].scores = torch.tensor([0.0]), torch.tensor([math.nan])
        generator.generate_eval_samples = lambda answers=answers: answers
        judge_answers(generator)
        judged = [float(answer.rewards[0]) for answer in generator.generate_eval_samples()]
        assert judged == pytest.approx(right)


def step(log, number: int, *texts: str) -> None:
    rollouts = [{"answer": text, "label": "positive", "reward": 1.0, "score": 0.1, "weight": 0.5} for text in texts]
    rollouts += [{"answer": "no", "label": "negative", "reward": 0.0, "score": -0.1, "weight": -0.25}]
    log.groups = [{"prompt": text, "gold": text, "rollouts": rollouts} for text in texts]
    log.log_train(number, {"loss": 1.0})


def evaluation(log, number: int, *texts: str) -> None:
    rows = [
        {"prompt": "asked", "gold": text, "right": 0, "of": 3, "rollouts": [{"answer": text, "label": "negative"}]}
        for text in texts
    ]
    (log.path.parent / run_log_module.HELD_OUT).write_text(json.dumps(rows))
    log.log_eval(number, {"eval_x_pass1": 0.0})


def written(folder) -> list[tuple[str, int]]:
    return [(group.phase, group.step) for group in kept.read(folder)]


@pytest.mark.parametrize("evaluates", [False, True])
def test_after_a_resume_no_step_is_twice_or_lost(tmp_path, evaluates):
    log = run_log(tmp_path)
    evaluation(log, 0, "x")
    for number in (1, 2):
        step(log, number, "a", "b")
    evaluation(log, 2, "x")
    step(log, 3, "a", "b")
    with (tmp_path / ROLLOUTS).open("a") as file:
        file.write('{"phase": "tra')  # a kill tore it
    log = run_log(tmp_path)
    log.resume({"global_step": 2}, evaluates)
    before = [("eval", 0), *[("train", 1), ("train", 2)] * 2]
    assert sorted(written(tmp_path)) == sorted([*before, *[("eval", 2)] * (not evaluates)])
    step(log, 3, "a", "b")
    assert written(tmp_path)[-2:] == [("train", 3), ("train", 3)]
    run_log(tmp_path).resume({"global_step": 0}, evaluates=True)
    assert written(tmp_path) == [] == kept.read(tmp_path)


def test_the_file_has_a_largest_size_and_says_so_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run_log_module, "KEPT_BYTES", 2000)
    log = run_log(tmp_path)
    for number in range(1, 9):
        step(log, number, "a" * 100)
    assert 1000 < (tmp_path / ROLLOUTS).stat().st_size <= 2000
    evaluation(log, 8, "x")  # has as much again
    assert written(tmp_path)[-1] == ("eval", 8)
    notes = [json.loads(line)["say"] for line in (tmp_path / "notes.jsonl").read_text().splitlines()]
    assert notes == [f"{ROLLOUTS} is full: no groups of later steps are kept"]


@pytest.fixture
def run(tmp_path):
    """Steps 1 to 3 and 7, evaluations at 0, 3, 4 and 7, in which all texts are hostile."""
    log = run_log(tmp_path / "run")
    for number in (0, 1, 2, 3, 4, 7):
        if number in (1, 2, 3, 7):
            step(log, number, f"answer {number} {HOSTILE}", "b" * 5000)
        if number in (0, 3, 4, 7):
            evaluation(log, number, f"held out {number} {HOSTILE}")
    return tmp_path / "run"


def shown(capsys, *words) -> str:
    assert main(["show", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_show_prints_a_step(run, capsys):
    text = shown(capsys, run, "--step", 2)
    assert not OBEYED.search(text + (run / ROLLOUTS).read_text()) and "\r" not in text
    assert "answer 2" in text and "answer 3" not in text and "Step 2: 2 of 3 right" in text
    assert "  right    reward 1  score +0.1000  weight +0.5000  ++++++++++++\n" in text
    assert "  wrong    reward 0  score -0.1000  weight -0.2500  ------\n" in text
    assert "b" * 700 not in text
    assert text.endswith("Kept: groups of steps 1 to 3, 7; held-out answers (--eval) of steps 0, 3, 4, 7.\n")
    assert "answer 7" in shown(capsys, run)


def test_show_prints_held_out_answers_of_start_middle_and_end(run, capsys):
    text = shown(capsys, run, "--eval")
    assert not OBEYED.search(text)
    assert [f"held out {n} " in text for n in (0, 3, 4, 7)] == [True, True, False, True]
    assert "held out 4 " in shown(capsys, run, "--eval", "--step", 4)


def test_show_says_what_there_is(run, tmp_path, refused):
    assert "no groups of that step. Kept: groups of steps 1 to 3, 7;" in refused("show", run, "--step", 4)
    assert "of steps 0, 3, 4, 7." in refused("show", run, "--step", 1, "--eval")
    (tmp_path / ROLLOUTS).write_text('{"phase": "tra')
    assert f"{tmp_path} has no answers: {ROLLOUTS} is missing, empty or damaged" in refused("show", tmp_path)
    assert f"{tmp_path}/none has no answers: there is no such folder" in refused("show", tmp_path / "none")


WITHOUT_STEP = b'{"phase": "train", "prompt": "", "gold": "", "rollouts": '
LINE = WITHOUT_STEP.replace(b"{", b'{"step": 1, ', 1)
BAD = (b"", b"[1]", b"null", b"{}", b"[" * 9**6, b"\xff\xfe", b'{"phase": "tr')
BAD += (LINE + b"[]}", LINE + b"[7]}", WITHOUT_STEP + b'[{"answer": 1, "label": 1}], "step": 1e999}')
BAD += tuple(LINE + b'[{"answer": "", "label": "", "weight": %s}]}' % value for value in (b"NaN", b"[]", b"9" * 400))


def test_what_is_no_line_of_the_file_is_passed_over(run):
    good = kept.read(run)
    (run / ROLLOUTS).write_bytes(b"\n".join(BAD) + b"\n" + (run / ROLLOUTS).read_bytes())
    assert kept.read(run) == good


def test_the_page_shows_held_out_answers_side_by_side_and_weights(run):
    """Of the first run of a setting; GRPO's runs kept none."""
    for algo, seed in (("real", 1), ("real", 2), ("grpo", 1)):
        folder = write_run(run.parent / "runs", algo, seed)
        if algo == "real":
            shutil.copyfile(run / ROLLOUTS, folder / ROLLOUTS)
    comparisons = compare(read_runs([run.parent / "runs"])[0])
    section = page.section(comparisons[0], [], "")
    assert [name for name, _ in section["answers"]] == ["REAL, run cpu-real-s1"]
    text = page.render(comparisons, [section], Table("benchmarks", "", [{"Method": "<b>"}]), [])
    parser = untrusted.Page()
    parser.feed(text)
    assert parser.wrong == [] and not OBEYED.search(text) and "<script" not in text and "<b>" not in text
    assert text.count("<details") == 1 and len(text) < 40_000
    for here in ("<th>Step 0</th><th>Step 3</th><th>Step 7</th>", "+0.5000", "Step 1: 2 of 3", "Step 7: 2 of 3"):
        assert here in text
    assert "Step 2: " not in text


# `model/README.md` of a run: what a model hub shows, and nothing of the machine.


BASE = {"--actor.model_name_or_path": "Qwen/Qwen2.5-1.5B", "--data.prompt_dataset": "/secret/place/sums.jsonl"}


def test_a_card_has_what_the_weights_are_and_where_they_come_from(tmp_path):
    rows = tmp_path / "sums_eval.jsonl"
    rows.write_text('{"prompt": "1+1=", "label": "2"}\n' * 100)
    mine = {
        "--algo.real.objective": "/secret/place/mine.py:hinge",
        "--eval.dataset": str(rows),
        "--algo.real.tau": 0.5,
    }
    folder = write_run(tmp_path, seed=7, flags=BASE | mine)
    write_evaluation(folder, aime24=(0.25, 0.0625))
    assert write_card(folder) is None  # no weights, no card
    (folder / "model").mkdir()
    text = write_card(folder).read_text()
    _, head, body = text.split("---\n", 2)
    assert yaml.safe_load(head)["base_model"] == "Qwen/Qwen2.5-1.5B"
    for said in ("| data | sums.jsonl |", "| objective | mine.py:hinge |", "| tau | 0.5 |", "| seed | 7 |"):
        assert said in body
    assert f"tree `{'5e' * 20}`" in body and "| steps | 20 |" in body and "arXiv:2602.05630" in body
    assert "| aime24 | 0.250 ± 0.062 |" in body and "100 problems" in body and "± 0.04" in body
    assert "secret" not in text and str(tmp_path) not in text


def test_a_model_of_a_folder_is_named_without_its_place(tmp_path):
    changed = {"tree": None, "no_tree": "tracked files had been changed"}
    folder = write_run(tmp_path, **changed, flags={"--actor.model_name_or_path": "/home/me/tiny-1234/model"})
    (folder / "model").mkdir()
    text = write_card(folder).read_text()
    assert "| base model | tiny-1234, a local folder |" in text and "/home" not in text and "base_model" not in text
    assert ", tracked files had been changed |" in text and "None" not in text
