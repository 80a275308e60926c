"""The report: its numbers against a few independent lines, what it refuses to claim, and folders that are no runs."""

import csv
import io
import json
import math
import random
import re
import runpy
import statistics
from pathlib import Path

import invented_runs as invented
import numpy as np
import pandas as pd
import pytest

from real_openrlhf.cli import main
from real_openrlhf.comparison import publish
from real_openrlhf.data.benchmarks import BENCHMARKS, Benchmark, HubDataset
from real_openrlhf.report import benchmarks, drawing, figures, page, table_forms, tables
from real_openrlhf.report.curves import REWARD, VALIDATION, band, curve, validation_sets, windowed
from real_openrlhf.report.differences import differences, sentence
from real_openrlhf.report.drawing import METHODS
from real_openrlhf.report.read_runs import guess_algo, guess_seed, read_run, read_runs
from real_openrlhf.report.settings import compare
from real_openrlhf.report.statistics import Estimate, clear_winner


def comparison(*folders: Path):
    """The one task of these runs."""
    (task,) = compare(read_runs(folders)[0])
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


@pytest.fixture(scope="module")
def ten_page(ten, tmp_path_factory):
    return page_of(ten, tmp_path_factory.mktemp("page"))


def shown(table: table_forms.Table) -> str:
    """The page with this table alone."""
    return page.render([], [], table, [])


# -------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("algo", "label"), [("real", "REAL"), ("grpo", "GRPO"), ("real_bce", "REAL with BCE"), ("dapo", "DAPO")]
)
def test_numbers_equal_those_recomputed_from_metrics_jsonl(ten, algo, label):
    logs = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(ten.glob(f"cpu-{algo}-s*/metrics.jsonl"))
    ]

    def mean_and_error(values):
        return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None

    (final,) = [row for row in rows(tables.results(comparison(ten))) if row["Setting"] == label]
    assert final["Rate"] == "0.0001"
    last_tenth = [[row["rollout/reward_mean"] for row in log if row["phase"] == "train"][-2:] for log in logs]
    for column, values in {
        "Validation pass@1": [log[-1]["eval_sums_pass1"] for log in logs],
        "Training reward": [statistics.mean(tail) for tail in last_tenth],
    }.items():
        mean, error = mean_and_error(values)
        assert float(final[column]) == pytest.approx(mean)
        assert final[f"{column} SE"] == "" if error is None else float(final[f"{column} SE"]) == pytest.approx(error)

    drawn = figures.dynamics(comparison(ten)).rows + figures.ablation(comparison(ten)).rows
    for metric, key, phase in (("entropy", "entropy_loss", "train"), ("validation_pass1", "eval_sums_pass1", "eval")):
        points = {row[2]: row[3:] for row in drawn if row[:2] == (label, metric)}
        steps = [row["step"] for row in logs[0] if row["phase"] == phase]
        assert sorted(points) == steps
        for step in steps:
            values = [row[key] for log in logs for row in log if (row["phase"], row["step"]) == (phase, step)]
            mean, error = mean_and_error(values)
            assert points[step][:2] == (len(logs), pytest.approx(mean))
            assert math.isnan(points[step][2]) if error is None else points[step][2] == pytest.approx(error)


def test_table_1_is_the_mean_over_steps_weighted_by_share(ten):
    table = {(row["Block"], row["Method"]): row["> 1+ε"] for row in rows(tables.ratios(comparison(ten)))}
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


def ramp(*steps: int) -> pd.Series:
    """A curve whose value is its step."""
    return pd.Series([float(step) for step in steps], index=steps)


def test_long_curves_are_means_over_whole_windows():
    short = windowed(ramp(*range(1, 251)), 3)
    assert short.to_dict() == {step: step - 1 for step in range(3, 250, 3)}
    sparse = windowed(ramp(*range(5, 251, 5)), 10)  # logged every 5 steps
    assert sparse.to_dict() == {step: step - 2.5 for step in range(10, 251, 10)}
    uneven = windowed(ramp(*range(2, 15, 2)), 3)  # one value, two, one, two
    assert uneven.to_dict() == {3: 2, 6: 5, 9: 8, 12: 11, 15: 14}


