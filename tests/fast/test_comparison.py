import hashlib
import json

import pytest
from invented_runs import write_lines, write_run

from real_openrlhf.comparison import command
from real_openrlhf.comparison.publish import publish, refuse_now
from real_openrlhf.comparison.run_list import entries
from real_openrlhf.comparison.trainer import environment_of
from real_openrlhf.errors import UserError
from real_openrlhf.recipes.records import recorded_flags
from real_openrlhf.report import campaign, maps
from real_openrlhf.report.campaign import ABOUT, RUNS
from real_openrlhf.training.command import request_of


def test_runs_are_named_after_what_they_are_seed_by_seed():
    made = entries(["grpo", "real --algo.real.tau 0.1", "real --algo.kl.use_loss --algo.kl.estimator k3"], 2)
    assert [entry.name for entry in made] == [
        *("grpo-s1", "real-tau-0.1-s1", "real-use_loss-estimator-k3-s1"),
        *("grpo-s2", "real-tau-0.1-s2", "real-use_loss-estimator-k3-s2"),
    ]
    assert made[1].flags == ("--algo.real.tau", "0.1")


def test_a_grid_is_every_method_at_every_choice_seed_by_seed():
    grid = [["actor.adam.lr", "1e-4", "1e-3"], ["--train.batch_size", "16", "64"]]
    made = entries(["real", "grpo"], 2, 11, grid)
    assert len(made) == 2 * 2 * 2 * 2 and [entry.seed for entry in made] == [11] * 8 + [12] * 8
    assert [entry.name for entry in made[:3]] == [
        *("real-lr-1e-4-batch_size-16-s11", "grpo-lr-1e-4-batch_size-16-s11", "real-lr-1e-4-batch_size-64-s11"),
    ]
    assert made[0].flags == ("--actor.adam.lr", "1e-4", "--train.batch_size", "16")


def test_a_map_is_drawn_as_soon_as_both_flags_vary():
    across = ("--actor.adam.lr", "--train.batch_size")
    records = [{"flags": dict(zip(across, values, strict=True))} for values in ((1e-4, 16), (1e-4, 64), (3e-4, 16))]
    assert command.varied(records, across)
    assert not command.varied(records[:2], across) and not command.varied([{}], across)


def test_a_grid_without_values_is_refused():
    with pytest.raises(UserError, match="--grid actor.adam.lr: give its values"):
        entries(["real"], 1, 1, [["actor.adam.lr"]])


@pytest.mark.parametrize("algos, said", [(["reel"], "not an algorithm"), (["real", "real"], "twice")])
def test_what_cannot_be_compared_is_refused(algos, said):
    with pytest.raises(UserError, match=said):
        entries(algos, 1)


def record(folder, **changes):
    flags = {"--train.max_steps": 4, "--train.run_dir": str(folder), **changes.pop("flags", {})}
    return write_run(folder.parent, flags=flags, **{"name": folder.name, "tree": "1" * 40, **changes})


def test_a_run_made_with_other_flags_is_refused_and_named(tmp_path):
    words = ["--recipe", "cpu", "--algo", "real", "--seed", "1", "--runs-dir", str(tmp_path), "--run-name", "real-s1"]
    request = request_of(words)
    record(tmp_path / "real-s1", flags=recorded_flags(request.plan(tmp_path / "real-s1")))
    command.refuse_other_flags(tmp_path / "real-s1", request)
    for flag, before, after in (("--actor.adam.lr", "0.0001", "0.0005"), ("--train.max_steps", "40", "8")):
        other = request_of([*words, "--resume", flag, after])
        with pytest.raises(UserError, match=f"{flag} {before}, not {after}. Choose another --out"):
            command.refuse_other_flags(tmp_path / "real-s1", other)


