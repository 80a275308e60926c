"""`compare`: names, what is refused before the first run, and the loop over the runs, with a stand-in for `train`.

tests/e2e/test_train.py runs the same loop with real trainings.
"""

import json
import os
import re
import shlex
import threading
import time
from pathlib import Path

import pytest
from invented_runs import write_lines, write_run

from real_openrlhf.base.errors import UserError
from real_openrlhf.cli import main
from real_openrlhf.comparison import command
from real_openrlhf.comparison import runs as comparison_runs
from real_openrlhf.comparison.entries import entries
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.runs.run_record import own_files, recorded_flags
from real_openrlhf.training.command import request_of
from real_openrlhf.training.launch_target import LaunchTarget

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "scripts"


def of(*words: str) -> comparison_runs.Runs:
    """The runs of a command line."""
    parser = command.PARSER()
    command.configure(parser)
    return comparison_runs.Runs.from_args(parser.parse_args(words))


def test_runs_are_named_after_what_they_are_seed_by_seed():
    """In each cell of a grid; files of this folder have one name however they are spelt."""
    made = entries(["grpo", "real --algo.real.tau 0.1", "real --algo.kl.use_loss --algo.kl.estimator k3"], 2)
    assert [entry.name for entry in made] == [
        *("grpo-s1", "real-tau-0.1-s1", "real-use_loss-estimator-k3-s1"),
        *("grpo-s2", "real-tau-0.1-s2", "real-use_loss-estimator-k3-s2"),
    ]
    assert made[1].flags == ("--algo.real.tau", "0.1")
    parser = command.PARSER()
    command.configure(parser)
    grid = parser.parse_args("--grid actor.adam.lr 1e-4 1e-3 --grid --train.batch_size 16 64 --steps 1".split()).grid
    made = entries(["real", "grpo"], 2, 11, grid)
    assert len(made) == 2 * 2 * 2 * 2 and [entry.seed for entry in made] == [11] * 8 + [12] * 8
    assert [entry.name for entry in made[:3]] == [
        *("real-lr-1e-4-batch_size-16-s11", "grpo-lr-1e-4-batch_size-16-s11", "real-lr-1e-4-batch_size-64-s11"),
    ]
    (mine,) = entries(["losses/my_loss.py:better --algo.real.tau 0.1"], 1)
    assert (mine.algo, mine.flags[:2]) == ("real", ("--algo.real.objective", "losses/my_loss.py:better"))
    assert mine.name == "real-objective-losses_my_loss.py_better-tau-0.1-s1"
    for spelt in shlex.quote(f"{Path.cwd()}/losses/my_loss.py:better"), "./losses/my_loss.py:better":
        assert entries([f"{spelt} --algo.real.tau 0.1"], 1)[0].name == mine.name


def test_each_method_gets_each_seed():
    runs = of("--algos", "real", "grpo", "--seeds", "2")
    given = [(entry.algo, runs.request(entry).run.text("--train.seed")) for entry in runs.entries]
    assert given == [("real", "1"), ("grpo", "1"), ("real", "2"), ("grpo", "2")]


def script(name: str) -> list[str]:
    """The words that a script gives to `compare`."""
    text = (SCRIPTS / name).read_text().replace("\\\n", " ")
    return shlex.split(text.partition('compare_gpu.sh" ')[2].replace('"$@"', ""))


def test_the_papers_tables_have_the_flags_of_each_row():
    """docs/use/training.md names them."""
    section = (ROOT / "docs/use/training.md").read_text().partition("## The paper's tables")[2]
    rows = re.findall(r"^\|.*?\|(.*)\|$", section.partition("\n## ")[0], re.MULTILINE)
    told = [words for row in rows[1:] for words in re.findall(r"`([^`]+)`", row)]
    told = [words.replace("...", "--algo real --algo.real.tau") for words in told]
    told = [words for words in told if words.startswith("--algo ")]  # the second table is of differences
    first, ablations = of(*script("paper_table_1.5b.sh")), of(*script("paper_ablations.sh"))
    made = {" ".join(["--algo", entry.algo, *entry.flags]) for entry in (*first.entries, *ablations.entries)}
    assert made == set(told)
    for table, recipe in (("1.5b", "qwen1.5b"), ("7b", "qwen7b"), ("dapo17k", "qwen1.5b-dapo17k")):
        runs = of(*script(f"paper_table_{table}.sh"))
        assert runs.entries == first.entries and runs.out == Path(f"paper_table_{table}")
        assert " ".join(runs.common) == f"--recipe {recipe}" and runs.evaluation == ("--benchmarks", "all")