def test_runs_of_two_machines_are_told_apart(tmp_path):
    cpu = {"cpu": "A", "instructions": "avx2", "gpus": ""}
    for seed in (1, 2, 4, 5):
        invented.write_run(tmp_path, "real", seed, machine=cpu)
        invented.write_run(tmp_path, "grpo", seed, machine=cpu)
    assert not tables.results(comparison(tmp_path)).warnings
    invented.write_run(
        tmp_path, "real", 3, machine=cpu, earlier_places=[{"machine": {**cpu, "cpu": "B"}}]
    )  # it was resumed
    (warning,) = tables.results(comparison(tmp_path)).warnings
    assert "of 2 machines (A (avx2); B (avx2))" in warning
    rows = differences(comparison(tmp_path)).rows
    assert rows[0]["Runs"] == "4"  # REAL's fifth run is of no block that GRPO has


def test_a_mean_rests_on_steps_that_every_run_has():
    one, two = ramp(1, 2, 3), pd.Series({1: 3.0, 2: 4.0, 4: 9.0})
    mean = band([one, two])
    assert mean["mean"].to_dict() == {1: 2.0, 2: 3.0}
    assert mean["se"].tolist() == pytest.approx([1.0, 1.0])
    assert band([one, ramp(7)]) is None


def test_validation_is_the_mean_over_the_sets_that_all_runs_have(tmp_path):
    for seed, keys in ((1, ("a", "b", "c")), (2, ("a", "b"))):
        scores = {f"eval_{key}_pass1": 0.1 * (ord(key) - 96) for key in keys}
        log = [{"phase": "train", "step": 20, "entropy_loss": 1.0}, {"phase": "eval", "step": 20, **scores}]
        invented.write_lines(invented.write_run(tmp_path, "real", seed), log)
    task = comparison(tmp_path)
    sets = validation_sets(task.runs)
    assert sets == ("a", "b")
    assert curve(task.settings[0], VALIDATION, sets).band["mean"].tolist() == pytest.approx([0.15])


def test_final_numbers_are_taken_where_all_runs_have_one(tmp_path):
    for seed, evaluations in ((1, {10: 0.1, 20: 0.2, 30: 0.9}), (2, {10: 0.3, 20: 0.4, 25: 0.9})):
        log = [{"phase": "eval", "step": step, "eval_sums_pass1": score} for step, score in evaluations.items()]
        invented.write_lines(invented.write_run(tmp_path, "real", seed), log)
    (row,) = rows(tables.results(comparison(tmp_path)))
    assert (row["Step"], float(row["Validation pass@1"])) == ("20", pytest.approx(0.3))


def test_numbers_of_right_and_wrong_answers_are_those_of_the_rows_own_step(tmp_path):
    for seed, wrong in ((1, {7: 9.0}), (2, {7: 9.0, 29: 5.0, 30: 3.0})):  # the first has no wrong answer later
        log = [{"phase": "eval", "step": 30, "eval_x_pass1": 0.5}]
        log += [{"phase": "train", "step": step, "rollout/response_length_wrong": n} for step, n in wrong.items()]
        invented.write_lines(invented.write_run(tmp_path, "real", seed), log)
    (row,) = rows(tables.results(comparison(tmp_path)))
    assert (row["Step"], float(row["Length, wrong answers"])) == ("30", pytest.approx(4.0))


def test_a_fast_learner_is_told_from_a_slow_one_that_ends_as_high_and_unlike_clipping_is_said(tmp_path):
    curves = {"real": (0.9, 0.0, 0.1, 0.5, 0.9), "real_constant": (0.1, 0.0, 0.8, 0.85, 0.9)}
    for algo, (clipped, *values) in curves.items():
        for seed in (1, 2, 3):
            evaluations = enumerate(values if seed < 3 or algo == "real" else values[:2] + [0.2, 0.3])
            log = [{"phase": "eval", "step": 10 * n, "eval_x_pass1": value} for n, value in evaluations]
            scores = {"real/score_std": 0.02, "real/weight_bound": 0.6, "real/weight_abs_max": 6.0}  # tau 0.1
            log.append({"phase": "train", "step": 30, "update/clipped_share": clipped, **scores})
            invented.write_lines(invented.write_run(tmp_path, algo, seed), log)
    table = tables.results(comparison(tmp_path))
    found = {row["Setting"]: row for row in rows(table)}
    real, fast = found["REAL"], found["REAL, constant weights"]
    assert float(real["Mean over training"]) == pytest.approx(0.5) and real["Steps to 0.80"] == "30"
    assert (
        float(fast["Mean over training"]) == pytest.approx((2 * 0.85 + 1.3 / 3) / 3) and fast["Steps to 0.80"] == "10"
    )
    assert float(real["z"]) == pytest.approx(0.2)
    assert [one[:66] for one in table.warnings] == [
        "Unfair clipping: the clipped shares of two settings differ by 0.80"
    ]
    said = shown(table)
    assert "<p class=warn><strong>Warning.</strong> Unfair" in said and "<code>--actor.max_norm 100</code>" in said