def test_a_published_campaign_says_all_that_the_runs_said_and_nothing_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = []
    for seed, rate in ((1, 0.1 + 0.2), (2, 1)):
        run = record(tmp_path / "comparison" / "runs" / f"real-s{seed}", name=f"real-s{seed}", seed=seed)
        about = json.loads((run / "run.json").read_text()) | {"data": {str(tmp_path / "data" / "mine.jsonl"): "abc"}}
        about["flags"] |= {"--actor.adam.lr": rate, "--algo.kl.estimator": "1.0", "--empty": "", "--none": None}
        (run / "run.json").write_text(json.dumps(about))
        eval_line = {"phase": "eval", "step": 0, "eval_x_pass1": 1e-300}
        runs.append(write_lines(run, [eval_line, {"phase": "train", "step": 1, "time": 1.5, "loss": rate / 3}]))
    (runs[0] / "model").mkdir()
    publish(runs, tmp_path / "shared")
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == [
        *("campaign.json", "metrics.parquet", "runs.csv"),
    ]
    assert str(tmp_path) not in "".join((tmp_path / "shared" / name).read_text() for name in (ABOUT, RUNS))
    found, sources = campaign.records(tmp_path / "shared")
    for run in runs:
        about = json.loads((run / "run.json").read_text())
        about["flags"]["--train.run_dir"] = f"runs/{run.name}"
        assert json.dumps(found[run.name], sort_keys=True) == json.dumps(
            about | {"data": {"data/mine.jsonl": "abc"}}, sort_keys=True
        )
        assert sources[f"{run.name}/run.json"] == hashlib.sha256((run / "run.json").read_bytes()).hexdigest()
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert logged_in(tmp_path / "shared", run.name) == lines
    assert "loss" in campaign.lines(tmp_path / "shared")[0]


def logged_in(folder, name: str) -> list[dict]:
    """A run's lines in a campaign, as its metrics.jsonl had them."""
    return [
        {key: value for key, value in line.items() if key != "run" and value is not None}
        for line in campaign.lines(folder)
        if line["run"] == name
    ]


def test_published_runs_are_added_to_and_never_overwritten(tmp_path):
    line = {"phase": "train", "step": 1, "x": 0.5}
    one, two = (write_lines(record(tmp_path / "runs" / name), [line]) for name in ("real-s1", "real-s2"))
    publish([one], tmp_path / "shared")
    publish([one, two], tmp_path / "shared")
    before = {path.name: path.read_bytes() for path in (tmp_path / "shared").iterdir()}
    write_lines(one, [line | {"x": 0.25}])
    for runs in ([one, two], [two]):
        with pytest.raises(UserError, match="real-s1/metrics.jsonl: published runs are never overwritten|other runs"):
            publish(runs, tmp_path / "shared")
    for place in (tmp_path / "runs", tmp_path / "elsewhere"):
        with pytest.raises(UserError, match="other runs"):
            refuse_now(tmp_path / "shared", place)  # before anything is trained
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "shared").iterdir()}


def test_a_compact_campaign_has_what_results_and_maps_read(tmp_path):
    read = ["rollout/pass_rate", "rollout/solve_none", "real/weight_pos", "real/weight_neg", "ppo_kl"]
    read += ["real/score_abs_max", "actor_grad_norm", "update/ratio_max"]
    read += [key for key, _ in maps.COLUMNS.values()]
    line = dict.fromkeys([*read, "ratio/pos/low/share", "timing/generation", "update/rollouts_crc"], 0.123456789)
    logged = [{"phase": "train", "step": 1, "time": 1.5, **line}]
    run = write_lines(record(tmp_path / "runs" / "real-s1"), logged)
    publish([run], tmp_path / "shared", compact=True)
    (kept,) = logged_in(tmp_path / "shared", run.name)
    assert kept == {"phase": "train", "step": 1, **dict.fromkeys(read, 0.123456789)}


def test_a_session_has_gpus_for_the_run_that_needs_most(monkeypatch):
    """A reference model apart is one more; where there are too few, Ray would wait for ever."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    apart = ("--no-train.colocate_all", "--vllm.num_engines", "1")
    needs = {algo: ["--recipe", "cpu", "--algo", algo, *apart] for algo in ("real", "grpo")}

    def gpus(*algos: str) -> int:
        environment = environment_of(*(needs[algo] for algo in algos))
        return json.loads(environment["RAY_OVERRIDE_RESOURCES"])["GPU"]

    assert (gpus("real"), gpus("grpo"), gpus("real", "grpo"), gpus("grpo", "real")) == (2, 3, 3, 3)
