"""Maps over two flags, and differences: cells, a figure that is read without colour, and honest verdicts."""

import json
import math
import re

import pytest
from invented_runs import map_run, map_runs, write_lines, write_run

from real_openrlhf.report.curves import VALIDATION, curve
from real_openrlhf.report.differences import differences, sentence
from real_openrlhf.report.maps import cells, heat_maps
from real_openrlhf.report.maps import differences as in_cells
from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.settings import compare
from real_openrlhf.report.statistics import difference, fisher, holm, student_quantile, two_sided
from real_openrlhf.report.tables import results

ACROSS = ("--actor.adam.lr", "--train.batch_size")


@pytest.fixture
def runs(tmp_path):
    return map_runs(tmp_path / "runs")


def comparison(root):
    (found,) = compare(read_runs([root])[0], ACROSS)
    return found


def test_another_flag_that_varies_makes_another_map(runs):
    folder = map_run(runs, "real", 1e-4, 64, 3, [0.1, 0.2])
    record = json.loads((folder / "run.json").read_text())
    record["flags"]["--algo.real.tau"] = 0.1
    (folder / "run.json").write_text(json.dumps(record))
    assert [setting.label for setting in comparison(runs).settings] == ["REAL", "REAL, τ = 0.1", "GRPO"]


def drawn(panel):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    panel.draw(axes)
    return axes


def test_the_figure_says_the_numbers_and_the_collapses_in_words_and_has_one_scale(runs):
    picture = heat_maps(comparison(runs), ACROSS)
    real, grpo = map(drawn, picture.panels)
    assert {text.get_text() for text in real.texts} == {"0.85", "0.20\n✕ 1 of 2", "0.00\n✕ 1 of 1"}
    assert {text.get_text() for text in grpo.texts} == {"0.70", "0.30"}
    for axes in (real, grpo):
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0.0001", "0.001"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["16", "64", "256"]
    assert "one scale, 0 to 0.85" in picture.caption
    brightness = {}
    for axes in (real, grpo):
        colours = [patch.get_facecolor() for patch in axes.patches if patch.get_fill()]
        numbers = [float(text.get_text().split("\n")[0]) for text in axes.texts]
        brightness |= {number: sum(colour[:3]) for number, colour in zip(numbers, colours, strict=True)}
    by_number = [brightness[number] for number in sorted(brightness)]
    assert by_number == sorted(by_number, reverse=True)  # in grey too, darker is better, across panels
    frames = [patch for patch in real.patches if not patch.get_fill()]
    assert len(frames) == 2


def test_the_table_has_what_the_runs_logged(runs):
    table = cells(comparison(runs), ACROSS)
    assert table.columns == [
        *("actor.adam.lr", "train.batch_size", "Final pass@1", "Best pass@1", "Clipped updates", "Entropy, last step"),
        *("Spread of weights, largest", "Collapsed", "Runs"),
    ]
    rows = {(block, *row[:2]): [*map(str, row[2:])] for block, rows in table.blocks().items() for row in rows}
    assert rows["REAL", "0.001", "64"] == [
        *("0.200 ± 0.100", "0.400 ± 0.000", "0.375 ± 0.125", "0.250 ± 0.000", "0.100 ± 0.000", "1 of 2", "2"),
    ]
    assert rows["GRPO", "0.0001", "256"][-2:] == ["0 of 1", "1, 1 failed or unfinished"]


# Differences


