"""The report: its numbers against a few independent lines, what it refuses to claim, and folders that are no runs."""

import csv
import io
import json
import math
import random
import statistics
from pathlib import Path

import invented_runs as invented
import pytest

from real_openrlhf.cli import main
from real_openrlhf.report import benchmarks, figures, page, table_forms, tables
from real_openrlhf.report.curves import training
from real_openrlhf.report.read_runs import read_run, read_runs
from real_openrlhf.report.statistics import Difference, difference, holm, two_sided
from real_openrlhf.report.task_runs import TaskRuns, best_of_each_method, tasks


def task_of(*folders: Path) -> TaskRuns:
    """The one task of these runs."""
    (task,) = tasks(read_runs(folders)[0])
    return task


def rows(table: table_forms.Table) -> list[dict]:
    return list(csv.DictReader(io.StringIO(table_forms.to_csv(table))))


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    root = tmp_path_factory.mktemp("ten")
    for algo, seeds in {"real": 4, "grpo": 3, "real_bce": 2, "dapo": 1}.items():
        for seed in range(1, seeds + 1):
            invented.write_run(root, algo, seed)
    return root


def evaluations(root: Path, algo: str, ends: dict[int, float], **record) -> None:
    """Runs that are evaluated twice, with equal results."""
    for seed, end in ends.items():
        lines = [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": end} for step in (0, 2)]
        name = f"{algo}-{seed}-{record.get('machine')}"
        invented.write_lines(invented.write_run(root, algo, seed, 2, name=name, **record), lines)


# Numbers


@pytest.mark.parametrize(("algo", "label"), [("real", "REAL"), ("dapo", "DAPO")])  # of four runs, and of one
def test_numbers_equal_those_recomputed_from_metrics_jsonl(ten, algo, label, tmp_path):
    texts = [path.read_text() for path in sorted(ten.glob(f"cpu-{algo}-s*/metrics.jsonl"))]
    logs = [[json.loads(line) for line in text.splitlines()] for text in texts]

    def mean_and_error(values):
        return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None

    (final,) = [row for row in rows(tables.results(task_of(ten))) if row["Setting"] == label]
    assert final["Learning rate"] == "1e-4"
    last_tenth = [[row["rollout/pass_rate"] for row in log if row["phase"] == "train"][-2:] for log in logs]
    later = [[row["eval_sums_pass1"] for row in log if row["phase"] == "eval" and row["step"]] for log in logs]
    for column, values in {
        "Mean over training": [*map(statistics.mean, later)],
        "Held-out pass@1": [log[-1]["eval_sums_pass1"] for log in logs],
        "Pass rate": [statistics.mean(tail) for tail in last_tenth],
    }.items():
        mean, error = mean_and_error(values)
        assert float(final[column]) == pytest.approx(mean)
        assert final[f"{column} SE"] == "" if error is None else float(final[f"{column} SE"]) == pytest.approx(error)

    drawn = figures.dynamics(task_of(ten), tmp_path / "dynamics.png").values.tolist()
    for metric, key, phase in (
        ("Entropy (nats per token)", "entropy_loss", "train"),
        ("Held-out pass@1", "eval_sums_pass1", "eval"),
    ):
        points = {row[2]: row[3:] for row in drawn if row[:2] == [label, metric]}
        steps = [row["step"] for row in logs[0] if row["phase"] == phase]
        assert sorted(points) == steps
        for step in steps:
            values = [row[key] for log in logs for row in log if (row["phase"], row["step"]) == (phase, step)]
            mean, error = mean_and_error(values)
            assert points[step][:2] == [len(logs), pytest.approx(mean)]
            assert math.isnan(points[step][2]) if error is None else points[step][2] == pytest.approx(error)


def test_table_1_is_the_mean_over_steps_weighted_by_share(ten):
    table = {(row["Block"], row["Setting"]): row["> 1+ε"] for row in rows(tables.ratios(task_of(ten)))}
    shares, grads = [], []
    for path in ten.glob("cpu-grpo-s*/metrics.jsonl"):
        log = [row for row in map(json.loads, path.read_text().splitlines()) if row["phase"] == "train"]
        share = [row["ratio/neg/above/share"] for row in log]
        shares.append(statistics.mean(share))
        grads.append(statistics.fmean([row["ratio/neg/above/grad"] for row in log], weights=share))
    assert float(table["Negatives: % of tokens", "GRPO"]) == pytest.approx(statistics.mean(shares))
    assert float(table["Negatives: mean |W|", "GRPO"]) == pytest.approx(statistics.mean(grads))
    assert table["Negatives: % of tokens", "GRPO, paper"] == "0.34"
    assert table["Negatives: mean |W|", "GRPO, paper"] == "1.3553"


def test_a_step_without_tokens_in_a_range_weighs_nothing(tmp_path):
    """Whether it logs no magnitude, as runs do now, or 0, as older ones did, the share of the step is 0."""
    for seed, nothing in ((1, {}), (2, {"ratio/pos/above/grad": 0.0})):
        steps = [
            {"ratio/pos/above/share": 10.0, "ratio/pos/above/grad": 2.0},
            {"ratio/pos/above/share": 0.0, **nothing},
        ]
        shares = {"ratio/pos/high/share": 90.0, "ratio/neg/high/share": 1.0, "ratio/pos/low/share": 0.0}
        lines = [{"phase": "train", "step": n, **shares, **step} for n, step in enumerate(steps, 1)]
        invented.write_lines(invented.write_run(tmp_path, "real", seed, 2), lines)
    found = {row["Block"]: row for row in rows(tables.ratios(task_of(tmp_path))) if row["Setting"] == "REAL"}
    assert float(found["Positives: % of tokens"]["> 1+ε"]) == 5.0
    assert float(found["Positives: mean |W|"]["> 1+ε"]) == 2.0
    assert float(found["Positives: % of tokens"]["[1−ε, 1)"]) == 0.0
    assert found["Positives: mean |W|"]["[1−ε, 1)"] == "no token"


def curve_of(root: Path, *curves: dict[int, float]) -> list[list[float]]:
    """(step, runs, mean, se) of the drawn entropy of runs that logged these."""
    for seed, curve in enumerate(curves, 1):
        lines = [{"phase": "train", "step": step, "entropy_loss": value} for step, value in curve.items()]
        invented.write_lines(invented.write_run(root, "real", seed), lines)
    return figures.dynamics(task_of(root), root / "dynamics.png")[["step", "runs", "mean", "se"]].values.tolist()


def test_a_curve_rests_on_steps_that_every_run_has_and_a_long_one_is_the_mean_over_whole_windows(tmp_path):
    drawn = curve_of(tmp_path / "two", {1: 1.0, 2: 2.0, 3: 3.0}, {1: 3.0, 2: 4.0, 4: 9.0})
    assert drawn == [[1, 2, 2.0, 1.0], [2, 2, 3.0, 1.0]]
    long = curve_of(tmp_path / "long", {step: float(step) for step in range(1, 251)})
    assert {step: mean for step, _, mean, _ in long} == {step: step - 1 for step in range(3, 250, 3)}


def test_validation_is_the_mean_over_the_sets_that_all_runs_have(tmp_path):
    for seed, keys in ((1, ("a", "b", "c")), (2, ("a", "b"))):
        scores = {f"eval_{key}_pass1": 0.1 * (ord(key) - 96) for key in keys}
        lines = [{"phase": "train", "step": 20, "entropy_loss": 1.0}, {"phase": "eval", "step": 20, **scores}]
        invented.write_lines(invented.write_run(tmp_path, "real", seed), lines)
    task = task_of(tmp_path)
    assert task.sets == ("a", "b")
    assert float(rows(tables.results(task))[0]["Held-out pass@1"]) == pytest.approx(0.15)


def test_a_resumed_run_counts_each_step_once(tmp_path):
    folder = invented.write_run(tmp_path, "real", 1)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"phase": "train", "step": 20, "rollout/reward_mean": 0.125}) + "\n")
    reward = read_run(folder).logged["train"]["rollout/reward_mean"]
    assert len(reward) == 20 and reward[20] == 0.125


