"""The map over two flags: which runs are a cell, what it says of them, and a figure that is read without colour."""

import json

import pytest
from invented_runs import map_run, map_runs

from real_openrlhf.cli import main
from real_openrlhf.report.maps import cells, grids, heat_maps
from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.settings import compare

ACROSS = ("--actor.adam.lr", "--train.batch_size")


@pytest.fixture
def runs(tmp_path):
    return map_runs(tmp_path / "runs")


def comparison(root):
    (found,) = compare(read_runs([root])[0], ACROSS)
    return found


def test_every_method_is_one_map_whose_cells_are_the_choices_of_both_flags(runs):
    found = {setting.label: grid for setting, grid in grids(comparison(runs), ACROSS).items()}
    assert {label: set(grid) for label, grid in found.items()} == {
        "REAL": {("0.0001", "64"), ("0.001", "64"), ("0.001", "16")},
        "GRPO": {("0.0001", "64"), ("0.0001", "256")},
    }
    cell = found["REAL"]["0.001", "64"]
    assert (cell.final.mean, cell.final.n, cell.collapsed) == (pytest.approx(0.2), 2, 1)
    assert cell.words == "0.20\n✕ 1 of 2"
    assert found["REAL"]["0.0001", "64"].words == "0.85"
    assert found["GRPO"]["0.0001", "256"].final.mean == 0.3  # what broke off is counted beside it, not in it
    assert found["GRPO"]["0.0001", "256"].unfinished == 1


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
    rows = {
        (heading, *map(str, row.cells[:2])): [*map(str, row.cells[2:])]
        for heading, rows in table.blocks
        for row in rows
    }
    assert rows["REAL", "0.001", "64"] == [
        *("0.200 ± 0.100", "0.400 ± 0.000", "0.375 ± 0.125", "0.250 ± 0.000", "0.100 ± 0.000", "1 of 2", "2"),
    ]
    assert rows["GRPO", "0.0001", "256"][-2:] == ["0 of 1", "1, 1 failed or unfinished"]


def test_a_flag_that_does_not_vary_is_refused(runs, tmp_path, capsys):
    assert main(["report", str(runs), "--out", str(tmp_path / "out"), "--map", "actor.adam.lr", "train.seeds"]) == 2
    assert "--map train.seeds: --train.seeds is not set in all runs" in capsys.readouterr().err
