import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from invented_runs import write_lines, write_run

from real_openrlhf.base.errors import UserError
from real_openrlhf.cli import main
from real_openrlhf.comparison import command, dry_run
from real_openrlhf.comparison import run_list as attempts
from real_openrlhf.comparison.run_list import entries
from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.recipes.plan import recorded_flags
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks import memory_estimate
from real_openrlhf.training.command import request_of
from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.tasks import default


def test_runs_are_named_after_what_they_are_seed_by_seed():
    made = entries(["grpo", "real --algo.real.tau 0.1", "real --algo.kl.use_loss --algo.kl.estimator k3"], 2)
    assert [entry.name for entry in made] == [
        *("grpo-s1", "real-tau-0.1-s1", "real-use_loss-estimator-k3-s1"),
        *("grpo-s2", "real-tau-0.1-s2", "real-use_loss-estimator-k3-s2"),
    ]
    assert made[1].flags == ("--algo.real.tau", "0.1")


def test_a_file_among_the_methods_is_an_objective_of_the_users_own():
    (mine,) = entries(["losses/my_loss.py:better --algo.real.tau 0.1"], 1)
    assert (mine.algo, mine.flags[:2]) == ("real", ("--algo.real.objective", "losses/my_loss.py:better"))
    assert mine.name == "real-objective-losses_my_loss.py_better-tau-0.1-s1"
    for spelt in shlex.quote(f"{Path.cwd()}/losses/my_loss.py:better"), "./losses/my_loss.py:better":
        assert entries([f"{spelt} --algo.real.tau 0.1"], 1)[0].name == mine.name


def test_a_grid_is_every_method_at_every_choice_seed_by_seed():
    grid = [["actor.adam.lr", "1e-4", "1e-3"], ["--train.batch_size", "16", "64"]]
    made = entries(["real", "grpo"], 2, 11, grid)
    assert len(made) == 2 * 2 * 2 * 2 and [entry.seed for entry in made] == [11] * 8 + [12] * 8
    assert [entry.name for entry in made[:3]] == [
        *("real-lr-1e-4-batch_size-16-s11", "grpo-lr-1e-4-batch_size-16-s11", "real-lr-1e-4-batch_size-64-s11"),
    ]
    assert made[0].flags == ("--actor.adam.lr", "1e-4", "--train.batch_size", "16")


ROOT = Path(__file__).parents[2]


def of(*words: str):
    """The runs of a command line, as `compare` has them."""
    parser = command.PARSER()
    command.configure(parser)
    return command.run_list(parser.parse_args(words))