# Statistics


def test_quantiles_and_corrections_are_those_of_the_tables():
    for share, freedom, known in ((0.975, 4, 2.776), (0.975, 1, 12.706), (0.995, 9, 3.250), (0.975, 1000, 1.962)):
        assert two_sided(known, freedom) == pytest.approx(2 * (1 - share), rel=2e-3)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


ONE, OTHER = [0.82, 0.85, 0.91, 0.79, 0.88], [0.71, 0.64, 0.80, 0.77]


def test_welch_is_that_of_scipy():
    """SciPy 1.17: scipy.stats.ttest_ind(ONE, OTHER, equal_var=False)."""
    gap = difference(ONE, OTHER)
    assert (gap.mean, gap.freedom, gap.p) == pytest.approx((0.12, 5.057236602, 0.0329350718), rel=1e-7)


@pytest.mark.parametrize(("mean", "p"), [(0.03, 0.5), (-0.03, 0.5), (0.0, 0.025), (0.06, 0.975), (-0.06, 0.975)])
def test_equivalence_is_two_one_sided_tests(mean, p):
    """At a standard error whose t-quantile of 0.975 is the margin."""
    assert Difference(mean, 0.03 / 2.776445, 4).p_equivalent == pytest.approx(p, abs=1e-6)


def test_a_rehearsal_is_named_as_one_and_its_small_run_is_none(tmp_path):
    folder = invented.write_run(tmp_path / "rehearsal-cpu-real-s1", name="run").parent
    invented.write_run(tmp_path, name="cpu-real-s1")
    for typed in (tmp_path, folder):
        runs, skipped = read_runs([typed])
        assert len(runs) == (typed == tmp_path) and skipped == [(folder, "a rehearsal, not a run")]