def write(root, algo, ends, **record):
    for seed, end in ends.items():
        lines = [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": end} for step in (0, 2)]
        write_lines(write_run(root, algo, seed, 2, name=f"{algo}-{seed}-{record.get('machine')}", **record), lines)


def table(root):
    (found,) = compare(read_runs([root])[0])
    return differences(found)


@pytest.mark.parametrize(
    ("share", "freedom", "known"),
    [(0.975, 4, 2.776), (0.975, 1, 12.706), (0.995, 9, 3.250), (0.95, 30, 1.697), (0.975, 1000, 1.962)],
)
def test_quantiles_are_those_of_the_tables(share, freedom, known):
    assert student_quantile(share, freedom) == pytest.approx(known, abs=1e-3)
    assert two_sided(known, freedom) == pytest.approx(2 * (1 - share), rel=2e-3)


ONE, OTHER = [0.82, 0.85, 0.91, 0.79, 0.88], [0.71, 0.64, 0.80, 0.77]


def test_welch_is_that_of_scipy():
    """SciPy 1.17: scipy.stats.ttest_ind(ONE, OTHER, equal_var=False), and its confidence_interval(0.95)."""
    gap = difference({"": ONE}, {"": OTHER})
    assert (gap.mean, gap.freedom, gap.p) == pytest.approx((0.12, 5.057236602, 0.0329350718), rel=1e-7)
    assert gap.interval(0.95) == pytest.approx((0.01437197728, 0.22562802271), rel=1e-7)


def test_fisher_is_that_of_scipy_and_counts_inside_blocks():
    """SciPy 1.17: scipy.stats.fisher_exact([[8, 2], [1, 5]]) and ([[10, 0], [5, 5]])."""
    runs = {(lost, kept): [1.0] * lost + [0.0] * kept for lost, kept in ((8, 2), (1, 5), (10, 0), (5, 5))}
    assert fisher({"": runs[8, 2]}, {"": runs[1, 5]}) == pytest.approx(0.034965034965)
    assert fisher({"": runs[10, 0]}, {"": runs[5, 5]}) == pytest.approx(0.032507739938)
    machine = {"a": [1.0] * 5, "b": [0.0]}, {"a": [1.0], "b": [0.0] * 5, "c": [1.0]}
    assert fisher(*machine) == 1.0  # all losses are the machine's
    three, none = [1.0] * 3 + [0.0] * 2, [0.0] * 5
    assert fisher({"a": three}, {"a": none}) == pytest.approx(2 / 12)
    assert fisher({"a": three, "b": three}, {"a": none, "b": none}) == pytest.approx(2 / 12**2)
    assert fisher({"a": [1.0]}, {"b": [0.0]}) is None


def test_lost_runs_are_compared_and_one_that_failed_is_lost(tmp_path):
    curves = {"real": [0.1, 0.9], "grpo": [0.9, 0.1], "dapo": [0.1, 0.9]}  # all of GRPO collapse
    for algo, (start, end) in curves.items():
        for seed in range(1, 7):
            folder = write_run(tmp_path, algo, seed, 2, status="failed" if (algo, seed) == ("dapo", 6) else "finished")
            steps = enumerate((start, end + seed / 100))
            write_lines(folder, [{"phase": "eval", "step": n, "time": 1, "eval_x_pass1": x} for n, x in steps])
    found = table(tmp_path)
    rows = {row["Setting"]: row for row in found.rows if row["Block"] == "Runs lost"}
    assert rows["GRPO"]["Less REAL"] == "6 of 6, REAL 0 of 6"
    assert (rows["GRPO"]["p (Holm)"], rows["GRPO"]["It is"]) == ("0.004", "higher")  # 2 of 924, for two rows
    assert rows["DAPO"]["Less REAL"] == "1 of 6, REAL 0 of 6" and rows["DAPO"]["It is"] == "open"
    assert found.notes[-1].startswith("Lost: ")


def test_runs_of_two_machines_are_not_subtracted_from_each_other():
    """A machine that shifts both settings by 0.4 changes nothing; a mean over all runs would."""
    here, there = {"a": ONE}, {"a": OTHER}
    shifted = difference({**here, "b": [x + 0.4 for x in ONE[:2]]}, {**there, "b": [x + 0.4 for x in OTHER[:3]]})
    alone = [difference({"": ONE}, {"": OTHER}).mean, sum(ONE[:2]) / 2 - sum(OTHER[:3]) / 3]
    weights = [5 * 4 / 9, 2 * 3 / 5]
    assert shifted.mean == pytest.approx((weights[0] * alone[0] + weights[1] * alone[1]) / sum(weights))
    assert shifted.runs == (7, 7)
    assert difference({"a": ONE}, {"b": OTHER}) is None  # no block has both


def test_the_record_says_which_runs_are_one_block(tmp_path):
    """The second machine adds 0.3 to both methods, and ran more seeds of GRPO: a mean over all would say 0.1 more."""
    for machine, shift, seeds in (("a", 0.0, 3), ("b", 0.3, 6)):
        write(tmp_path, "real", {s: 0.4 + shift + s / 100 for s in range(1, 4)}, machine={"cpu": machine})
        write(tmp_path, "grpo", {s: 0.5 + shift + s % 3 / 100 for s in range(1, seeds + 1)}, machine={"cpu": machine})
    grpo = next(row for row in table(tmp_path).rows if row["Setting"] == "GRPO")
    assert str(grpo["Less REAL"]).startswith("0.090 ± ") and grpo["Runs"] == "9"


def test_holms_correction():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_the_detectable_difference_is_found_four_times_in_five():
    """Simulated, with three rows in all: the other two show nothing."""
    import numpy as np

    dice = np.random.default_rng(1)
    gap = difference({"": [-1.0, 0.0, 1.0] * 3}, {"": [-1.0, 0.0, 1.0] * 3})
    size, spread = gap.detectable(3), math.sqrt(3 / 4)
    found = sum(
        difference({"": dice.normal(size, spread, 9)}, {"": dice.normal(0, spread, 9)}).p < 0.05 / 3
        for _ in range(300)
    )
    assert 0.72 < found / 300 < 0.88


def test_verdicts_are_higher_level_and_open_and_the_main_endpoint_comes_first(tmp_path):
    write(tmp_path, "real", {1: 0.80, 2: 0.81, 3: 0.80, 4: 0.79})
    write(tmp_path, "grpo", {1: 0.90, 2: 0.91, 3: 0.89, 4: 0.90})
    write(tmp_path, "dapo", {1: 0.80, 2: 0.80, 3: 0.81, 4: 0.80})
    write(tmp_path, "gspo", {1: 0.9, 2: 0.5, 3: 0.95, 4: 0.7})
    found = table(tmp_path)
    assert [*found.blocks()] == ["Mean over training", "At the end"]
    rows = {row["Setting"]: row for row in found.rows if row["Block"] == "Mean over training"}
    assert {name: row["It is"] for name, row in rows.items()} == {"GRPO": "higher", "DAPO": "level", "GSPO": "open"}
    assert str(rows["GRPO"]["Less REAL"]) == "0.100 ± 0.006" and rows["GRPO"]["Runs"] == "4"
    assert float(rows["GSPO"]["Detectable"]) > 0.3  # what could have been seen
    said = sentence(compare(read_runs([tmp_path])[0])[0])
    assert "Above REAL: GRPO by +0.100." in said and "Level with REAL: DAPO" in said
    assert re.search(r"Cannot be told apart from REAL: GSPO\. A difference of 0\.\d\d would have shown\.$", said)


def test_fewer_than_three_runs_are_no_table_and_the_page_says_so(tmp_path):
    write(tmp_path, "real", {1: 0.5, 2: 0.5, 3: 0.5})
    write(tmp_path, "grpo", {2: 0.4, 3: 0.3})
    assert table(tmp_path) is None
    said = sentence(compare(read_runs([tmp_path])[0])[0])
    assert said == "Fewer than three runs a setting rank nothing. Mean over training: REAL 0.500, GRPO 0.350."


def test_in_a_map_each_cell_with_enough_runs_is_compared_and_all_rows_are_corrected_together(tmp_path):
    for seed in (1, 2, 3):
        for algo, end in {"real": 0.5, "grpo": 0.6}.items():
            map_run(tmp_path, algo, 1e-4, 64, seed, [0.1, end + seed / 100])
            map_run(tmp_path, algo, 1e-3, 64, seed, [0.1, 1.1 - end + seed / 100])
    for algo in ("real", "grpo"):
        map_run(tmp_path, algo, 1e-3, 16, 1, [0.1, 0.2])  # a single seed
    found = in_cells(comparison(tmp_path), ACROSS)
    assert [(row["Block"], str(row["Less REAL"])) for row in found.rows] == [
        ("actor.adam.lr 0.0001, train.batch_size 64", "0.100 ± 0.008"),
        ("actor.adam.lr 0.001, train.batch_size 64", "-0.100 ± 0.008"),
    ]
    p = two_sided(0.1 / 0.008165, 4)
    assert [row["p (Holm)"] for row in found.rows] == ["< 0.001" if 2 * p < 1e-3 else f"{2 * p:.3f}"] * 2
    assert [row["It is"] for row in found.rows] == ["higher", "lower"]


# Runs that were stopped early


def stopped(root, seed, curve, steps=30):
    flags = {"--train.max_steps": steps, "--train.hopeless": "end", "--eval.steps": 10}
    folder = write_run(root, "grpo", seed, steps, flags)
    train = [{"phase": "train", "step": step, "time": 1, "reward": 0.5} for step in range(1, max(curve) + 1)]
    evals = [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": value} for step, value in curve.items()]
    write_lines(folder, [*train, *evals])


def test_a_stopped_run_keeps_its_last_value_until_the_planned_end(tmp_path):
    stopped(tmp_path, 1, {0: 0.1, 10: 0.4, 20: 0.6, 30: 0.8})
    stopped(tmp_path, 2, {0: 0.1, 10: 0.4, 12: 0.0})
    (found,) = compare(read_runs([tmp_path])[0])
    (setting,) = found.settings
    assert setting.seeds == "2 runs, 1 stopped early"
    assert curve(setting, VALIDATION, ("x",)).band["mean"].tolist() == pytest.approx([0.1, 0.4, 0.3, 0.4])
    row = {column: str(cell) for column, cell in results(found).rows[0].items()}
    assert row["Validation pass@1"] == "0.400 ± 0.400" and row["Step"] == "30"
    assert row["Mean over training"] == "0.367 ± 0.233"  # of 0.4, 0.6, 0.8, and of 0.4, 0, 0


def test_a_run_that_ended_for_another_reason_is_carried_nowhere(tmp_path):
    stopped(tmp_path, 1, {0: 0.1, 10: 0.4, 12: 0.0})
    record = json.loads((tmp_path / "cpu-grpo-s1" / "run.json").read_text())
    record["flags"]["--train.hopeless"] = "fail"
    (tmp_path / "cpu-grpo-s1" / "run.json").write_text(json.dumps(record))
    (found,) = compare(read_runs([tmp_path])[0])
    assert results(found).rows[0]["Step"] == "12" and found.settings[0].seeds == "1 run"
