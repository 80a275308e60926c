"""The report: its numbers against a few independent lines, what it refuses to claim, and folders that are no runs."""

import csv
import json
import math
import random
import re
import statistics
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from real_openrlhf.cli import main
from real_openrlhf.errors import UserError
from real_openrlhf.recipes import ALGORITHMS
from real_openrlhf.report import tables
from real_openrlhf.report.curves import REWARD, VALIDATION, curve
from real_openrlhf.report.figures import dynamics, training_curves
from real_openrlhf.report.methods import METHODS
from real_openrlhf.report.runs import guess_algo, guess_seed, read_run, read_runs
from real_openrlhf.report.settings import compare
from real_openrlhf.report.statistics import Estimate, Series, band, clear_winner, windowed
from real_openrlhf.runs import json_value

RATIOS = [f"ratio/{side}/{name}" for side in ("pos", "neg") for name in ("below", "low", "high", "above")]
GROUP_OBJECTIVES = ("real", "real_bce", "real_no_anchor", "real_constant", "trpa", "disco_logl", "disco_lratio")


def invent(algo: str, seed: int, steps: int, eval_steps: int = 10):
    """Rows as training writes them, with invented numbers."""
    dice = random.Random(f"{algo} {seed}")
    skill = 0.08 * (sorted(METHODS).index(algo) if algo in METHODS else 0)
    for step in range(0, steps + 1):
        learned = 0.4 + (0.2 + 0.3 * skill) * (1 - math.exp(-2 * step / steps))
        if step:
            reward = learned + dice.gauss(0, 0.03)
            row = {"phase": "train", "step": step, "time": 1e9 + step, "policy_loss": dice.gauss(0, 0.1)}
            row |= {
                "actor_grad_norm": 1.0,
                "actor_lr": 1e-4,
                "entropy_loss": 1.2 - skill * step / steps + dice.gauss(0, 0.02),
            }
            row |= {"rollout/reward_mean": reward, "rollout/pass_rate": reward, "rollout/solve_none": 0.1}
            row |= {"rollout/solve_all": reward**2, "rollout/ignored": 0.0, "rollout/response_length_mean": 7.5}
            for name in RATIOS:
                share = 95.0 if "high" in name else 5 / 3
                row |= {f"{name}/share": share + dice.random() / 100, f"{name}/grad": 1.0 + dice.gauss(0, 0.01)}
            if algo in GROUP_OBJECTIVES:
                drift = 0.001 * step
                row |= {"real/loss": 1.0, "real/score_pos": drift, "real/score_neg": -drift, "real/score_std": 0.02}
                for side, sign in (("pos", 1), ("neg", -1)):
                    row |= {f"real/score_{side}_std": 0.02, f"real/score_{side}_min": sign * drift - 0.05}
                    row |= {
                        f"real/score_{side}_max": sign * drift + 0.05,
                        f"real/weight_{side}": 0.4 + dice.gauss(0, 0.01),
                    }
                row |= {"real/weight_abs_max": 1.1, "real/weight_bound": 0.55, "real/weight_cv": 0.01 * dice.random()}
            yield row
        if step % eval_steps == 0 or step == steps:
            yield {"phase": "eval", "step": step, "time": 1e9 + step, "eval_sums_pass1": learned + dice.gauss(0, 0.01)}


def write_run(root: Path, algo: str = "real", seed: int = 1, steps: int = 20, flags=None, name=None, **record) -> Path:
    """A run folder as `real-openrlhf train` leaves it."""
    name = name or f"cpu-{algo}-s{seed}"
    folder = root / name
    folder.mkdir(parents=True)
    own = {flag: json_value(setting.words) for flag, setting in ALGORITHMS[algo].settings.items()}
    flags = {**own, "--train.seed": seed, "--train.run_dir": f"runs/{name}", "--actor.adam.lr": 1e-4, **(flags or {})}
    run = {"name": name, "algo": algo, "recipe": "cpu", "seed": seed, "status": "finished", "flags": flags}
    run |= {
        "command": ["real-openrlhf", "train", "--algo", algo],
        "code_version": "0.1.0",
        "data": {"train.jsonl": "5e"},
    }
    (folder / "run.json").write_text(json.dumps({**run, **record}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in invent(algo, seed, steps)))
    return folder