def test_a_resumed_run_counts_each_step_once(tmp_path):
    folder = invented.write_run(tmp_path, "real", 1)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"phase": "train", "step": 20, "rollout/reward_mean": 0.125}) + "\n")
    reward = read_run(folder).logged["train"]["rollout/reward_mean"]
    assert len(reward) == 20 and reward[20] == 0.125


def test_a_campaign_is_read_as_the_run_folders_that_it_is_made_of(ten, tmp_path):
    invented.publish(sorted(ten.iterdir()), tmp_path / "ten")
    invented.write_run(tmp_path, "gspo", 1)  # beside it, in the same folder of many
    found, skipped = read_runs([tmp_path])
    assert len(found) == 11 and not skipped
    records = {run.name: run.meta for run in found}
    assert all(records[run.name] == run.meta for run in read_runs([ten])[0])
    for table in (tables.results, tables.ratios):
        assert rows(table(comparison(tmp_path / "ten"))) == rows(table(comparison(ten)))


def test_a_part_of_a_campaign_is_read_alone(ten, tmp_path):
    named = {f"{part}/{run.name}": run for part in ("one", "two") for run in read_runs([ten])[0] if run.seed == 1}
    lines = {name: [{"phase": "train", "step": 1, "loss": len(name)}] for name in named}
    publish.write(tmp_path / "both", {name: dict(run.meta) for name, run in named.items()}, lines, {})
    (found, _), (both, _) = read_runs([tmp_path / "both" / "two"]), read_runs([tmp_path / "both"])
    assert {run.name: run.meta for run in found} == {
        run.name: run.meta for name, run in named.items() if "two" in name
    }
    assert len(both) == 2 * len(found) and {run.name for run in both} == named.keys()
    assert "has no runs three/" in read_runs([tmp_path / "both" / "three"])[1][0][1]


# -------------------------------------------------------------------------------------------------- Figure 1


def test_figure_one_is_the_papers_formula():
    """tau 0.5 and C = 4 for REAL; clipping 0.2 and advantage 1 for GRPO."""
    script = Path(__file__).resolve().parents[2] / "examples/results/gradient_magnitude.py"
    figure_one = runpy.run_path(str(script))["figure_one"]
    for label, sign in ((1, 1), (0, -1)):
        curves = figure_one(label)
        assert curves.real == pytest.approx(2 / (1 + 4 * np.exp(sign * curves.scores / 0.5)))
        ratio = np.exp(curves.scores)
        clipped = ratio > 1.2 if label == 1 else ratio < 0.8
        assert curves.grpo == pytest.approx(np.where(clipped, 0, ratio))


# ------------------------------------------------------------------------------------------------ honesty


def test_only_a_lead_of_two_standard_errors_is_a_win():
    assert clear_winner([Estimate(0.60, 0.01, 5), Estimate(0.50, 0.01, 5)]) == 0
    assert clear_winner([Estimate(0.50, 0.03, 5), Estimate(0.59, 0.04, 5)]) is None  # less than 2 x 0.05
    assert clear_winner([Estimate(0.50, 0.03, 5), Estimate(0.61, 0.04, 5)]) == 1
    # the runner-up is beaten, but a row further down is too uncertain to be
    assert clear_winner([Estimate(0.60, 0.001, 5), Estimate(0.50, 0.001, 5), Estimate(0.40, 0.2, 2)]) is None
    assert clear_winner([Estimate(0.60, 0.01, 5), Estimate(0.50, math.nan, 1)]) is None
    assert clear_winner([Estimate(0.60, 0.01, 5), None]) is None
    assert clear_winner([Estimate(0.60, 0.0, 3), Estimate(0.60, 0.0, 3)]) is None
    assert clear_winner([Estimate(0.60, 0.001, 2), Estimate(0.50, 0.001, 5)]) is None  # two seeds rank nothing


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