def test_runs_of_other_starting_weights_are_apart_and_several_machines_are_told(tmp_path):
    for weights, machine in (("5e", "a"), ("5e", "b"), ("6f", "b")):
        invented.write_run(tmp_path, name=weights + machine, starting_weights=weights, machine={"cpu": machine})
    one, other = tasks(read_runs([tmp_path])[0])
    assert [len(one.runs), len(other.runs)] == [2, 1]
    assert "of 2 machines" in tables.results(one).notes[0] and "machines" not in tables.results(other).notes[0]


def test_a_conclusion_names_the_direction_an_equivalence_or_neither(tmp_path):
    for algo, ends in {
        "real": (0.80, 0.81, 0.80, 0.79), "grpo": (0.90, 0.91, 0.89, 0.90), "dapo": (0.80, 0.80, 0.81, 0.80),
        "gspo": (0.9, 0.5, 0.95, 0.7),
    }.items():  # fmt: skip
        evaluations(tmp_path, algo, dict(enumerate(ends, 1)))
    found = {row["Setting"]: row for row in tables.summary(task_of(tmp_path)).rows}
    assert {name: row["Conclusion"] for name, row in found.items()} == {
        "REAL": "reference", "GRPO": "higher", "DAPO": "equivalent within 0.03", "GSPO": "inconclusive",
    }  # fmt: skip
    assert str(found["GRPO"]["vs REAL"]) == "+0.100 ± 0.006" and found["GRPO"]["Runs"] == "4"


