import argparse
import contextlib
import json
import os
import signal
import time
from types import SimpleNamespace

import pytest

from real_openrlhf.comparison import command
from real_openrlhf.comparison.publish import publish
from real_openrlhf.errors import UserError
from real_openrlhf.training import command as train_command


def test_runs_are_named_after_what_they_are_seed_by_seed():
    made = command.entries(["grpo", "real --algo.real.tau 0.1", "real --algo.kl.use_loss --algo.kl.estimator k3"], 2)
    assert [entry.name for entry in made] == [
        *("grpo-s1", "real-tau-0.1-s1", "real-use_loss-estimator-k3-s1"),
        *("grpo-s2", "real-tau-0.1-s2", "real-use_loss-estimator-k3-s2"),
    ]
    assert made[1].flags == ("--algo.real.tau", "0.1")


def test_a_grid_is_every_method_at_every_choice_seed_by_seed():
    grid = [["actor.adam.lr", "1e-4", "1e-3"], ["--train.batch_size", "16", "64"]]
    made = command.entries(["real", "grpo"], 2, 11, grid)
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
    with pytest.raises(UserError, match="--grid actor.adam.lr: give the values"):
        command.entries(["real"], 1, 1, [["actor.adam.lr"]])


@pytest.mark.parametrize("algos, said", [(["reel"], "not an algorithm"), (["real", "real"], "twice")])
def test_what_cannot_be_compared_is_refused(algos, said):
    with pytest.raises(UserError, match=said):
        command.entries(algos, 1)


def test_a_flag_that_is_refused_ends_the_comparison(tmp_path, monkeypatch):
    """Every other run would be refused as well."""
    asked = []
    monkeypatch.setattr(
        command.shared_ray, "opened", lambda *_: contextlib.nullcontext(SimpleNamespace(poll=lambda: None))
    )
    monkeypatch.setattr(command, "environment_of", lambda *runs: {})
    monkeypatch.setattr(train_command, "run", lambda args, session: asked.append(args.openrlhf) or 2)
    parser = argparse.ArgumentParser()
    command.configure(parser)
    args = parser.parse_args(["--algos", "real", "grpo", "--out", str(tmp_path), "--actor.adam.lr", "fast"])
    assert command.run(args) == 2
    assert [words[-2:] for words in asked] == [["--actor.adam.lr", "fast"]]


@pytest.mark.parametrize("codes, expected", [([0, 0, 0, 0], 0), ([0, 1, 0, 0], 1), ([143, 0, 0, 0], 143)])
def test_jobs_share_the_runs(tmp_path, monkeypatch, codes, expected):
    opened = contextlib.nullcontext(SimpleNamespace(poll=lambda: None))
    monkeypatch.setattr(command.shared_ray, "opened", lambda *_: opened)
    monkeypatch.setattr(command, "environment_of", lambda *runs: {})

    def train(args, session):
        (tmp_path / f"ran {args.seed}").touch()
        code = codes[args.seed - 1]
        time.sleep(0.05 if code else 0.3)
        return code

    monkeypatch.setattr(train_command, "run", train)
    parser = argparse.ArgumentParser()
    command.configure(parser)
    words = ["--algos", "real", "--seeds", "4", "--jobs", "2", "--out", str(tmp_path)]
    assert command.run(parser.parse_args(words)) == expected
    ran = {int(path.name.removeprefix("ran ")) for path in tmp_path.glob("ran *")}
    assert ran <= {1, 2} if expected == 143 else ran == {1, 2, 3, 4}  # an interrupt ends all