def test_a_wrong_flag_of_one_method_is_told_before_the_first_run_starts(tmp_path, capsys):
    """All faults at once, each with the run that has it; nothing is made."""
    algos = ("real", "grpo --actor.adam.lr fast", "dapo --algo.nonsense 1")
    assert main(["compare", "--algos", *algos, "--seeds", "2", "--out", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("error: ")[2].partition(":")[0] for line in lines] == [
        "grpo-lr-fast-s1",
        "dapo-nonsense-1-s1",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("recipe, norm", [("cpu", "100"), ("cpu-like-gpu", "100"), ("qwen7b", "1.0")])
def test_a_comparison_clips_as_a_single_run_of_its_recipe_does(recipe, norm):
    """On the tiny model a norm of 1 would clip nearly all updates of REAL and few of GRPO's."""
    runs = of("--algos", "real", "grpo", "grpo --actor.max_norm 2", "--seeds", "1", "--recipe", recipe)
    alone = request_of(["--recipe", recipe]).run
    found = [runs.request(entry).run.text("--actor.max_norm") for entry in runs.entries]
    assert found == [norm, norm, "2"] and alone.text("--actor.max_norm") == norm


def record(folder, **changes):
    flags = {"--train.max_steps": 4, "--train.run_dir": str(folder), **changes.pop("flags", {})}
    return write_run(folder.parent, flags=flags, **{"name": folder.name, "tree": "1" * 40, **changes})


def test_a_run_made_with_other_flags_is_refused_and_named(tmp_path):
    words = ["--recipe", "cpu", "--algo", "real", "--seed", "1", "--runs-dir", str(tmp_path), "--run-name", "real-s1"]
    request = request_of(words)
    path = record(tmp_path / "real-s1", flags=recorded_flags(request.run), data=None)
    comparison_runs.refuse_other_inputs(path, run_folder.read(path), request)
    for flag, before, after in (("--actor.adam.lr", "0.0001", "0.0005"), ("--train.max_steps", "40", "8")):
        other = request_of([*words, "--resume", flag, after])
        with pytest.raises(UserError, match=f"{flag} {before}, not {after}. Choose another --out"):
            comparison_runs.refuse_other_inputs(path, run_folder.read(path), other)


def test_a_comparison_with_other_flags_that_is_starting_is_seen(training):
    """Before it has written a run's record, and also by one that was checking its flags then."""
    stand_in, first = training(), of(*THREE)
    other = of(*THREE, "--steps", "8")
    with first.taken(first.entries[0]) as ours:
        assert ours
        for entries in (other.entries, other.entries[:1]):
            with pytest.raises(UserError, match="real-s1 was made with --train.max_steps 40, not 8. Choose another"):
                command.work(other, entries)
        with pytest.raises(UserError, match="Choose another --out"):
            other.refuse_other_inputs(other.entries)
        first.refuse_other_inputs(first.entries)
    assert stand_in.tried == [] and command.work(other, other.entries) == 0


def test_a_starting_run_of_ones_own_loss_is_left_to_its_shell(training, tmp_path):
    """It has told its flags, and the hashes of its files follow with its record."""
    loss = tmp_path / "mine.py"
    loss.write_text("def mine(scores, groups, settings):\n    return groups.sum(scores**2, groups.valid)\n")
    stand_in, runs = training(), of("--algos", f"{loss}:mine", "--seeds", "1")
    with runs.taken(runs.entries[0]) as ours:
        assert ours and command.work(runs, runs.entries) == 0 and stand_in.tried == []


def test_a_finished_run_of_other_files_of_those_names_is_refused(tmp_path, capsys):
    """Without it the same command would show the results of the files as they were."""
    loss, runs = tmp_path / "mine.py", tmp_path / "out" / "runs"
    body = "def mine(scores, groups, settings):\n    return groups.sum({}, groups.valid)\n"
    loss.write_text(body.format("scores**2"))
    reward, data = tmp_path / "reward.py", tmp_path / "data.jsonl"
    reward.write_text("def reward_func(queries, prompts, labels):\n    return {'rewards': [1.0 for _ in queries]}\n")
    data.write_text(json.dumps({"prompt": "1=", "label": "1"}) + "\n")
    words = ["--algos", f"{loss}:mine", "--seeds", "1", "--out", str(tmp_path / "out")]
    words += ["--reward.remote_url", str(reward), "--data", str(data)]
    (entry,) = of(*words).entries
    request = of(*words).request(entry)
    folder = write_run(runs, "real", steps=40, name=entry.name)
    record = json.loads((folder / "run.json").read_text())
    record["flags"] = recorded_flags(request.run)
    record |= {key: provenance.hashes(paths) for key, paths in own_files(request.run).items()}
    (folder / "run.json").write_text(json.dumps(record))
    assert main(["compare", *words, "--dry-run"]) == 0
    for file, after, said in (
        (loss, body.format("scores"), "another objective"),
        (reward, reward.read_text() + "# another\n", "another reward file"),
        (data, data.read_text() * 2, "other data"),
    ):
        before = file.read_text()
        file.write_text(after)
        assert main(["compare", *words, "--dry-run"]) == 2
        assert f"was made with {said}" in capsys.readouterr().err
        file.write_text(before)
    assert main(["compare", *words, "--dry-run"]) == 0


def test_a_dry_run_says_what_each_method_needs_and_what_all_runs_cost(capsys):
    words = ("--recipe", "qwen1.5b-1gpu", "--seeds", "2", "--rollout.batch_size", "32", "--train.batch_size", "64")
    assert main(["compare", *words, "--steps", "300", "--algos", "grpo", "real", "--dry-run"]) == 0
    said = capsys.readouterr().out
    for each in ("grpo-s1: time: ", "real-s1: time: ", "grpo-s1: memory per GPU: ", "grpo-s1: this run needs 1 GPU"):
        assert f"note: {each}" in said and said.count(each) == 1
    rent = re.findall(r", ([\d.]+) to ([\d.]+) hours and ", said)
    assert said.endswith("Flags of all runs OK. Benchmarks after training: none\n")
    low, high, disk = re.findall(
        r"in all: ([\d.]+) to ([\d.]+) hours, .* and ([\d.]+) GB of disk for 4 runs, without evaluation", said
    )[0]
    for total, each in ((low, [low for low, _ in rent]), (high, [high for _, high in rent])):
        assert float(total) == pytest.approx(2 * sum(map(float, each)), rel=0.05) and len(each) == 2
    assert float(disk) > 4 * 70
    assert main(["compare", *words, "--train.max_steps", "0", "--dry-run"]) == 0
    assert "in all: " not in capsys.readouterr().out  # an epoch's length is not forecast


class Training:
    """In place of `train`: each run of these methods fails, after these steps; the others finish."""

    def __init__(self, failing=(), code=1, made=0, seconds=0.0):
        self.failing, self.code, self.made, self.seconds = failing, code, made, seconds
        self.tried: list[str] = []

    def __call__(self, args) -> int:
        path, fails = args.runs_dir / args.run_name, args.algo in self.failing
        self.tried.append(args.run_name)
        path.mkdir(parents=True, exist_ok=True)
        with run_folder.only_one(path):
            time.sleep(self.seconds)
            rows = [{"phase": "train", "step": n, "time": time.time(), "reward": 0.5} for n in range(1, 4)]
            rows += [{"phase": "eval", "step": 3, "time": time.time(), "eval_x_pass1": 0.5}]
            write_lines(path, rows[: self.made if fails else 4])
            flags = recorded_flags(request_of([*args.words, "--resume"]).run)
            ending = {"status": "failed", "reason": "no memory"} if fails else {"status": "finished", "reason": None}
            seed = int(args.words[args.words.index("--seed") + 1])
            about = {"name": path.name, "algo": args.algo, "recipe": "cpu", "seed": seed, "flags": flags}
            times = {"started": str(len(self.tried)), "finished": "2026-11-25T00:00:00+00:00"}
            run_folder.write(path, {**about, "data": None, **times, **ending})
        return self.code if fails else 0


@pytest.fixture
def training(tmp_path, monkeypatch):
    """training(failing, ...) stands in for `train`."""
    monkeypatch.chdir(tmp_path)
    parse = command.train_command.parse

    def with_words(words):
        args = parse(words)
        args.words = words
        return args

    def use(*failing, **more) -> Training:
        training = Training(failing, **more)
        monkeypatch.setattr(command.train_command, "parse", with_words)
        monkeypatch.setattr(command.train_command, "run", training)
        return training

    return use


THREE = ("--algos", "real", "grpo", "dapo", "--seeds", "1", "--out", "out")


def test_a_failing_method_does_not_end_the_others_and_is_tried_once_a_call(training, monkeypatch):
    """Whatever the clock says: by its times each ending lies before the call, as on a clock that was set back."""
    stand_in, runs = training("grpo"), of(*THREE)
    assert command.work(runs, runs.entries) == 1
    assert stand_in.tried == ["real-s1", "grpo-s1", "dapo-s1"]
    stand_in.failing = ()
    left = [entry for entry in runs.entries if not runs.is_done(entry)]
    assert command.work(runs, left) == 0
    assert stand_in.tried[3:] == ["grpo-s1"]


def test_an_interrupted_run_ends_the_call_and_is_the_first_of_the_next(training, monkeypatch):
    stand_in, runs = training("grpo", code=143), of(*THREE)
    assert command.work(runs, runs.entries) == 143
    assert stand_in.tried == ["real-s1", "grpo-s1"]


def test_a_shell_has_the_gpus_of_its_largest_run_for_all_of_them(training, monkeypatch):
    asked: list[int] = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(command, "check", lambda *_: [])
    monkeypatch.setattr(command, "report", lambda _: None)
    monkeypatch.setattr(LaunchTarget, "take_gpus", lambda _, n: asked.append(n) or {"CUDA_VISIBLE_DEVICES": "1,3"})
    stand_in = training()
    apart = "--no-train.colocate_all --no-vllm.enable_sleep --no-ds.enable_sleep"
    assert main(["compare", "--recipe", "qwen1.5b-1gpu", "--algos", "real", f"real {apart}", "--seeds", "1"]) == 0
    assert asked == [2] and len(stand_in.tried) == 2 and os.environ["CUDA_VISIBLE_DEVICES"] == "1,3"


@pytest.mark.parametrize("failing", [(), ("grpo",)])
def test_shells_share_the_runs(training, monkeypatch, failing):
    """Two threads: locks of two open files exclude each other as those of two processes do."""
    monkeypatch.setattr(command, "exit_code", lambda _, run: run())  # which sets the process's streams
    stand_in, runs = training(*failing, seconds=0.2), of(*THREE)
    shells = [threading.Thread(target=command.work, args=(runs, runs.entries)) for _ in range(3)]
    for shell in shells:
        shell.start()
    for shell in shells:
        shell.join(60)
    assert sorted(stand_in.tried) == sorted(entry.name for entry in runs.entries)
    assert all(runs.is_done(entry) for entry in runs.entries if entry.algo not in failing)


def test_a_run_whose_shell_was_killed_is_taken_over_when_its_processes_are_gone(training):
    stand_in, runs = training(), of(*THREE)
    flags = recorded_flags(runs.request(runs.entries[0]).run)
    path = record(runs.path(runs.entries[0]), status="running", flags=flags, data=None)
    with run_folder.only_one(path):
        assert command.work(runs, runs.entries) == 0
    assert stand_in.tried == ["grpo-s1", "dapo-s1"]
    assert command.work(runs, runs.entries) == 0
    assert stand_in.tried[2:] == ["real-s1"]


def test_the_command_prints_its_table_and_what_is_missing(training, capsys, monkeypatch):
    training("grpo", made=2)
    monkeypatch.setattr(command, "check", lambda *_: [])
    assert main(["compare", *THREE]) == 1
    said = capsys.readouterr()
    assert (
        "3 runs, 0 finished" in said.out
        and Path("out/report/tables/summary.md").read_text() in said.out
        and "report: " in said.out
    )
    assert said.err.splitlines()[-1].startswith("missing: grpo-s1. Run the same command again")