def test_how_far_a_run_fell_is_told_where_it_was_evaluated_often(tmp_path):
    for algo, curve in {"real": [0.1, 0.4, 0.9, 0.8, 0.6, 0.5], "grpo": [0.1, 0.4, 0.5, 0.7, 0.9]}.items():
        lines = [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": at} for step, at in enumerate(curve)]
        invented.write_lines(invented.write_run(tmp_path, algo, steps=9), lines)
    rows = tables.summary(task_of(tmp_path)).rows
    assert [str(row["Best less last two"]) for row in rows] == ["0.350", "None"]  # 0.9 - 0.55; a rise of four


def test_fewer_than_three_runs_conclude_nothing(tmp_path):
    evaluations(tmp_path, "real", {1: 0.5, 2: 0.5, 3: 0.5})
    evaluations(tmp_path, "grpo", {2: 0.4, 3: 0.3})
    assert "Conclusion" not in tables.summary(task_of(tmp_path)).columns
    evaluations(tmp_path, "gspo", {1: 0.2, 2: 0.3, 3: 0.25})
    rows = tables.summary(task_of(tmp_path)).rows
    assert [row["Conclusion"] for row in rows] == ["reference", "too few runs", "lower"]


def test_of_many_settings_the_best_of_each_method_stands_for_it(tmp_path):
    """One lucky run is not the best setting of a method that has one of three runs."""
    for algo in ("real", "grpo"):
        for rate in range(1, 8):
            for seed in (1, 2, 3) if rate < 7 else (1,):
                lines = [{"phase": "eval", "step": 2, "time": 1, "eval_x_pass1": 0.1 * rate + 0.01 * seed}]
                flags = {"--actor.adam.lr": rate / 1e4}
                name = f"{algo}-{rate}-{seed}"
                invented.write_lines(invented.write_run(tmp_path, algo, seed, 2, flags, name), lines)
    task = task_of(tmp_path)
    assert [setting.varied for setting in best_of_each_method(task)] == [("lr 6e-4",)] * 2
    assert len(tables.summary(task).rows) == 2 and len(tables.results(task).rows) == 14


def test_a_seed_counts_once_and_the_steps_stand_in_the_table(tmp_path):
    machine = {"cpu": "A", "instructions": "avx2", "gpus": ""}
    for algo in ("real", "grpo"):
        for seed in (1, 2, 3):
            invented.write_run(tmp_path, algo, seed, machine=machine)
    before = tables.summary(task_of(tmp_path)).rows
    invented.write_run(tmp_path, "real", 1, machine=machine, name="again-s1")
    after = tables.summary(task_of(tmp_path)).rows
    assert [{**row, "Runs": ""} for row in after] == [{**row, "Runs": ""} for row in before]
    invented.write_run(tmp_path, "dapo", 1, steps=10, machine=machine)
    rows = tables.results(task_of(tmp_path)).rows
    assert [row["Runs"] for row in rows] == ["3; 1 of a repeated seed, not averaged", "3", "1"]
    assert [row["Step"] for row in rows] == ["20", "20", "10"]
    for name in ("one", "other"):  # whose machine nobody knows: these are no repeats
        invented.write_run(tmp_path, "gspo", 1, name=name)
    assert tables.results(task_of(tmp_path)).rows[-1]["Runs"] == "2"


# Benchmarks


def write_evaluated(root: Path, **settings: dict) -> Path:
    """REAL leads GRPO clearly on AIME24 and within the noise on AMC23."""
    for algo, center in (("real", 0.60), ("grpo", 0.40)):
        for seed in (1, 2, 3):
            amc = 0.5 + random.Random(f"{algo}{seed}").random() / 10
            folder = invented.write_run(root, algo, seed)
            invented.write_evaluation(
                folder, settings.get(algo), aime24=(center + seed / 100, 0.02), amc23=(amc, 0.02)
            )
    return root


def test_scores_of_different_protocols_say_so(tmp_path):
    alike = benchmarks.benchmarks([task_of(write_evaluated(tmp_path / "alike"))])
    assert [row["Setting"] for row in alike.rows][:2] == ["REAL (3 runs)", "GRPO (3 runs)"]
    markdown = table_forms.to_markdown(alike)  # DisCO's row that the paper leaves out, the paper's best, an ablation
    assert all(number in markdown for number in ("0.620 ± 0.006", "0.533", "0.632", "0.514", "max tokens = 8192"))
    other = write_evaluated(tmp_path / "other", grpo={"max_new_tokens": 32768})
    ours = [row["Block"] for row in benchmarks.benchmarks([task_of(other)]).rows]
    assert "max tokens = 8192" in ours[0] and "max tokens = 32768" in ours[1]


def test_the_average_needs_all_six_benchmarks_and_is_of_no_other(tmp_path):
    names = ("aime24", "aime25", "math500", "amc23", "minerva", "olympiadbench")
    six = {name: (0.1 * place, 0.01) for place, name in enumerate(names, 1)}
    invented.write_evaluation(invented.write_run(tmp_path, "real", 1), **six, seventh=(0.9, 0.01))
    invented.write_evaluation(invented.write_run(tmp_path, "grpo", 1), **{name: six[name] for name in names[:5]})
    real, grpo = (benchmarks.benchmark_estimates(setting) for setting in task_of(tmp_path).methods)
    assert real["average"].mean == pytest.approx(0.35)
    assert real["average"].se == pytest.approx(math.sqrt(6) * 0.01 / 6)  # independent errors over problems
    assert "average" not in grpo
    table = {row["Setting"]: row for row in rows(benchmarks.benchmarks([task_of(tmp_path)]))}
    assert {name for name, row in table.items() if row["seventh"]} == {"REAL (1 run)"}  # of the paper there is none


# What is compared with what


def test_runs_that_broke_off_are_shown_but_not_averaged(tmp_path):
    invented.write_run(tmp_path, "real", 1)
    invented.write_run(tmp_path, "real", 2)
    invented.write_run(tmp_path, "real", 3, steps=7, status="failed")
    invented.write_run(tmp_path, "real", 4, steps=7, status="running", host="elsewhere")
    (row,) = tables.results(task_of(tmp_path)).rows
    assert row["Runs"] == "2; 1 failed, not averaged; 1 running, not averaged"
    assert row["Step"] == "20"
    drawn = figures.dynamics(task_of(tmp_path), tmp_path / "dynamics.png")
    assert set(drawn["runs"]) == {2} and drawn["step"].max() == 20


def test_settings_differ_by_their_flags_and_not_by_seeds(tmp_path):
    for seed in (1, 2):
        invented.write_run(tmp_path, "real", seed)
        invented.write_run(tmp_path, "real", seed, flags={"--algo.real.tau": 0.1}, name=f"cold-{seed}")
        invented.write_run(tmp_path, "real", seed, flags={"--algo.real.uniform_groups": "keep"}, name=f"keep-{seed}")
        invented.write_run(tmp_path, "grpo", seed)
    invented.write_run(tmp_path, "real", 1, flags={"--algo.real.kl_old_coef": 0.001}, name="near-1")
    invented.write_run(tmp_path, "grpo", 1, flags={"--actor.adam.lr": 2e-4}, name="fast-1")
    changed = [{"--actor.adam.lr": 2e-4}]  # at a resume
    invented.write_run(tmp_path, "grpo", 3, earlier_flags=changed, name="slowed-3")
    for seed, sha in ((1, "aaaaaaa"), (2, "aaaaaaa"), (3, "bbbbbbb")):  # files of one name, told apart by their text
        flags, file = {"--algo.real.objective": f"folder-{seed}/mine.py:mine"}, {f"folder-{seed}/mine.py": sha}
        invented.write_run(tmp_path, "real", seed, flags=flags, objective=file, name=f"own-{seed}")
    task = task_of(tmp_path)
    assert {setting.label: len(setting.runs) for setting in task.methods} == {
        "REAL": 2,
        "REAL, KL to old policy 0.001": 1,
        "REAL, τ = 0.1": 2,
        "REAL, uniform groups: keep": 2,
        "objective mine.py:mine, file aaaaaa": 2,
        "objective mine.py:mine, file bbbbbb": 1,
        "GRPO, lr 1e-4": 2,
        "GRPO, lr 2e-4": 1,
        "GRPO, lr 0.0002, then 0.0001": 1,
    }


def test_a_run_that_is_named_after_a_flags_value_keeps_that_flag(tmp_path):
    for scheduler in ("cosine", "constant"):
        flags = {"--actor.lr_scheduler": scheduler, "--train.run_dir": f"runs/{scheduler}"}
        invented.write_run(tmp_path, "real", 1, flags=flags, name=scheduler)
    labels = [setting.label for setting in task_of(tmp_path).methods]
    assert sorted(labels) == ["REAL, actor.lr_scheduler constant", "REAL, actor.lr_scheduler cosine"]


def test_different_tasks_never_share_a_figure(tmp_path):
    invented.write_run(tmp_path, "real", 1)
    invented.write_run(tmp_path, "real", 2, data={"train.jsonl": "6f"}, name="other-data")
    invented.write_run(tmp_path, "real", 3, flags={"--actor.model_name_or_path": "tiny-7/model"}, name="other-model")
    invented.write_run(tmp_path, "real", 4, recipe="qwen7b", name="other-recipe")
    invented.write_run(tmp_path, "real", 5, starting_weights="5e" * 32, name="other-weights")
    known = tasks(read_runs([tmp_path])[0])
    assert [len(task.runs) for task in known] == [1] * 5
    assert sorted(task.name for task in known) == [
        "sums (cpu), model tiny-7/model",
        "sums (cpu), model unknown, weights 5e5e5e",
        "sums (cpu), model unknown, weights unknown, data 5e",
        "sums (cpu), model unknown, weights unknown, data 6f",
        "sums (qwen7b)",
    ]


def test_the_command_of_a_run_is_that_of_its_training_and_can_be_pasted(tmp_path):
    words = ["--recipe", "cpu", "--data-dir", "/my data", "--train.seed", "1"]
    typed = ["real-openrlhf", "train", "--run-name", "mine", "--resume"]
    invented.write_run(tmp_path, "real", 1, words=words, command=typed)
    invented.write_run(tmp_path, "real", 2, command=typed)  # an older record has no words
    commands = [row["Command"] for row in tables.runs([task_of(tmp_path)]).rows]
    whole = "real-openrlhf train --recipe cpu --data-dir '/my data' --train.seed 1"
    assert commands == [whole, "real-openrlhf train --run-name mine --resume"]
    lines = ["real-openrlhf train", "--recipe cpu", "--data-dir '/my data'", "--train.seed 1"]  # of a narrow page
    assert page.pieces(whole) == lines and page.pieces("REAL, lr 1e-4") == ["REAL,", "lr 1e-4"]


def test_a_run_that_died_unseen_is_shown_as_such_without_the_line_that_the_kill_tore(tmp_path, monkeypatch):
    folder = invented.write_run(tmp_path, "real", 1, status="running")
    (folder / "metrics.jsonl").write_text((folder / "metrics.jsonl").read_text()[:-9])
    run = read_run(folder)
    assert run.status == "failed" and not run.counted and "died after step" in run.meta["reason"]
    # five seconds of drawing; other tests look at it
    monkeypatch.setattr("real_openrlhf.report.page.write", lambda *_: tmp_path)
    assert main(["report", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"  # now everybody can see it


def test_the_curves_of_one_run_take_paths_as_text(tmp_path):
    folder = invented.write_run(tmp_path)
    picture = figures.training_curves(str(folder), str(tmp_path / "curves.png"))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_log_with_rewards_alone_has_a_pass_rate(tmp_path):
    """As that of examples/tinker."""
    folder = invented.write_run(tmp_path, "real", 1)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("rollout/pass_rate", None)
    lines += [{"phase": "train", "step": 99, "rollout/reward_mean": 0.25}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert training(read_run(folder), tables.TRAINING["Pass rate"]).iloc[-1] == 0.25