def test_a_job_that_is_killed_is_told(tmp_path, monkeypatch):
    opened = contextlib.nullcontext(SimpleNamespace(poll=lambda: None))
    monkeypatch.setattr(command.shared_ray, "opened", lambda *_: opened)
    monkeypatch.setattr(command, "environment_of", lambda *runs: {})
    monkeypatch.setattr(train_command, "run", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    parser = argparse.ArgumentParser()
    command.configure(parser)
    with pytest.raises(UserError, match=r"a job was ended amid a run \(exit code 137\)"):
        command.run(parser.parse_args(["--algos", "real", "--seeds", "2", "--jobs", "2", "--out", str(tmp_path)]))


def test_a_session_that_does_not_start_is_a_line_of_its_job(tmp_path, monkeypatch, capfd):
    def refuse(*_):
        raise UserError("the session did not start")

    monkeypatch.setattr(command.shared_ray, "opened", refuse)
    monkeypatch.setattr(command, "environment_of", lambda *runs: {})
    parser = argparse.ArgumentParser()
    command.configure(parser)
    words = ["--algos", "real", "--seeds", "2", "--jobs", "2", "--out", str(tmp_path)]
    assert command.run(parser.parse_args(words)) == 2
    said = capfd.readouterr().out
    assert "compare: error: the session did not start" in said and "Traceback" not in said


def record(folder, **changes):
    folder.mkdir(parents=True)
    flags = {"--train.max_steps": 4, "--train.run_dir": str(folder)}
    about = {"recipe": "cpu", "algo": "real", "seed": 1, "status": "finished", "tree": "1" * 40}
    (folder / "run.json").write_text(json.dumps({**about, "flags": flags, **changes}))
    return folder


def test_finished_runs_are_not_run_again_and_other_lengths_are_refused(tmp_path):
    assert not command.finished(tmp_path / "new", 4)
    assert command.finished(record(tmp_path / "done"), 4)
    assert not command.finished(record(tmp_path / "broken", status="failed"), 4)
    with pytest.raises(UserError, match="a run of 4 steps, not of 8"):
        command.finished(tmp_path / "done", 8)


def test_a_run_made_with_other_flags_is_refused_and_named(tmp_path):
    words = ["--recipe", "cpu", "--algo", "real", "--seed", "1", "--runs-dir", str(tmp_path), "--run-name", "real-s1"]
    request = train_command.request_of(words)
    record(tmp_path / "real-s1", flags=train_command.recorded_flags(request.plan(tmp_path / "real-s1")))
    command.refuse_other_flags(tmp_path / "real-s1", request)
    faster = train_command.request_of([*words, "--resume", "--actor.adam.lr", "5e-4"])
    with pytest.raises(UserError, match=r"--actor.adam.lr 0.0001, not 0.0005. Choose another --out"):
        command.refuse_other_flags(tmp_path / "real-s1", faster)


def test_a_published_run_has_no_paths_of_the_machine_and_six_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = record(tmp_path / "comparison" / "runs" / "real-s1", data={str(tmp_path / "data" / "mine.jsonl"): "abc"})
    (run / "metrics.jsonl").write_text('{"phase": "train", "step": 1, "loss": 0.123456789}\n')
    (run / "model").mkdir()
    publish([run], tmp_path / "shared")
    published = tmp_path / "shared" / "runs" / "real-s1"
    assert sorted(path.name for path in published.iterdir()) == ["metrics.jsonl", "run.json"]
    assert str(tmp_path) not in (published / "run.json").read_text()
    assert json.loads((published / "run.json").read_text())["data"] == {"data/mine.jsonl": "abc"}
    assert json.loads((published / "metrics.jsonl").read_text()) == {"phase": "train", "step": 1, "loss": 0.123457}


def test_a_compact_copy_has_what_maps_and_predictions_read(tmp_path, monkeypatch):
    from real_openrlhf.report import collapse, maps

    monkeypatch.chdir(tmp_path)
    run = record(tmp_path / "comparison" / "runs" / "real-s1")
    read = ["rollout/pass_rate", "rollout/solve_none", "real/weight_cv", "real/weight_pos", "real/weight_neg"]
    read += ["real/score_std", "real/score_abs_max", "actor_grad_norm", "entropy_loss", "ppo_kl"]
    read += [key for key, _ in maps.COLUMNS.values()]
    line = dict.fromkeys([*read, "ratio/pos/low/share", "timing/generation", "update/rollouts_crc"], 0.123456789)
    (run / "metrics.jsonl").write_text(json.dumps({"phase": "train", "step": 1, "time": 1.5, **line}) + "\n")
    publish([run], tmp_path / "shared", compact=True)
    kept = json.loads((tmp_path / "shared" / "runs" / "real-s1" / "metrics.jsonl").read_text())
    assert kept == {"phase": "train", "step": 1, **dict.fromkeys(read, 0.1235)}
    assert all(value(kept) is not None for value, _ in collapse.SIGNALS.values())


def test_a_session_has_gpus_for_the_run_that_needs_most(monkeypatch):
    """A reference model apart is one more; where there are too few, Ray would wait for ever."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    apart = ("--no-train.colocate_all", "--vllm.num_engines", "1")
    needs = {algo: ["--recipe", "cpu", "--algo", algo, *apart] for algo in ("real", "grpo")}

    def gpus(*algos: str) -> int:
        environment = command.environment_of(*(needs[algo] for algo in algos))
        return json.loads(environment["RAY_OVERRIDE_RESOURCES"])["GPU"]

    assert (gpus("real"), gpus("grpo"), gpus("real", "grpo"), gpus("grpo", "real")) == (2, 3, 3, 3)