def write_events(folder: Path, algo: str, seed: int, steps: int = 20) -> Path:
    """What stock OpenRLHF's TensorBoard logger writes; it knows none of our own metrics."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for row in invent(algo, seed, steps):
        for key, number in row.items():
            if key not in ("phase", "step", "time") and not key.startswith(
                ("real/", "ratio/", "rollout/solve", "rollout/pass")
            ):
                value = Summary.Value(tag=f"{row['phase']}/{key}", simple_value=number)
                writer.add_event(Event(step=row["step"], wall_time=row["time"], summary=Summary(value=[value])))
    writer.close()
    return folder


def write_evaluation(folder: Path, **scores: tuple[float, float]) -> Path:
    results = {"benchmarks": {name: {"pass1": mean, "pass1_se": se} for name, (mean, se) in scores.items()}}
    (folder / "eval").mkdir()
    (folder / "eval" / "results.json").write_text(json.dumps(results))
    return folder


def report(*folders: Path, out: Path) -> int:
    return main(["report", *map(str, folders), "--out", str(out)])


def table(path: Path) -> list[dict]:
    with open(path) as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """Ten runs and their report, made once."""
    root = tmp_path_factory.mktemp("ten")
    for algo, seeds in {"real": 4, "grpo": 3, "real_bce": 2, "dapo": 1}.items():
        for seed in range(1, seeds + 1):
            write_run(root / "runs", algo, seed)
    assert report(root / "runs", out=root / "report") == 0
    return root


# -------------------------------------------------------------------------------------------------- numbers


def test_numbers_equal_those_recomputed_from_metrics_jsonl(ten):
    finals = {row["Setting"]: row for row in table(ten / "report/tables/results.csv")}
    drawn = table(ten / "report/figures/dynamics.csv") + table(ten / "report/figures/ablation.csv")
    for algo, label in (("real", "REAL"), ("grpo", "GRPO"), ("real_bce", "REAL with BCE"), ("dapo", "DAPO")):
        logs = [
            [json.loads(line) for line in path.read_text().splitlines()]
            for path in sorted(ten.glob(f"runs/cpu-{algo}-s*/metrics.jsonl"))
        ]
        last = [log[-1]["eval_sums_pass1"] for log in logs]
        assert float(finals[label]["Validation pass@1"]) == pytest.approx(statistics.mean(last))
        if len(logs) > 1:
            error = statistics.stdev(last) / math.sqrt(len(last))
            assert float(finals[label]["Validation pass@1 SE"]) == pytest.approx(error)
        else:
            assert finals[label]["Validation pass@1 SE"] == ""
        tail = [
            statistics.mean(r["rollout/reward_mean"] for r in log if r["step"] in (19, 20) and r["phase"] == "train")
            for log in logs
        ]
        assert float(finals[label]["Training reward"]) == pytest.approx(statistics.mean(tail))
        for metric, key, phase in (
            ("entropy", "entropy_loss", "train"),
            ("validation_pass1", "eval_sums_pass1", "eval"),
        ):
            curve_rows = [r for r in drawn if r["curve"] == label and r["metric"] == metric]
            expected = {r["step"]: [] for r in logs[0] if r["phase"] == phase}
            for log in logs:
                for row in log:
                    if row["phase"] == phase:
                        expected[row["step"]].append(row[key])
            assert {int(r["step"]) for r in curve_rows} == set(expected)
            for row in curve_rows:
                assert float(row["mean"]) == pytest.approx(statistics.mean(expected[int(row["step"])]))
                assert int(row["runs"]) == len(logs)
                if len(logs) > 1:
                    error = statistics.stdev(expected[int(row["step"])]) / math.sqrt(len(logs))
                    assert float(row["se"]) == pytest.approx(error)


def test_table_1_is_the_mean_over_steps_weighted_by_share(ten):
    rows = {(row["Block"], row["Ratio"]): row for row in table(ten / "report/tables/ratios.csv")}
    shares, grads = [], []
    for path in ten.glob("runs/cpu-grpo-s*/metrics.jsonl"):
        log = [row for row in map(json.loads, path.read_text().splitlines()) if row["phase"] == "train"]
        share = [row["ratio/neg/above/share"] for row in log]
        shares.append(statistics.mean(share))
        grads.append(statistics.fmean([row["ratio/neg/above/grad"] for row in log], weights=share))
    row = rows["Negatives", "> 1+ε"]
    assert float(row["GRPO: %"]) == pytest.approx(statistics.mean(shares))
    assert float(row["GRPO: |W|"]) == pytest.approx(statistics.mean(grads))
    assert (row["Paper, GRPO: %"], row["Paper, GRPO: |W|"]) == ("0.34", "1.3553")


def test_long_curves_are_means_over_whole_windows():
    values = list(range(1, 251))
    short = windowed(Series.of(dict(enumerate(values, 1))), 3)
    assert short.steps.tolist() == list(range(3, 250, 3))
    assert short.values.tolist() == [step - 1 for step in range(3, 250, 3)]


def test_a_mean_rests_on_steps_that_every_run_has():
    one, two = Series.of({1: 1.0, 2: 2.0, 3: 3.0}), Series.of({1: 3.0, 3: math.nan, 2: 4.0, 4: 9.0})
    mean = band([one, two])
    assert mean.steps.tolist() == [1, 2]
    assert mean.mean.tolist() == [2.0, 3.0]
    assert mean.se.tolist() == pytest.approx([1.0, 1.0])


# ------------------------------------------------------------------------------------------------ honesty


def test_only_a_lead_of_two_standard_errors_is_a_win():
    assert clear_winner([Estimate(0.60, 0.01, 5), Estimate(0.50, 0.01, 5)]) == 0
    assert clear_winner([Estimate(0.50, 0.03, 5), Estimate(0.59, 0.04, 5)]) is None  # less than 2 x 0.05
    assert clear_winner([Estimate(0.50, 0.03, 5), Estimate(0.61, 0.04, 5)]) == 1
    # the runner-up is beaten, but a row further down is too uncertain to be
    assert clear_winner([Estimate(0.60, 0.001, 5), Estimate(0.50, 0.001, 5), Estimate(0.40, 0.2, 2)]) is None
    assert clear_winner([Estimate(0.60, 0.01, 5), Estimate(0.50, math.nan, 1)]) is None
    assert clear_winner([Estimate(0.60, 0.01, 5), None]) is None
    assert clear_winner([Estimate(0.60, 0.0, 2), Estimate(0.60, 0.0, 2)]) is None


def test_bold_follows_that_rule_and_never_a_published_number(tmp_path):
    for algo, center in (("real", 0.60), ("grpo", 0.40)):
        for seed in (1, 2, 3):
            scores = {
                "aime24": (center + seed / 100, 0.02),
                "amc23": (0.5 + random.Random(f"{algo}{seed}").random() / 10, 0.02),
            }
            write_evaluation(write_run(tmp_path / "runs", algo, seed), **scores)
    report(tmp_path / "runs", out=tmp_path / "out")
    text = (tmp_path / "out/tables/benchmarks.md").read_text()
    assert re.findall(r"\*\*([^*]+)\*\*", text)[1:] == ["0.620 ± 0.006"]  # the first is the title
    latex = (tmp_path / "out/tables/benchmarks.tex").read_text()
    assert re.findall(r"\\textbf\{([^}]*)\}", latex) == [r"0.620 $\pm$ 0.006"]
    assert (tmp_path / "out/index.html").read_text().count("class=best") >= 1
    assert "0.533" in text and "0.632" in text  # DisCO's row that the paper leaves out, and the paper's best


def test_the_average_needs_all_six_benchmarks(tmp_path):
    six = {
        name: (0.1 * place, 0.01)
        for place, name in enumerate(("aime24", "aime25", "math500", "amc23", "minerva", "olympiadbench"), 1)
    }
    write_evaluation(write_run(tmp_path, "real", 1), **six)
    write_evaluation(write_run(tmp_path, "grpo", 1), **dict(list(six.items())[:5]))
    runs, _ = read_runs([tmp_path])
    real, grpo = (tables.benchmark_estimates(setting) for setting in compare(runs)[0].settings)
    assert real["average"].mean == pytest.approx(0.35)
    assert real["average"].se == pytest.approx(math.sqrt(6) * 0.01 / 6)  # independent errors over problems
    assert "average" not in grpo


def test_missing_methods_are_named(ten):
    page = (ten / "report/index.html").read_text()
    assert "GSPO: no run" in page and "REAL without anchor: no run" in page
    ablations = {row["Setting"]: row for row in table(ten / "report/tables/ablations.csv")}
    assert ablations["w/o Anchor Logits"]["Our runs"] == "no run"
    assert float(ablations["w/o Anchor Logits"]["Paper: average of six"]) == 51.4
    assert ablations["REAL"]["Our runs"] == "4 runs"


def test_runs_that_broke_off_are_shown_but_not_averaged(tmp_path):
    write_run(tmp_path, "real", 1)
    write_run(tmp_path, "real", 2)
    write_run(tmp_path, "real", 3, steps=7, status="failed")
    comparison = compare(read_runs([tmp_path])[0])[0]
    drawn = curve(comparison.settings[0], REWARD)
    assert drawn.band.n == 2 and drawn.band.steps[-1] == 20
    assert [single.steps[-1] for single in drawn.singles] == [7]
    assert [entry.label for entry in dynamics(comparison).legend][0] == "REAL (2 runs; 1 failed, not averaged)"
    assert tables.results(comparison).blocks[0][1][0].cells[3].number.n == 2


def test_nothing_is_drawn_across_missing_steps(tmp_path):
    folder = write_run(tmp_path, "real", 1, steps=30)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = [row for row in rows if not (row["phase"] == "train" and 10 < row["step"] < 20)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    panel = next(p for p in dynamics(compare(read_runs([folder])[0])[0]).panels if p.title == REWARD.title)
    panel.draw(axes)
    x = axes.lines[0].get_xdata()
    hole = [place for place, step in enumerate(x) if math.isnan(step)]
    assert len(hole) == 1 and (x[hole[0] - 1], x[hole[0] + 1]) == (10, 20)


def test_a_resumed_run_counts_each_step_once(tmp_path):
    folder = write_run(tmp_path, "real", 1)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"phase": "train", "step": 20, "rollout/reward_mean": 0.125}) + "\n")
    reward = read_run(folder).logged["train"]["rollout/reward_mean"]
    assert len(reward) == 20 and reward.values[-1] == 0.125


# ---------------------------------------------------------------------------------- what is compared with what


def test_settings_are_told_apart_by_their_knobs_and_seeds_are_not(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path, "real", seed)
        write_run(tmp_path, "real", seed, flags={"--algo.real.tau": 0.1}, name=f"cold-{seed}")
        write_run(tmp_path, "real", seed, flags={"--algo.real.uniform_groups": "keep"}, name=f"keep-{seed}")
        write_run(tmp_path, "grpo", seed)
    write_run(tmp_path, "grpo", 1, flags={"--actor.adam.lr": 2e-4}, name="fast-1")
    labels = {s.label: len(s.runs) for s in compare(read_runs([tmp_path])[0])[0].settings}
    assert labels == {
        "REAL": 2,
        "REAL, τ = 0.1": 2,
        "REAL, uniform groups: keep": 2,
        "GRPO, actor.adam.lr 0.0001": 2,
        "GRPO, actor.adam.lr 0.0002": 1,
    }


def test_different_tasks_never_share_a_figure(tmp_path):
    write_run(tmp_path, "real", 1)
    write_run(tmp_path, "real", 2, data={"train.jsonl": "another"}, name="hard")
    write_run(tmp_path, "real", 3, recipe="qwen7b", name="big")
    names = [comparison.name for comparison in compare(read_runs([tmp_path])[0])]
    assert len(set(names)) == 3 and "qwen7b" in names
    assert report(tmp_path, out=tmp_path / "out") == 0
    assert len(list((tmp_path / "out/figures").glob("*dynamics.png"))) == 3


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


def test_a_tensorboard_log_of_stock_openrlhf_gives_the_same_curves(tmp_path):
    """The method and seed come from the folder's name, the numbers from the events."""
    logged = read_run(write_run(tmp_path / "ours", "grpo", 2)).logged
    plain = read_run(write_events(tmp_path / "tb" / "grpo-seed2", "grpo", 2))
    assert (plain.algo, plain.seed, plain.status) == ("grpo", 2, "unknown")
    for phase, key in (("train", "entropy_loss"), ("train", "rollout/reward_mean"), ("eval", "eval_sums_pass1")):
        ours, theirs = logged[phase][key], plain.logged[phase][key]
        assert theirs.steps.tolist() == ours.steps.tolist()
        assert theirs.values.tolist() == pytest.approx(ours.values.tolist(), rel=1e-6)  # events are float32
    write_run(tmp_path / "ours", "real", 1)
    assert report(tmp_path / "ours", tmp_path / "tb", out=tmp_path / "out") == 0
    finals = {row["Setting"]: row for row in table(tmp_path / "out/tables/results.csv")}
    assert set(finals) == {"REAL", "GRPO", "GRPO, plain log"}
    assert finals["GRPO, plain log"]["All-solved ratio"] == ""
    assert "All-solved ratio: not logged by GRPO, plain log." in (tmp_path / "out/index.html").read_text()