def test_bold_follows_that_rule_and_never_a_published_number(tmp_path):
    table = benchmarks.benchmarks([comparison(write_evaluated(tmp_path))])
    markdown = table_forms.to_markdown(table)
    assert re.findall(r"\*\*([^*]+)\*\*", markdown)[1:] == ["0.620 ± 0.006"]  # the first is the title
    assert re.findall(r'<td class="best">([^<]*)', shown(table)) == ["0.620 ± 0.006"]
    # DisCO's row that the paper leaves out, the paper's best, and one of its ablations
    assert all(number in markdown for number in ("0.533", "0.632", "0.514"))


def test_scores_of_different_protocols_do_not_compete(tmp_path):
    table = benchmarks.benchmarks([comparison(write_evaluated(tmp_path, grpo={"max_new_tokens": 32768}))])
    assert not any(map(table_forms.is_bold, (cell for row in table.rows for cell in row.values())))
    ours = [row["Method"] for row in table.rows]
    assert "max tokens = 8192" in ours[0] and "max tokens = 32768" in ours[1]


def test_the_average_needs_all_six_benchmarks(tmp_path):
    names = ("aime24", "aime25", "math500", "amc23", "minerva", "olympiadbench")
    six = {name: (0.1 * place, 0.01) for place, name in enumerate(names, 1)}
    invented.write_evaluation(invented.write_run(tmp_path, "real", 1), **six)
    invented.write_evaluation(invented.write_run(tmp_path, "grpo", 1), **dict(list(six.items())[:5]))
    real, grpo = (benchmarks.benchmark_estimates(setting) for setting in comparison(tmp_path).settings)
    assert real["average"].mean == pytest.approx(0.35)
    assert real["average"].se == pytest.approx(math.sqrt(6) * 0.01 / 6)  # independent errors over problems
    assert "average" not in grpo


def test_a_seventh_benchmark_has_no_number_of_the_paper_and_leaves_the_average_alone(tmp_path, monkeypatch):
    folder = invented.write_run(tmp_path, "real", 1)
    invented.write_evaluation(folder, **dict.fromkeys(BENCHMARKS, (0.3, 0.01)), seventh=(0.9, 0.01))
    six = {row["Method"]: row["Avg."] for row in rows(benchmarks.benchmarks([comparison(tmp_path)]))}
    seventh = Benchmark("seventh", "Seventh", 10, HubDataset("some/one", "test"), "seventh")
    monkeypatch.setitem(BENCHMARKS, "seventh", seventh)
    everything = {row["Method"]: row for row in rows(benchmarks.benchmarks([comparison(tmp_path)]))}
    assert {name: row["Avg."] for name, row in everything.items()} == six
    assert float(everything["REAL (1 run)"]["Avg."]) == pytest.approx(0.3)
    assert {name for name, row in everything.items() if row["Seventh"]} == {"REAL (1 run)"}


