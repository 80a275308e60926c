"""Differences by seed: paired errors, the bound that a difference must exceed, and when there is no table."""

import pytest
from invented_runs import map_run, write_lines, write_run

from real_openrlhf.report.pairs import pairs, pairs_in_cells, student_quantile
from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.settings import compare


def write(root, algo, ends):
    for seed, end in ends.items():
        lines = [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": end} for step in (0, 2)]
        write_lines(write_run(root, algo, seed, 2), lines)


def table(root):
    (comparison,) = compare(read_runs([root])[0])
    return pairs(comparison)


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
    rows = {str(row.cells[0]): [str(cell) for cell in row.cells[1:]] for _, block in found.blocks for row in block}
    assert rows["GRPO"][0] == "0.024 ± 0.002" and rows["GRPO"][2:] == ["higher", "5"]
    assert float(rows["GRPO"][1]) == pytest.approx(student_quantile(1 - 0.05 / 4, 4) * 0.002449, abs=1e-3)  # two rows
    assert rows["DAPO"][2] == "cannot be told apart"
    assert found.columns[1] == "Less REAL"


def test_only_shared_seeds_count_and_fewer_than_three_are_no_table(tmp_path):
    write(tmp_path, "real", {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5})
    write(tmp_path, "grpo", {2: 0.4, 3: 0.3, 4: 0.4, 9: 1.0})
    assert [str(cell) for cell in table(tmp_path).blocks[0][1][0].cells][1:5:3] == ["-0.133 ± 0.033", "3"]
    write(tmp_path / "few", "real", {1: 0.5, 2: 0.5, 3: 0.5})
    write(tmp_path / "few", "grpo", {2: 0.4, 3: 0.3})
    assert table(tmp_path / "few") is None


def test_in_a_map_each_cell_with_enough_seeds_is_compared_and_the_bound_is_for_all_rows(tmp_path):
    across = ("--actor.adam.lr", "--train.batch_size")
    for seed in (1, 2, 3):
        for algo, end in {"real": 0.5, "grpo": 0.6 + seed / 100}.items():
            map_run(tmp_path, algo, 1e-4, 64, seed, [0.1, end])
            map_run(tmp_path, algo, 1e-3, 64, seed, [0.1, 1.1 - end])
    for algo in ("real", "grpo"):
        map_run(tmp_path, algo, 1e-3, 16, 1, [0.1, 0.2])  # a single seed
    (comparison,) = compare(read_runs([tmp_path])[0], across)
    found = pairs_in_cells(comparison, across)
    assert [(cell, [str(row.cells[1]) for row in rows]) for cell, rows in found.blocks] == [
        ("actor.adam.lr 0.0001, train.batch_size 64", ["0.120 ± 0.006"]),
        ("actor.adam.lr 0.001, train.batch_size 64", ["-0.120 ± 0.006"]),
    ]
    bounds = [float(str(row.cells[2])) for _, rows in found.blocks for row in rows]
    assert bounds == pytest.approx([student_quantile(1 - 0.05 / 4, 2) * 0.01 / 3**0.5] * 2, abs=1e-3)
    assert [str(row.cells[3]) for _, rows in found.blocks for row in rows] == ["higher", "lower"]