def test_campaigns_have_the_flags_of_each_row_of_the_papers_tables():
    """docs/use/recipes.md names them."""
    section = (ROOT / "docs/use/recipes.md").read_text().partition("## Each row of the paper's tables")[2]
    rows = re.findall(r"^\| .*? \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    told = [words for row in rows[1:] for words in re.findall(r"`([^`]+)`", row)]
    told = [words.replace("...", "--algo real --algo.real.tau") for words in told]
    main, ablations = of("--campaign", "paper-1.5b"), of("--campaign", "ablations")
    made = {" ".join(["--algo", entry.algo, *entry.flags]) for entry in (*main.entries, *ablations.entries)}
    assert made == set(told)
    for table, recipe in (("1.5b", "qwen1.5b"), ("7b", "qwen7b"), ("dapo17k", "qwen1.5b-dapo17k")):
        runs = of("--campaign", f"paper-{table}")
        assert runs.entries == main.entries and runs.out == Path(f"paper-{table}")
        assert " ".join(runs.common) == f"--recipe {recipe}"
        assert runs.evaluation[:2] == ("--benchmarks", ",".join(BENCHMARKS))


def test_what_is_typed_wins_over_a_campaigns_file(tmp_path):
    own = tmp_path / "mine.toml"
    own.write_text(
        'recipe = "cpu"\nalgos = ["real", "grpo --actor.adam.lr 1e-3"]\nseeds = 2\n'
        'eval-flags = "--k 2"\n[grid]\nalgo.real.tau = [0.1, 0.5]\n[flags]\neval.steps = 5\n'
    )
    assert [entry.name for entry in of("--campaign", str(own)).entries][:3] == [
        *("real-tau-0.1-s1", "grpo-lr-1e-3-tau-0.1-s1", "real-tau-0.5-s1"),
    ]
    runs = of("--campaign", str(own), "--seeds", "1", "--algos", "dapo", "--eval.steps", "7", "--out", "here")
    assert [entry.name for entry in runs.entries] == ["dapo-tau-0.1-s1", "dapo-tau-0.5-s1"]
    assert runs.common[-3:] == ("--eval.steps=5", "--eval.steps", "7") and runs.out == Path("here")
    assert runs.request(runs.entries[0]).flags.text("--eval.steps") == "7"


def test_a_wrong_flag_of_one_method_is_told_before_the_first_run_starts(tmp_path, capsys):
    """All faults at once, each with the runs that have it; nothing is made."""
    algos = ("real", "grpo --actor.adam.lr fast", "dapo --algo.nonsense 1")
    assert main(["compare", "--algos", *algos, "--seeds", "2", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("error: ")[2].partition(":")[0] for line in said] == [
        "grpo-lr-fast-s1",
        "dapo-nonsense-1-s1",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--algos", "real --seed 7"], "--seed is of `train`"),
        (["--algos", "real", "real_bce --train.seed=7"], "--train.seed is of `train`"),
        (["--algos", "real --no-train.seed"], "--train.seed is of `train`"),
        (["--algos", "real --run-name x"], "--run-name is of `train`"),
        (["--algos", "real --runs-dir D"], "Use --out"),
        (["--ckpt.output_dir", "D"], "--ckpt.output_dir is of `train`"),
        (["--ckpt.path=D"], "Use --out, below which"),
        (["--algos", "real --dry-run"], "outside the quotes"),
        (["--grid", "train.seed", "1", "2"], "--train.seed is of `train`"),
        (["--grid", "algo", "real", "grpo"], "Use --algos"),
        (["--campaign", "it.toml"], "--train.seed is of `train`"),
        (["--eval-flags", "--k 2 --model X"], "--model in --eval-flags"),
        (["--eval-flags=--out=/tmp"], "--out in --eval-flags"),
        (["--eval-flags", "--compare a b"], "`real-openrlhf eval --compare` afterwards"),
        (["--eval-flags", "--benchmarks aime24"], "Use --benchmarks of `compare`"),
    ],
)
def test_what_a_comparison_sets_itself_is_refused_wherever_it_is_given(tmp_path, monkeypatch, words, said):
    """It would win over the comparison's own words: all seeds in one folder, or each run scored on one model."""
    monkeypatch.chdir(tmp_path)
    Path("it.toml").write_text("[grid]\ntrain.seed = [1, 2]\n")
    with pytest.raises(UserError, match=re.escape(said)):
        of("--benchmarks", "aime24", *words)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--algos", ""], "--algos names no algorithm"),
        (["--grid", "", "1"], "--grid names no flag"),
        (["--benchmarks", ""], "--benchmarks '' names no benchmark"),
        (["--benchmarks", ","], "--benchmarks ',' names no benchmark"),
        (["--first-seed", "2147483647", "--seeds", "2"], "--train.seed 2147483648: give 0 or more, and 2147483647"),
    ],
)
def test_words_with_which_no_run_could_start_are_refused(words, said):
    with pytest.raises(UserError, match=re.escape(said)):
        of(*words)


def test_an_empty_campaign_is_not_the_default_comparison(capsys):
    with pytest.raises(SystemExit):
        of("--campaign", "")
    assert "no such file" in capsys.readouterr().err


def test_two_settings_of_one_name_are_told_with_both_spellings():
    own = "real --algo.real.objective"
    both = f"{own} 'a b.py:f' and {own} a_b.py:f"
    with pytest.raises(UserError, match=re.escape(f"real-objective-a_b.py_f-s1: {both}. Remove one, or spell")):
        entries(["'a b.py:f'", "a_b.py:f"], 2)


@pytest.fixture
def cpu_task(tmp_path, monkeypatch):
    """An empty folder and a cache with the tiny model, as after a first run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    tiny_model.prepare(default("reverse"))
    return tmp_path


def test_a_dry_run_makes_no_model_and_tells_what_the_comparison_sets_by_itself(cpu_task, capsys):
    before = sorted(cpu_task.rglob("*"))
    words = ["--skill", "0.3", "--algos", "real", "grpo", "--seeds", "20", "--eval-flags=--k 2"]
    assert main(["compare", "--dry-run", *words]) == 0
    printed = capsys.readouterr().out
    said = printed
    assert "note: a model of skill 0.3 is pre-trained before the first run" in said
    assert "note: gradients are not clipped (--actor.max_norm 100)" in said
    assert "--eval-flags is not read" in said and "  and 16 more: --all" in said
    assert said.splitlines()[-1].startswith("nothing is wrong, ")
    assert len(printed.splitlines()) <= 60 and max(map(len, printed.splitlines())) <= 80
    assert sorted(cpu_task.rglob("*")) == before
    usual = default("reverse").skill
    assert main(["compare", "--dry-run", "--skill", f"{usual}"]) == 0
    assert f"note: --skill {usual} is what the recipe's model has anyway" in (capsys.readouterr().out)


def test_what_trains_the_same_is_trained_once(cpu_task, capsys):
    """Names and begun runs stay, so that a comparison of an earlier version goes on."""
    grid = ["--seeds", "2", "--grid", "algo.real.tau", "0.1", "0.10", "1.0", "--out", "out"]
    words = ["compare", "--algos", "real", "real --actor.max_norm 100", "grpo", "grpo --actor.adam.lr fast", *grid]

    def names() -> list[str]:
        assert main([*words, "--status"]) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()]

    wrong = [f"grpo-lr-fast-tau-{tau}" for tau in ("0.1", "0.10", "1.0")]  # nobody knows what these would train
    once = ["real-tau-0.1", "grpo-tau-0.1", *wrong[:2], "real-tau-1.0", wrong[2]]
    Path("out").mkdir()
    assert names() == [f"{name}-s{seed}" for seed in (1, 2) for name in once]
    words.remove("grpo --actor.adam.lr fast")
    entry = next(entry for entry in of(*words[1:]).entries if entry.name == "grpo-tau-1.0-s2")
    plan = of(*words[1:]).request(entry).flags
    record(Path("out/runs", entry.name), flags=recorded_flags(plan), algo="grpo", seed=2)
    kept = ["real-tau-0.1-s1", "real-tau-1.0-s1", "grpo-tau-1.0-s1"]
    assert names() == [*kept, *(name.replace("s1", "s2") for name in kept)]
    assert main([*words, "--dry-run"]) == 2  # with other data, but with the plan of this comparison
    assert f"{entry.name} was made with other data" in capsys.readouterr().err
    (Path("out/runs", entry.name, "run.json")).unlink()
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "note: 12 runs are left out, as others train the same: real-max_norm-100-tau-0.1 as" in said
    assert said.count("is not read") == 1


@pytest.mark.parametrize("free_gb, said", [(106, True), (108, False)])
def test_a_disk_too_small_for_what_all_runs_keep_is_told(tmp_path, monkeypatch, free_gb, said):
    """A run keeps two checkpoints of 25 GB and a model of 3.6 GB; while it runs, it has a third checkpoint."""
    monkeypatch.setattr(dry_run.shutil, "disk_usage", lambda place: argparse.Namespace(free=free_gb * 1e9))
    shape = memory_estimate.shape_of(memory_estimate.KNOWN_CONFIGS["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"])
    runs = of(
        "--recipe", "qwen1.5b", "--algos", "real", "--seeds", "3", "--benchmarks", "none", "--out", str(tmp_path)
    )
    record(tmp_path / "runs" / "real-s1")  # finished, so the disk already has it
    record(tmp_path / "runs" / "real-s2", status="failed")
    with open(tmp_path / "runs" / "real-s2" / "half", "wb") as file:
        file.truncate(round(14 * shape.parameters))
    notes = dry_run.cost_of(runs, runs.entries)[1]
    assert [note.partition(", and")[0] for note in notes] == ["together the runs need 107 GB"] * said


def test_tiny_models_are_compared_without_clipping_unless_asked(cpu_task):
    def norms(*words: str) -> list[str]:
        runs = of(*words, "--seeds", "1")
        return [runs.request(entry).flags.text("--actor.max_norm") for entry in runs.entries]

    assert norms("--algos", "real", "grpo --actor.max_norm 2") == ["100", "2"]
    assert norms("--algos", "real", "--actor.max_norm", "1") == ["1"]
    assert (
        norms("--algos", "real", "--recipe", "qwen7b")
        == norms("--algos", "real", "--recipe", "cpu-smollm2")
        == ["1.0"]
    )


# ------------------------------------------------------------------------------------------- who works on which run

HOLD = """
import sys, time
from pathlib import Path
from real_openrlhf.comparison import run_list as attempts
with attempts.taken(Path(sys.argv[1]), "real-s1", int(sys.argv[2])) as ended:
    print("none" if ended is None else "taken", flush=True)
    sys.stdin.readline()
    ended and ended(0, None)
"""


@pytest.fixture
def shell(tmp_path):
    """shell(number) -> a process that tries to take that attempt, and what it says; its own until it reads a line."""
    started = []

    def start(number: int, **environment: str) -> tuple[subprocess.Popen, str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", HOLD, str(tmp_path), str(number)],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1], started[-1].stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_an_attempt_is_one_processs_until_it_ends_or_dies(tmp_path, shell):
    assert attempts.newest(tmp_path, "real-s1") is None
    first, said = shell(1)
    assert said == "taken" and attempts.newest(tmp_path, "real-s1").is_held()
    assert shell(1)[1] == "none"
    first.kill()
    first.wait()
    held = attempts.newest(tmp_path, "real-s1")
    assert (held.number, held.is_held(), held.ended) == (1, False, None)
    second, said = shell(2)
    assert said == "taken" and attempts.newest(tmp_path, "real-s1").is_held()
    second.communicate("\n")
    done = attempts.newest(tmp_path, "real-s1")
    assert (done.number, done.is_held(), done.record["code"]) == (2, False, 0) and done.ended


def test_one_of_many_takes_an_attempt(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path), "1"]
    shells = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(6)]
    assert sorted(shell.stdout.readline().strip() for shell in shells) == ["none"] * 5 + ["taken"]
    for shell in shells:
        shell.communicate("\n")


@pytest.mark.parametrize(
    "silent, job, held", [(10, "7", True), (400, "7", False), (10, "8", False)], ids=["alive", "dead", "requeued"]
)
def test_another_machines_attempt_is_held_while_it_touches_its_file(tmp_path, monkeypatch, silent, job, held):
    """By the file server's clock. SLURM's requeued task is the same task: its own attempt is free at once."""
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    path = tmp_path / "real-s1.3.json"
    path.write_text(json.dumps({"host": "elsewhere", "process": 1, "job": f"{job}.0"}))
    os.utime(path, (time.time() - silent,) * 2)
    newest = attempts.newest(tmp_path, "real-s1")
    assert (newest.number, newest.is_held()) == (3, held)


class Failing:
    """In place of the trainer: each training ends with this code, after these steps."""

    def __init__(self, code, steps=0, checkpoint=False):
        self.code, self.steps, self.checkpoint, self.tried = code, steps, checkpoint, []

    def __call__(self, runs):
        self.runs = runs
        return self

    def one(self, entry):
        self.tried.append(entry.name)
        steps = [{"phase": "train", "step": n, "time": time.time()} for n in range(1, self.steps + 1)]
        shutil.rmtree(self.runs.path(entry), ignore_errors=True)
        path = record(self.runs.path(entry), status="failed")
        write_lines(path, steps)
        if self.checkpoint:
            (path / "checkpoints/_actor/global_step5").mkdir(parents=True)
            (path / "checkpoints/_actor/global_step5/manifest.json").touch()
        return self.code, "this GPU is broken"


@pytest.mark.parametrize("steps, tried", [(0, ["real-s1", "grpo-s1"]), (3, ["real-s1", "grpo-s1", "dapo-s1"])])
def test_a_machine_on_which_two_methods_do_not_start_takes_no_more_runs(tmp_path, monkeypatch, capsys, steps, tried):
    """One bad node of a cluster would fail all runs that wait."""
    runs, trainer = of("--algos", "real", "grpo", "dapo", "--seeds", "1", "--out", str(tmp_path)), Failing(1, steps)
    monkeypatch.setattr(command, "Trainer", trainer)
    assert command._work(runs, runs.entries) == 1
    assert trainer.tried == tried
    command._work(runs, runs.entries)  # the same command again: what was not tried comes first
    assert trainer.tried[len(tried)] == (tried[0] if steps else "dapo-s1")
    assert ("grpo and real failed before a first step" in capsys.readouterr().err) == (not steps)


def test_a_time_limit_below_the_first_checkpoint_ends_the_requeues(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("REAL_TIME_LIMIT", str(tmp_path / "warned"))
    for restarts, checkpoint, said, code in (
        *((0, False, "near\n", 143), (1, True, "near\n", 143), (1, False, "", 143)),
        (1, False, "near\n", 1),
    ):
        (tmp_path / "warned").write_text(said)
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
        monkeypatch.setattr(command, "Trainer", Failing(143, checkpoint=checkpoint))
        runs = of(
            "--algos", "real", "--seeds", "1", "--out", str(tmp_path / f"{restarts}{checkpoint}{code}{said[:1]}")
        )
        assert command._work(runs, runs.entries) == code
        assert ("Give a longer time limit" in capsys.readouterr().err) == (code == 1)


def test_the_state_of_each_run_from_its_files_alone(tmp_path, capsys):
    def said() -> list[str]:
        words = ["compare", "--status", "--algos", "real", "grpo", "dapo", "--seeds", "1", "--out", str(tmp_path)]
        assert main(words) == 0
        return capsys.readouterr().out.splitlines()

    assert said() == ["real-s1  waiting", "grpo-s1  waiting", "dapo-s1  waiting"]
    steps = [{"phase": "train", "step": n, "time": 100.0 + 3 * n} for n in (1, 2, 3)]
    write_lines(record(tmp_path / "runs" / "real-s1", flags={"--train.max_steps": 40}, status="running"), steps)
    record(tmp_path / "runs" / "grpo-s1")
    with run_folder.only_one(tmp_path / "runs" / "real-s1"):
        assert said()[:2] == ["real-s1  running   step 3 of 40, 1 min 51 s left", "grpo-s1  finished"]
    assert said()[0] == "real-s1  waiting   after step 3"
    with attempts.taken(tmp_path / "queue", "dapo-s1", 1) as ended:
        assert said()[2] == f"dapo-s1  running   starting on {platform.node()}"
        ended(1, "the disk is full")
    assert said()[2] == "dapo-s1  failed    the disk is full"


def test_the_progress_of_an_evaluation_is_the_count_of_its_samples(tmp_path, capsys):
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"prompt": "12=", "label": "21"}\n')
    run = record(tmp_path / "runs" / "real-s1")
    (run / "eval").mkdir()
    (run / "eval" / "samples.jsonl").write_text("{}\n" * 3 + "{")  # the fourth is being written
    words = ["--algos", "real", "--seeds", "1", "--benchmarks", str(asked), "--out", str(tmp_path)]
    with run_folder.only_one(run):
        assert main(["compare", "--status", *words]) == 0
    assert capsys.readouterr().out == "real-s1  running   evaluation, 3 samples\n"


def record(folder, **changes):
    flags = {"--train.max_steps": 4, "--train.run_dir": str(folder), **changes.pop("flags", {})}
    return write_run(folder.parent, flags=flags, **{"name": folder.name, "tree": "1" * 40, **changes})


def test_a_run_made_with_other_flags_is_refused_and_named(tmp_path):
    words = ["--recipe", "cpu", "--algo", "real", "--seed", "1", "--runs-dir", str(tmp_path), "--run-name", "real-s1"]
    request = request_of(words)
    record(tmp_path / "real-s1", flags=recorded_flags(request.flags_in(tmp_path / "real-s1")), data=None)
    command.refuse_other_inputs(tmp_path / "real-s1", request)
    for flag, before, after in (("--actor.adam.lr", "0.0001", "0.0005"), ("--train.max_steps", "40", "8")):
        other = request_of([*words, "--resume", flag, after])
        with pytest.raises(UserError, match=f"{flag} {before}, not {after}. Choose another --out"):
            command.refuse_other_inputs(tmp_path / "real-s1", other)


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
    record["flags"] = recorded_flags(request.flags_in(folder))
    record |= {key: provenance.hashes(paths) for key, paths in run_inputs.own_files(request.flags).items()}
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