def test_gains_are_over_grpo_problem_by_problem(tmp_path):
    """REAL is better by a quarter on each problem, whatever the problem; the interval says so."""
    dice = random.Random(0)
    hard = [dice.choice((0.0, 0.25, 0.5)) for _ in range(40)]
    for algo, gain in (("grpo", 0.0), ("real", 0.25)):
        for seed in (1, 2):
            out = invented.write_run(tmp_path, algo, seed) / "eval"
            invented.write_evaluation(out.parent, aime24=(sum(hard) / 40 + gain, 0.02))
            lines = [
                {"benchmark": "aime24", "id": str(n), "label": "1", "pass@1": score + gain}
                for n, score in enumerate(hard)
            ]
            (out / "per_problem.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = benchmarks.gains(comparison(tmp_path)).rows
    assert row == {"Method": "REAL", "AIME24": "+0.250 (+0.250 to +0.250)"} and row["AIME24"].bold


def test_missing_methods_are_named(ten):
    task = comparison(ten)
    labels = [entry.label for entry in figures.dynamics(task).legend + figures.ablation(task).legend]
    assert "GSPO: no run" in labels and "REAL without anchor: no run" in labels


def test_runs_that_broke_off_are_shown_but_not_averaged(tmp_path):
    invented.write_run(tmp_path, "real", 1)
    invented.write_run(tmp_path, "real", 2)
    invented.write_run(tmp_path, "real", 3, steps=7, status="failed")
    task = comparison(tmp_path)
    drawn = curve(task.settings[0], REWARD)
    assert len(drawn.runs) == 2 and drawn.band.index[-1] == 20
    assert [single.index[-1] for single in drawn.singles] == [7]
    assert figures.dynamics(task).legend[0].label == "REAL (2 runs; 1 failed, not averaged)"
    assert tables.results(task).rows[0]["Mean over training"].n == 2


def test_a_finished_run_that_was_copied_in_part_is_left_out(tmp_path):
    every = {"--train.max_steps": 20, "--logger.logging_steps": 1}
    for name, flags in {"whole": {}, "hopeless": {"--train.hopeless": "end"}, "cut": {}}.items():
        folder = invented.write_run(tmp_path, name=name, flags=every | flags)
        if name != "whole":
            log = (folder / "metrics.jsonl").read_text()
            (folder / "metrics.jsonl").write_text("".join(log.splitlines(keepends=True)[:9]))
    found, ((skipped, reason),) = read_runs([tmp_path])
    assert {run.name for run in found} == {"whole", "hopeless"} and skipped.name == "cut"
    assert "ends at step 8 of 20" in reason and "Copy the folder again" in reason


def test_nothing_is_drawn_across_missing_steps(tmp_path):
    from matplotlib.figure import Figure

    folder = invented.write_run(tmp_path, "real", 1, steps=30)
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = [row for row in log if not (row["phase"] == "train" and 10 < row["step"] < 20)]
    invented.write_lines(folder, kept)
    axes = Figure().add_subplot()
    panel = next(p for p in figures.dynamics(comparison(folder)).panels if p.title == REWARD.title)
    panel.draw(axes)
    x = axes.lines[0].get_xdata()
    (hole,) = np.flatnonzero(np.isnan(x))
    assert (x[hole - 1], x[hole + 1]) == (10, 20)


# ---------------------------------------------------------------------------------- what is compared with what


def test_settings_are_told_apart_by_their_knobs_and_seeds_are_not(tmp_path):
    for seed in (1, 2):
        invented.write_run(tmp_path, "real", seed)
        invented.write_run(tmp_path, "real", seed, flags={"--algo.real.tau": 0.1}, name=f"cold-{seed}")
        invented.write_run(tmp_path, "real", seed, flags={"--algo.real.uniform_groups": "keep"}, name=f"keep-{seed}")
        invented.write_run(tmp_path, "grpo", seed)
    invented.write_run(tmp_path, "real", 1, flags={"--algo.real.kl_old_coef": 0.001}, name="near-1")
    invented.write_run(tmp_path, "grpo", 1, flags={"--actor.adam.lr": 2e-4}, name="fast-1")
    task = comparison(tmp_path)
    assert {setting.label: len(setting.runs) for setting in task.settings} == {
        "REAL": 2,
        "REAL, KL to old policy 0.001": 1,
        "REAL, τ = 0.1": 2,
        "REAL, uniform groups: keep": 2,
        "GRPO, actor.adam.lr 0.0001": 2,
        "GRPO, actor.adam.lr 0.0002": 1,
    }


def test_objectives_of_one_name_are_told_apart_by_their_text(tmp_path):
    for seed, sha in ((1, "aaaaaaa"), (2, "aaaaaaa"), (3, "bbbbbbb")):
        flags = {"--algo.real.objective": f"folder-{seed}/mine.py:mine"}
        invented.write_run(tmp_path, "real", seed, flags=flags, objective={f"folder-{seed}/mine.py": sha})
    assert {setting.label: len(setting.runs) for setting in comparison(tmp_path).settings} == {
        "objective mine.py:mine, file aaaaaa": 2,
        "objective mine.py:mine, file bbbbbb": 1,
    }


def test_a_seed_counts_once_and_what_cannot_be_compared_is_named(tmp_path):
    cpu = {"cpu": "A", "instructions": "avx2", "gpus": ""}
    for seed in (1, 2, 3, 4):
        invented.write_run(tmp_path, "real", seed, machine=cpu)
        invented.write_run(tmp_path, "grpo", seed, machine=cpu)
    invented.write_run(tmp_path, "gspo", 1, machine=cpu)
    before = differences(comparison(tmp_path)).rows
    invented.write_run(tmp_path, "real", 1, machine=cpu, name="again-s1")
    assert differences(comparison(tmp_path)).rows == before
    (warning,) = tables.results(comparison(tmp_path)).warnings
    assert warning.startswith("1 run repeats a seed of their setting on the same machine, such as ")
    named = "Fewer than three runs beside it, so not compared: GSPO."
    assert named in differences(comparison(tmp_path)).notes and sentence(comparison(tmp_path)).endswith(named)
    invented.write_run(tmp_path, "grpo", 5, machine=cpu, status="failed", reason="interrupted by SIGINT")
    assert not any(row["Block"] == "Runs lost" for row in differences(comparison(tmp_path)).rows)
    invented.write_run(tmp_path, "grpo", 6, machine=cpu, status="failed", reason="out of memory")
    assert any(row["Block"] == "Runs lost" for row in differences(comparison(tmp_path)).rows)


@pytest.mark.filterwarnings("error")
def test_long_names_of_settings_fit_the_figures(tmp_path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    long = {f"--train.some_flag_with_a_long_name_{place}": place for place in range(9)}
    for seed in (1, 2, 3):
        invented.write_run(tmp_path, "real", seed)
        invented.write_run(tmp_path, "real", seed, flags=long, name=f"long-s{seed}")
    for make in (figures.dynamics, figures.forest):
        figure = drawing._whole(make(comparison(tmp_path)))
        FigureCanvasAgg(figure).draw()
        texts = [*figure.legends[0].get_texts(), *(text for axes in figure.axes for text in axes.texts)]
        assert any("some_flag" in text.get_text() for text in texts)
        for box in (text.get_window_extent() for text in texts):
            assert 0 <= box.x0 and box.x1 <= figure.bbox.width and 0 <= box.y0, make.__name__


def test_what_an_earlier_report_left_is_named(tmp_path, capsys):
    invented.write_run(tmp_path / "runs", "real", 1)
    words = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(words) == 0 and main(words) == 0
    assert "not of this report" not in capsys.readouterr().out
    (tmp_path / "out" / "tables" / "older.md").touch()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "not of this report: 1 file in figures/ and tables/, such as" in said and "older.md" in said


def test_settings_that_ended_at_other_steps_are_said(tmp_path):
    for seed in (1, 2, 3):
        invented.write_run(tmp_path, "real", seed)
        invented.write_run(tmp_path, "grpo", seed, steps=10)
    (warning,) = tables.results(comparison(tmp_path)).warnings
    assert "ended at steps 10, 20" in warning


def test_different_tasks_never_share_a_figure(tmp_path):
    invented.write_run(tmp_path, "real", 1)
    invented.write_run(tmp_path, "real", 2, data={"train.jsonl": "another"}, name="other-data")
    invented.write_run(tmp_path, "real", 3, flags={"--actor.model_name_or_path": "tiny-7/model"}, name="other-model")
    invented.write_run(tmp_path, "real", 4, recipe="qwen7b", name="other-recipe")
    tasks = compare(read_runs([tmp_path])[0])
    assert len({task.name for task in tasks}) == 4
    assert [len(task.runs) for task in tasks] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "algo", "seed"),
    [
        ("grpo-seed3", "grpo", 3),
        ("cpu-real_no_anchor-s12", "real_no_anchor", 12),
        ("REAL-BCE_seed=2", "real_bce", 2),
        ("ppo_1121T02:36", "ppo_1121t02_36", None),
        ("dapo17k-gspo-s1", "gspo", 1),
    ],
)
def test_a_plain_log_is_known_by_its_folder(name, algo, seed):
    assert (guess_algo(name), guess_seed(name)) == (algo, seed)


