"""Maps over two flags, and differences by seed: cells, a figure that is read without colour, and honest bounds."""

import json

import pytest
from invented_runs import map_run, map_runs, write_lines, write_run

from real_openrlhf.report.maps import cells, heat_maps, pairs, student_quantile
from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.settings import compare

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
    rows = {(heading, *map(str, row[:2])): [*map(str, row[2:])] for heading, rows in table.blocks for row in rows}
    assert rows["REAL", "0.001", "64"] == [
        *("0.200 ± 0.100", "0.400 ± 0.000", "0.375 ± 0.125", "0.250 ± 0.000", "0.100 ± 0.000", "1 of 2", "2"),
    ]
    assert rows["GRPO", "0.0001", "256"][-2:] == ["0 of 1", "1, 1 failed or unfinished"]


def test_a_flag_that_does_not_vary_is_refused(runs, tmp_path, refused):
    said = refused("report", runs, "--out", tmp_path / "out", "--map", "actor.adam.lr", "train.seeds")
    assert "--map train.seeds: --train.seeds is not set in all runs" in said
    assert not (tmp_path / "out").exists()


# Differences by seed


def write(root, algo, ends):
    for seed, end in ends.items():
        lines = [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": end} for step in (0, 2)]
        write_lines(write_run(root, algo, seed, 2), lines)


def table(root):
    (found,) = compare(read_runs([root])[0])
    return pairs(found)


@pytest.mark.parametrize(
    ("share", "freedom", "known"),
    [(0.975, 4, 2.776), (0.975, 1, 12.706), (0.995, 9, 3.250), (0.95, 30, 1.697), (0.975, 1000, 1.962)],
)
def test_quantiles_are_those_of_the_tables(share, freedom, known):
    assert student_quantile(share, freedom) == pytest.approx(known, abs=1e-3)


def test_a_small_steady_difference_is_told_and_a_large_unsteady_one_is_not(tmp_path):
    write(tmp_path, "real", {1: 0.5, 2: 0.7, 3: 0.9, 4: 0.6, 5: 0.8})
    write(tmp_path, "grpo", {1: 0.52, 2: 0.73, 3: 0.92, 4: 0.63, 5: 0.82})  # seeds differ more than methods
    write(tmp_path, "dapo", {1: 0.9, 2: 0.5, 3: 0.95, 4: 0.9, 5: 0.7})
    found = table(tmp_path)
    rows = {str(row[0]): [str(cell) for cell in row[1:]] for _, block in found.blocks for row in block}
    assert rows["GRPO"][0] == "0.024 ± 0.002" and rows["GRPO"][2:] == ["higher", "5"]
    assert float(rows["GRPO"][1]) == pytest.approx(student_quantile(1 - 0.05 / 4, 4) * 0.002449, abs=1e-3)  # two rows
    assert rows["DAPO"][2] == "cannot be told apart"
    assert found.columns[1] == "Less REAL"


def test_differences_are_told_at_the_end_and_by_the_mean_over_training(tmp_path):
    for seed in (1, 2, 3):
        map_run(tmp_path, "real", 1e-4, 64, seed, [0.0, 0.2, 0.9])
        map_run(tmp_path, "grpo", 1e-4, 64, seed, [0.5, 0.6 + seed / 100, 0.9])
    found = {name: [str(cell) for cell in row[1:4]] for name, (row,) in table(tmp_path).blocks}
    assert found["At the end"] == ["0.000 ± 0.000", "0.000", "cannot be told apart"]
    assert found["Mean over training"][0] == "0.210 ± 0.003" and found["Mean over training"][2] == "higher"


def test_only_shared_seeds_count_and_fewer_than_three_are_no_table(tmp_path):
    write(tmp_path, "real", {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5})
    write(tmp_path, "grpo", {2: 0.4, 3: 0.3, 4: 0.4, 9: 1.0})
    assert [str(cell) for cell in table(tmp_path).blocks[0][1][0]][1:5:3] == ["-0.133 ± 0.033", "3"]
    write(tmp_path / "few", "real", {1: 0.5, 2: 0.5, 3: 0.5})
    write(tmp_path / "few", "grpo", {2: 0.4, 3: 0.3})
    assert table(tmp_path / "few") is None


def test_in_a_map_each_cell_with_enough_seeds_is_compared_and_the_bound_is_for_all_rows(tmp_path):
    for seed in (1, 2, 3):
        for algo, end in {"real": 0.5, "grpo": 0.6 + seed / 100}.items():
            map_run(tmp_path, algo, 1e-4, 64, seed, [0.1, end])
            map_run(tmp_path, algo, 1e-3, 64, seed, [0.1, 1.1 - end])
    for algo in ("real", "grpo"):
        map_run(tmp_path, algo, 1e-3, 16, 1, [0.1, 0.2])  # a single seed
    found = pairs(comparison(tmp_path), ACROSS)
    assert [(cell, [str(row[1]) for row in rows]) for cell, rows in found.blocks] == [
        ("actor.adam.lr 0.0001, train.batch_size 64", ["0.120 ± 0.006"]),
        ("actor.adam.lr 0.001, train.batch_size 64", ["-0.120 ± 0.006"]),
    ]
    bounds = [float(str(row[2])) for _, rows in found.blocks for row in rows]
    assert bounds == pytest.approx([student_quantile(1 - 0.05 / 4, 2) * 0.01 / 3**0.5] * 2, abs=1e-3)
    assert [str(row[3]) for _, rows in found.blocks for row in rows] == ["higher", "lower"]