def test_a_run_folder_without_metrics_falls_back_to_its_own_tensorboard(tmp_path):
    folder = write_run(tmp_path, "real", 1)
    (folder / "metrics.jsonl").unlink()
    write_events(folder / "tensorboard" / "cpu-real-s1", "real", 1)
    run = read_run(folder)
    assert run.status == "finished" and run.last_step == 20


# ------------------------------------------------------------------------------------------- folders that are no runs


def break_folders(root: Path) -> dict[str, str]:
    """Every way in which a folder is no run, and a word of the reason that must be named."""
    whole = write_run(root, "real", 9, name="cut")
    text = (whole / "metrics.jsonl").read_text()
    (whole / "metrics.jsonl").write_text(text[: -len(text.splitlines()[-1]) // 2])
    (root / "empty").mkdir()
    (root / "foreign").mkdir()
    (root / "foreign" / "config.json").write_text("{}")
    for name, content in {
        "no-lines": "",
        "list": "[1]\n",
        "other-log": '{"loss": 1}\n',
        "no-numbers": '{"phase": "train", "step": 1}\n',
    }.items():
        (write_run(root, "real", 9, name=name) / "metrics.jsonl").write_text(content)
    broken = write_run(root, "real", 9, name="garbled") / "metrics.jsonl"
    broken.write_text("garbage\n" + broken.read_text())
    (write_run(root, "real", 9, name="binary") / "metrics.jsonl").write_bytes(b"\xff\xfe\x00\x80")
    (write_run(root, "real", 9, name="half-json") / "run.json").write_text('{"algo": "re')
    (write_run(root, "real", 9, name="not-ours") / "run.json").write_text('{"project": "other"}')
    (write_run(root, "real", 9, name="never-logged") / "metrics.jsonl").unlink()
    half = write_evaluation(write_run(root, "real", 9, name="half-eval"), aime24=(0.5, 0.1)) / "eval" / "results.json"
    half.write_text(half.read_text()[:20])
    events = root / "bad-events"
    events.mkdir()
    (events / "events.out.tfevents.1.host").write_bytes(b"no events at all, but bytes enough for a header")
    return {
        "cut": "line 23 is cut off",
        "empty": "empty folder",
        "foreign": "not a run",
        "no-lines": "empty",
        "list": "no phase",
        "other-log": "no phase",
        "no-numbers": "nothing was logged",
        "garbled": "line 1 is not JSON",
        "binary": "cannot be read",
        "half-json": "run.json is broken",
        "not-ours": "names no algo",
        "never-logged": "logged nothing",
        "half-eval": "results.json is broken",
        "bad-events": "bad-events",
    }


def test_folders_that_are_no_runs_are_named_and_the_rest_is_reported(tmp_path, capsys):
    reasons = break_folders(tmp_path / "runs")
    write_run(tmp_path / "runs", "grpo", 1)
    assert report(tmp_path / "runs", tmp_path / "gone", out=tmp_path / "out") == 0
    printed = capsys.readouterr().out
    page = (tmp_path / "out/index.html").read_text()
    for name, reason in {**reasons, "gone": "no such folder"}.items():
        (line,) = [line for line in printed.splitlines() if re.search(rf"/{name}: ", line)]
        assert reason in line and f"/{name}</code>" in page
    assert "1 run reported, 15 skipped" in printed
    assert [row["Setting"] for row in table(tmp_path / "out/tables/results.csv")] == ["GRPO"]


def test_nothing_to_report_is_one_line_and_exit_code_2(tmp_path, capsys):
    break_folders(tmp_path / "runs")
    assert report(tmp_path / "runs", out=tmp_path / "out") == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and "no run to report on" in printed.err and "Traceback" not in printed.err
    assert not (tmp_path / "out").exists()


def test_out_that_cannot_be_made_is_one_line(tmp_path, capsys):
    folder = write_run(tmp_path, "real", 1)
    assert report(folder, out=folder / "run.json") == 2
    assert "Choose another --out" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------- forms


class Outline(HTMLParser):
    """Ids and references of a page, and whether its tags close."""

    VOID = {"meta", "link", "br", "img"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.outside = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, text in attributes:
            if name == "id":
                self.ids.append(text)
            if name in ("src", "href", "xlink:href"):
                (self.links if text.startswith("#") else self.outside).append(text)
            if name in ("clip-path", "style"):
                self.links += re.findall(r"url\((#[^)]+)\)", text or "")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone(ten):
    text = (ten / "report/index.html").read_text()
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert outline.outside == ["data:,"]  # no network: nothing but an empty icon
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    assert "<script" not in text and "@import" not in text and "url(http" not in text
    assert "width=device-width" in text and "prefers-color-scheme: dark" in text
    assert text.count("<svg") >= 4 + 4 + 6 + 2
    assert "Proposition 5.1 holds" in text


def test_every_figure_and_table_comes_in_all_its_forms(ten):
    figures = {path.name for path in (ten / "report/figures").iterdir()}
    tables_ = {path.name for path in (ten / "report/tables").iterdir()}
    for name in ("dynamics", "ablation", "scores", "gradient"):
        assert {f"{name}.png", f"{name}.pdf", f"{name}.csv"} <= figures
    for name in ("results", "benchmarks", "ablations", "ratios"):
        assert {f"{name}.md", f"{name}.tex", f"{name}.csv"} <= tables_
    assert (ten / "report/figures/dynamics.png").read_bytes().startswith(b"\x89PNG")
    assert (ten / "report/figures/dynamics.pdf").read_bytes().startswith(b"%PDF")


def test_latex_is_booktabs_with_equal_rows_and_nothing_unescaped(ten):
    for path in (ten / "report/tables").glob("*.tex"):
        text = path.read_text()
        assert text.isascii() and all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
        assert r"\hline" not in text
        columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", text).group(1))
        body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
        for line in body.splitlines():
            if line.endswith(r"\\") and r"\multicolumn" not in line:
                assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
        assert not re.search(r"(?<!\\)[%#_](?!\{)", text.replace(r"\label{tab:", ""))


def test_methods_are_told_apart_without_colour():
    looks = [(method.line, method.marker) for method in METHODS.values()]
    assert len({marker for _, marker in looks}) == len(METHODS)
    assert len({method.colour for method in METHODS.values()}) == len(METHODS)
    assert set(METHODS) == set(ALGORITHMS)


def test_one_run_as_a_picture(tmp_path):
    picture = training_curves(write_run(tmp_path, "real", 1), tmp_path / "pictures" / "curves.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="no such folder"):
        training_curves(tmp_path / "gone", tmp_path / "x.png")


def test_validation_is_the_mean_over_the_sets_that_all_runs_have(tmp_path):
    for seed, keys in ((1, ("a", "b", "c")), (2, ("a", "b"))):
        folder = write_run(tmp_path, "real", seed)
        row = {"phase": "eval", "step": 20, **{f"eval_{key}_pass1": 0.1 * (ord(key) - 96) for key in keys}}
        log = [{"phase": "train", "step": 20, "entropy_loss": 1.0}, row]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    comparison = compare(read_runs([tmp_path])[0])[0]
    (setting,) = comparison.settings
    from real_openrlhf.report.curves import validation_sets

    sets = validation_sets(comparison.runs)
    assert sets == ("a", "b")
    assert curve(setting, VALIDATION, sets).band.mean.tolist() == pytest.approx([0.15])


def test_help_needs_no_drawing_library():
    code = "import sys; from real_openrlhf.cli import main\ntry: main(['report', '--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit(any(m in sys.modules for m in ('matplotlib', 'torch', 'tensorboard')))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