def test_a_plain_tensorboard_log_gives_the_same_curves(tmp_path):
    """The method and seed come from the folder's name, the numbers from the events."""
    logged = read_run(invented.write_run(tmp_path / "ours", "grpo", 2)).logged
    plain = read_run(invented.write_events(tmp_path / "tb" / "grpo-seed2", "grpo", 2))
    assert (plain.algo, plain.seed, plain.status) == ("grpo", 2, "unknown")
    for phase, key in (("train", "entropy_loss"), ("train", "rollout/reward_mean"), ("eval", "eval_sums_pass1")):
        ours, theirs = logged[phase][key], plain.logged[phase][key]
        assert theirs.dropna().to_dict() == pytest.approx(ours.dropna().to_dict(), rel=1e-6)  # events are float32
    invented.write_run(tmp_path / "ours", "real", 1)
    task = comparison(tmp_path / "ours", tmp_path / "tb")
    finals = {row["Setting"]: row for row in rows(tables.results(task))}
    assert set(finals) == {"REAL", "GRPO", "GRPO, plain log"}
    assert finals["GRPO, plain log"]["All-solved ratio"] == ""
    assert "All-solved ratio: not logged by GRPO, plain log." in figures.dynamics(task).caption
    assert "<td class=words>plain log</td>" in page.render([task], [], tables.results(task), [])


def test_a_tensorboard_log_that_ends_inside_a_record_is_read_up_to_there(tmp_path):
    (events,) = invented.write_events(tmp_path / "grpo-seed1", "grpo", 1).iterdir()
    events.write_bytes(events.read_bytes()[:-5])
    run = read_run(tmp_path / "grpo-seed1")
    assert len(run.logged["train"]["entropy_loss"]) == 20 and len(run.logged["eval"]["eval_sums_pass1"]) == 2


def test_a_run_that_died_unseen_is_shown_as_such_without_the_line_that_the_kill_tore(tmp_path, monkeypatch):
    folder = invented.write_run(tmp_path, "real", 1, status="running")
    (folder / "metrics.jsonl").write_text((folder / "metrics.jsonl").read_text()[:-9])
    run = read_run(folder)
    assert run.status == "failed" and not run.counted and "died after step" in run.meta["reason"]
    # five seconds of drawing; other tests look at it
    monkeypatch.setattr("real_openrlhf.report.page.write", lambda *_: tmp_path)
    assert main(["report", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"  # now everybody can see it


# ------------------------------------------------------------------------------------------- folders that are no runs


# --------------------------------------------------------------------------------------------------------- forms


def page_of(root: Path, out: Path) -> str:
    assert main(["report", str(root), "--out", str(out)]) == 0
    return (out / "index.html").read_text()


def test_the_page_begins_with_what_it_shows_and_what_the_runs_say(ten, ten_page, tmp_path):
    for tag in ("<h1>", "<title>REAL report: "):
        assert f"{tag}REAL, REAL with BCE, GRPO and DAPO</" in ten_page
    assert '<h2 id="task-1">Task: sums (cpu)</h2>\n<p><strong>By the mean over training. ' in ten_page
    alone = page_of(ten / "cpu-grpo-s1", tmp_path / "alone")
    assert "<h1>Run cpu-grpo-s1</h1>" in alone and "<strong>GRPO: held-out pass@1 is 0.5" in alone


def test_a_figure_is_not_shown_twice(ten, tmp_path):
    assert figures.ablation(comparison(ten)) is not None
    assert figures.ablation(comparison(invented.write_run(tmp_path, "real", 1))) is None


def test_wide_tables_can_be_scrolled_by_keys(ten_page):
    assert ten_page.count("class=scroll") == ten_page.count('class=scroll tabindex=0 role=region aria-label="') > 3


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_verdicts_can_be_read_in_both_modes_and_the_page_can_be_printed(place):
    css = (Path(page.__file__).with_suffix(".css")).read_text()
    names = {name: re.findall(rf"--{name}: (#\w{{6}})", css)[place] for name in ("paper", "good", "bad")}
    for verdict in ("good", "bad"):
        low, high = sorted(map(luminance, (names[verdict], names["paper"])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, names
    assert "@media print" in css and ".scroll { overflow: visible" in css


def test_methods_are_told_apart_with_and_without_colour():
    for part in ("colour", "marker", "label"):
        assert len({getattr(method, part) for method in METHODS.values()}) == len(METHODS)
