"""The command line, the checks without OpenRLHF, and a run's life with another program in the trainer's place."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_runs import run_flags

import real_openrlhf
import same_answer
from real_openrlhf.base import signals
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.run_files import PHASE, enter
from real_openrlhf.cli import main
from real_openrlhf.flags import words as flag_words
from real_openrlhf.machine import nvidia
from real_openrlhf.rewards.calls import Fault, RewardCalls
from real_openrlhf.rewards.variables import NAMES
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command, trainer_process
from real_openrlhf.training.launch_target import CPU_ENVIRONMENT, LaunchTarget
from real_openrlhf.training.progress import Progress, last_error, summary
from real_openrlhf.training.start import Start
from real_openrlhf.training.trainer_process import STALLED, Watch, supervise


def place(address=None, gpus=0, on_cpu=False) -> LaunchTarget:
    return LaunchTarget(address=address, gpus_here=gpus, gpu_gb=None, on_cpu=on_cpu)


# ------------------------------------------------------------------------------------------- the command line


def test_openrlhfs_flags_pass_through_in_order_between_ours():
    words = "--actor.adam.betas 0.9 0.95 --algo grpo --ds.overlap_comm --algo.kl.target=-1.5".split()
    args = command.parse(words)
    assert args.algo == "grpo"
    assert args.openrlhf == ["--actor.adam.betas", "0.9", "0.95", "--ds.overlap_comm", "--algo.kl.target=-1.5"]


def test_flags_are_split_into_words_switches_and_those_taken_out():
    words = ["--a.b", "1", "-2", "--switch", "--c=x=y", "--no-d.e", "--f", "3"]
    assert flag_words.split_flags(words) == (
        {"--a.b": ("1", "-2"), "--switch": (), "--c": ("x=y",), "--f": ("3",)},
        ["--d.e"],
    )
    last = (["--a", "1", "--a", "2"], ["--no-a", "--a", "2"], ["--a", "1", "--no-a"])  # of two words about one flag
    assert [flag_words.split_flags(words) for words in last] == [*[({"--a": ("2",)}, [])] * 2, ({}, ["--a"])]
    for stray in (["word"], ["--no-x", "word"]):
        with pytest.raises(UserError, match="'word' follows no flag"):
            flag_words.split_flags(stray)


def test_shorthands_are_openrlhfs_flags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--recipe qwen7b --model /m --data dapo17k --seed 7 --max-steps 3 --gpus 4 --nodes 2".split()
    request = command.request_of(words)
    assert request.user == {
        "--actor.model_name_or_path": ("/m",),
        "--data.prompt_dataset": (str(tmp_path / "data/dapo17k.jsonl"),),
        "--train.seed": ("7",),
        "--train.max_steps": ("3",),
        "--actor.num_gpus_per_node": ("4",),
        "--actor.num_nodes": ("2",),
    }
    assert request.stem == "qwen7b-real-s7"


def test_a_loss_of_ones_own_is_an_algorithm_and_the_last_one_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('algo = "mine.py:f"\n')
    request = command.request_of(["--config", "mine.toml"])
    assert (request.args.algo, request.user) == ("real", {"--algo.real.objective": (f"{tmp_path}/mine.py:f",)})
    request = command.request_of(["--config", "mine.toml", "--algo", "grpo"])
    assert (request.args.algo, request.user) == ("grpo", {})


# ------------------------------------------------------------------------------------------- where it runs


def test_what_keeps_most_responses_from_training_is_told_once_with_the_kind_of_fault(tmp_path, capsys):
    line = {
        "phase": "train",
        "time": 1.0,
        "rollout/frac_ungraded": 0.75,
        "reward/failed_no_answer": 0.7,
        "reward/failed_x": 0.05,
        "rollout/truncated_rate": 1.0,
    }
    progress = Progress(tmp_path, 3, tmp_path / "train.log")
    lines = [line | {"step": 1, "rollout/frac_ungraded": 0.5}, line | {"step": 2}, line | {"step": 3}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    progress.update()
    told = [line for line in capsys.readouterr().out.splitlines() if "of this step" in line]
    assert told == [
        "all responses of this step are cut at the length limit. Raise --rollout.max_new_tokens or --data.max_len",
        "75% of this step's responses are ungraded, reward/failed_no_answer, and train nothing. "
        f"See {tmp_path / 'train.log'}",
    ]


def test_a_slow_start_and_what_follows_the_last_step_are_told(tmp_path, capsys, monkeypatch):
    """A minute without a word would look like a run that hangs, and so would `0 s left`."""
    monkeypatch.setattr("real_openrlhf.training.progress.MINUTE", 0)
    log, metrics = tmp_path / "train.log", tmp_path / "metrics.jsonl"
    log.write_text("of a run before\n")
    progress = Progress(tmp_path, 3, log)
    progress.update()
    with log.open("a") as file:
        file.write("\x1b[36m(RolloutRayActor pid=7)\x1b[0m Loading weights\n\n")
    progress.update()
    for step, phase in ((1, "update"), (2, "generation and rewards"), (3, "checkpoint")):
        with metrics.open("a") as file:
            file.write(json.dumps({"phase": "train", "step": step, "time": 7.0 * step}) + "\n")
        (tmp_path / ".phase").write_text(phase)
        progress.update()
    (tmp_path / ".phase").write_text("generation and rewards")
    progress.update()
    told = capsys.readouterr().out.splitlines()[2:]
    assert told == [
        "starting since 0 s; its output ends: no output yet",
        "starting since 0 s; its output ends: (RolloutRayActor pid=7) Loading weights",
        "step    1/3  0.0 s",
        "step    2/3  0.0 s  7 s left",
        "step    3/3  0.0 s",
        "saving",
        "evaluating",
    ]


def test_a_reward_function_that_raises_is_told_at_once_and_its_share_at_the_end(tmp_path, capsys, caplog):
    (log, metrics), calls = (tmp_path / name for name in ("train.log", "metrics.jsonl")), RewardCalls(None)
    log.write_text("of a run before: the reward function failed (raises)\n")
    progress = Progress(tmp_path, 3, log)
    for number in range(2):
        calls.failed(Fault("raises", f"ValueError: the\njudge is out, {number}"), "1 + 1 =")
        (warning, *_) = caplog.messages
        with log.open("a") as file:
            file.write(f"\x1b[36m(RolloutRayActor pid=7)\x1b[0m {warning}\n")
        progress.update()
    told = [line for line in capsys.readouterr().out.splitlines() if "failed" in line]
    assert told == [
        "the reward function failed (raises): ValueError: the judge is out, 0; prompt '1 + 1 ='; its response is "
        f"ungraded, 1 so far. Further ones: {log}"
    ]
    for _ in range(98):
        calls.failed(Fault("raises", "again"), "1 + 1 =")
    assert [re.search(r"(\d+) so far", message)[1] for message in caplog.messages] == ["1", "10", "100"]
    steps = [{"phase": "train", "step": 1, "time": 1.0}, {"reward/failed_raises": 0.5}, {"reward/failed_raises": 0.25}]
    metrics.write_text("".join(json.dumps(steps[0] | step) + "\n" for step in steps))
    assert summary(tmp_path).endswith("\nungraded, the reward function failed (raises): 25.0% of all responses")


def test_every_variable_that_the_reward_files_read_is_carried():
    package = Path(real_openrlhf.__file__).parent
    rooms = (package / "rewards", package / "hooks/engine", Path(same_answer.__file__).parent)
    files = [file for room in rooms for file in room.rglob("*.py")]
    texts = [file.read_text() for file in files]
    reads = re.compile(r'(?:environ\.get|_setting)\("((?:REAL|SAME_ANSWER)_\w+)"')
    read = {name for text in texts for name in reads.findall(text)}
    assert read - {"SAME_ANSWER_FAULTS"} == {*NAMES}  # the tests' own


def test_too_few_gpus_and_nodes_without_a_cluster_are_refused(monkeypatch):
    assert [*place(on_cpu=True).launch_problems(run_flags("cpu"))] == []
    (problem,) = place(on_cpu=True).launch_problems(run_flags("cpu", user={"--ds.use_liger_kernel": ()}))
    assert problem.startswith("--ds.use_liger_kernel: liger-kernel is not installed here")
    monkeypatch.setattr(nvidia, "environment_for_cpu", lambda: False)
    (problem,) = place(gpus=4).launch_problems(run_flags())
    assert "this run needs 8 GPUs, this machine has 4" in problem and "--gpus" in problem
    assert [*place(gpus=8).launch_problems(run_flags())] == []
    (problem,) = place(gpus=8).launch_problems(run_flags(user={"--actor.num_nodes": ("2",)}))
    assert "ray start --head" in problem and "RAY_ADDRESS" in problem


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://[::1]:{}", "auto", "no-port"])
def test_a_cluster_that_is_gone_is_told_before_ray_waits_for_it(monkeypatch, tmp_path, address):
    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = address.format(bound.getsockname()[1])
        (problem,) = place(address).launch_problems(run_flags())
    assert problem.startswith(f"the Ray cluster {address} does not answer.")


def test_the_users_environment_wins_and_a_private_ray_gets_logical_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    cpu = run_flags("cpu", user={"--actor.model_name_or_path": (str(tmp_path),), "--actor.num_gpus_per_node": ("2",)})
    found = place(on_cpu=True).environment(cpu)
    assert found["OMP_NUM_THREADS"] == "7"
    assert found["TORCHDYNAMO_DISABLE"] == "1"
    assert found["RAY_ADDRESS"] == "local"
    assert json.loads(found["RAY_OVERRIDE_RESOURCES"]) == {"GPU": 2, "CPU": 4}
    assert found["HF_HUB_OFFLINE"] == "1"
    on_gpus = place(gpus=8).environment(run_flags())
    assert json.loads(on_gpus["RAY_OVERRIDE_RESOURCES"]) == {"CPU": 10}  # a container may have fewer cores than GPUs
    of_the_cpu = {*CPU_ENVIRONMENT, "HF_HUB_OFFLINE"} - {*os.environ}
    assert not [name for name in of_the_cpu if name in on_gpus]
    assert place("10.0.0.1:6379").environment(run_flags()).get("RAY_ADDRESS") == os.environ.get("RAY_ADDRESS")


# ------------------------------------------------------------------------------------------- a run's life


@pytest.fixture
def request_for(tmp_path, monkeypatch):
    """A request whose files are all there, on the `cpu` recipe."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(json.dumps({"prompt": str(i), "label": "1"}) + "\n" for i in range(32))
    (tmp_path / "rows.jsonl").write_text(rows)

    def make(*words):
        files = ["--data", "rows.jsonl", "--eval.dataset", str(tmp_path / "rows.jsonl")]
        return command.request_of([*files, "--max-steps", "1", *words])

    return make


METRICS = """
import json, sys
folder = sys.argv[sys.argv.index("--train.run_dir") + 1]
with open(f"{folder}/metrics.jsonl", "a") as file:
    for step in (1, 2):
        print(json.dumps({"phase": "train", "step": step, "time": step, "policy_loss": 1.0 / step}), file=file)
"""


def play(monkeypatch, program):
    """Put another program in the trainer's place, which dies as a real one cannot be made to: tests/smoke runs that.

    It gets the flags as its arguments, and logs two steps."""
    monkeypatch.setattr(command, "TRAINER", ("-c", METRICS + program))


def read(folder):
    return json.loads((folder / "run.json").read_text())


def test_a_key_is_passed_on_and_written_nowhere(request_for, tmp_path, monkeypatch, capfd):
    """Neither in a record or a print, nor in the command line of the trainer, which `ps` shows."""
    monkeypatch.setattr(LaunchTarget, "take_gpus", lambda *_: {"CUDA_VISIBLE_DEVICES": "3"})
    seen = "[open('/proc/self/cmdline').read(), os.environ['WANDB_API_KEY'], os.environ['CUDA_VISIBLE_DEVICES']]"
    play(monkeypatch, f"import os; json.dump({seen}, open('argv.json', 'w'))")
    monkeypatch.setattr(sys, "argv", ["/bin/real-openrlhf", "train", "--logger.wandb.key", "secret"])
    assert command._train(Start.of(request_for("--run-name", "mine", "--logger.wandb.key", "secret"))) == 0
    assert read(tmp_path / "runs/mine")["command"] == ["real-openrlhf", "train", "--logger.wandb.key", "***"]
    assert not [
        file for file in (tmp_path / "runs/mine").rglob("*") if file.is_file() and b"secret" in file.read_bytes()
    ]
    argv, key, gpus = json.loads((tmp_path / "argv.json").read_text())
    assert gpus == "3"  # the run's processes see what was taken
    assert "--logger.wandb.key\0env\0" in argv and "secret" not in argv and key == "secret"
    assert "secret" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "program, code, reason",
    [
        ("sys.exit('ValueError: the reason')", 1, "ValueError: the reason"),
        ("print('the last line'); sys.exit(3)", 3, "the last line"),
        ("print('no more'); print('Generate: 6%|#  | 2/32'); raise SystemExit(1)", 1, "no more"),
        ("print('no more'); print('\x1b[36m(Actor pid=1)\x1b[0m a warning'); raise SystemExit(1)", 1, "no more"),
        ("import os; os.kill(os.getpid(), 9)", 137, "killed by SIGKILL"),
        ("raise SystemExit(15)", 15, "ended by a SIGTERM from elsewhere"),
    ],
)
def test_the_trainers_exit_code_is_the_commands(request_for, tmp_path, monkeypatch, capfd, program, code, reason):
    play(monkeypatch, program)
    assert command._train(Start.of(request_for("--run-name", "mine"))) == code
    record = read(tmp_path / "runs/mine")
    assert (record["status"], record["reason"]) == ("failed", reason)
    assert record["finished"]
    assert "Traceback" not in capfd.readouterr().err


def test_a_run_that_made_its_steps_is_finished_whatever_was_pressed(request_for, tmp_path, monkeypatch, capfd):
    ends = "signal.signal(2, signal.SIG_IGN); os.kill(os.getppid(), 2); time.sleep(1)"
    play(monkeypatch, f"open(f'{{folder}}/rollouts.jsonl', 'w'); import os, signal, time; {ends}")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert command._train(Start.of(request_for("--run-name", "mine"))) == 130
    assert (read(tmp_path / "runs/mine")["status"], read(tmp_path / "runs/mine")["reason"]) == ("finished", None)
    told = capfd.readouterr().out
    assert "\nfinished: " in told
    activate = f"source {min(os.path.relpath(sys.prefix), sys.prefix, key=len)}/bin/activate"
    assert told.endswith(f"\nread its responses: {activate} && real-openrlhf show runs/mine\n")


def test_a_signal_before_the_training_starts_is_the_runs_reason(request_for, tmp_path, monkeypatch, capsys):
    def pressed(*_: object) -> None:
        raise signals.Ended(signal.SIGTERM)

    monkeypatch.setattr(command, "_supervised", pressed)
    assert command._train(Start.of(request_for("--run-name", "mine"))) == 143
    assert read(tmp_path / "runs/mine")["reason"] == "interrupted by SIGTERM"
    assert capsys.readouterr().out.endswith("\nno step was trained: start again with the same command with --resume\n")


@pytest.mark.parametrize("another_thread", [False, True])
def test_a_signal_while_the_record_is_written_is_the_runs_reason(request_for, tmp_path, monkeypatch, another_thread):
    write = run_folder.write

    def pressed(path: Path, record: dict) -> None:
        write(path, record)
        if record["status"] == "running" and another_thread:  # such as one of torch's, which blocks nothing
            other = threading.Thread(target=take)
            other.start()
            other.join()
        elif record["status"] == "running":
            signal.raise_signal(signal.SIGINT)

    def take() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    monkeypatch.setattr(run_folder, "write", pressed)
    with pytest.raises(signals.Ended), signals.signals_raised():
        command._train(Start.of(request_for("--run-name", "mine")))
    assert read(tmp_path / "runs/mine")["reason"] == "interrupted by SIGINT"


def test_resume_continues_in_the_same_folder_and_remembers_the_start(request_for, tmp_path, monkeypatch):
    play(monkeypatch, "sys.exit('--ckpt.load_enable' not in sys.argv)")
    assert command._train(Start.of(request_for("--resume"))) == 1  # nothing to resume: a new run
    (folder,) = (tmp_path / "runs").iterdir()
    first = read(folder) | {"started": "2026-01-01T00:00:00+00:00"}
    assert first.items() >= {"name": folder.name, "algo": "real", "recipe": "cpu", "seed": 42}.items()
    assert first["flags"].items() >= {"--actor.adam.lr": 1e-4, "--ckpt.path": str(folder / "checkpoints")}.items()
    (folder / "run.json").write_text(json.dumps(first))
    assert command._train(Start.of(request_for("--resume"))) == 0
    assert [folder] == list((tmp_path / "runs").iterdir())
    assert read(folder)["status"] == "finished"
    assert read(folder)["started"] == first["started"]


@pytest.fixture
def begun(request_for, monkeypatch):
    """begun(RATE) -> the folder of a run with this learning rate that failed at its start."""
    play(monkeypatch, "sys.exit(1)")

    def begin(rate: str, *name: str) -> Path:
        before = {*Path("runs").glob("*")}
        named = ["--run-name", *name] if name else ["--resume"]
        command._train(Start.of(request_for(*named, "--actor.adam.lr", rate)))
        (new,) = {*Path("runs").iterdir()} - before
        return new

    return begin


def test_resume_takes_no_run_with_other_flags_unless_it_is_named(request_for, begun):
    """Neither does it begin a new one beside it, which would cost what the first one has cost."""
    run = begun("1e-4")
    assert request_for("--resume", "--actor.adam.lr", "1e-4").resumed == run
    other = ("--resume", "--actor.adam.lr", "3e-4", "--train.micro_batch_size", "2")
    with pytest.raises(
        UserError, match=rf"--actor.adam.lr 0.0001, not 0.0003, .*Continue it with --run-name {run.name}"
    ):
        request_for(*other)
    other_run = begun("2e-4", "cpu-real-s42-z")
    assert request_for("--resume", "--actor.adam.lr", "1e-4").resumed == run  # though the other is newer
    shutil.rmtree(other_run)
    with run_folder.only_one(run):  # it is being trained
        assert request_for(*other).resumed is None
    assert request_for(*other, "--run-name", run.name).resumed == run


def test_the_name_of_a_run_is_enough_to_continue_it(request_for, begun, capsys):
    """With its own seed and flags, from any folder; typed flags win."""
    run = begun("3e-4", "mine", "--seed", "5", "--algo", "grpo", "--no-eval.at_start").resolve()
    os.chdir("/")

    def told(*words: str) -> str:
        assert main(["train", "--resume", "--run-name", "mine", f"--runs-dir={run.parent}", "--dry-run", *words]) == 0
        return capsys.readouterr().out

    assert main(["train", "--resume", "--run-name", "mien", f"--runs-dir={run.parent}", "--dry-run"]) == 2
    assert "there is no run" in (said := capsys.readouterr().err) and "Did you mean mine?" in said
    other = ["--run-name", "mines", "--algo", "grpo", "--seed", "5"]
    for rate, code in (("3e-4", 2), ("2e-4", 0)):  # mistyped, or a run of its own
        words = [*other, f"--runs-dir={run.parent}", "--actor.adam.lr", rate]
        assert main(["train", "--resume", "--dry-run", *words]) == code
        error = capsys.readouterr().err
        assert (f"To continue {run}, name it;" in error) == (code == 2)
    assert "has changed" not in (said := told()) and "/mine goes on after step 0, from the beginning\n" in said
    assert "since this run began --actor.adam.lr has changed from 0.0003 to 0.0002\n" in told(
        "--actor.adam.lr", "2e-4"
    )


def test_a_run_begun_with_a_flag_that_is_refused_by_now_is_resumed_without_it(begun, capsys):
    run = begun("3e-4", "mine", "--seed", "5").resolve()
    record = json.loads((run / "run.json").read_text())
    record["words"] += ["--actor.lr_warmup_ratio=0.1"]
    (run / "run.json").write_text(json.dumps(record))
    words = ["train", "--resume", "--run-name", "mine", f"--runs-dir={run.parent}", "--dry-run"]
    assert main(words) == 2 and "add --no-actor.lr_warmup_ratio." in capsys.readouterr().err
    assert main([*words, "--no-actor.lr_warmup_ratio"]) == 0


def test_a_dry_run_says_why_it_has_no_estimate(capsys):
    assert main(["train", "--recipe", "qwen1.5b-1gpu", "--model", "Qwen/Qwen2.5-Math-1.5B", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "note: no estimate of memory, time and disk: name a folder with the model's config.json\n" in said


def test_resume_of_a_mistyped_name_names_the_unfinished_run(request_for, tmp_path, capsys, monkeypatch):
    play(monkeypatch, "sys.exit(1)")
    command._train(Start.of(request_for("--run-name", "night", "--data", "rows.jsonl")))
    (tmp_path / "runs/nigth").mkdir()
    (tmp_path / "runs/nigth/run.json").write_text("{}")  # somebody's broken record stops nobody

    def said(words: str) -> str:
        command.run(command.parse(f"--resume --data rows.jsonl --dry-run {words}".split()))
        return capsys.readouterr().out

    assert "note: runs/nihgt is new. runs/night is unfinished\n" in said("--run-name nihgt")
    assert "unfinished" not in said("--run-name other") + said("--run-name nihgt --seed 3")


def test_the_record_keeps_a_rate_that_a_resume_changed(request_for, begun):
    """A report that read the last rate alone would average the run with those that had it from the start."""
    run = begun("1e-4")

    def resumed(rate: str) -> dict:
        command._train(Start.of(request_for("--run-name", run.name, "--resume", "--actor.adam.lr", rate)))
        return read(run)

    assert "earlier_flags" not in resumed("2e-4")  # no checkpoint: it began again
    (run / "checkpoints/_actor/global_step2").mkdir(parents=True)
    (run / "checkpoints/_actor/global_step2/manifest.json").write_text('{"global_step": 2, "files": {}}')
    resumed("3e-4")
    assert resumed("3e-4")["earlier_flags"] == [{"--actor.adam.lr": 2e-4}]


SUPERVISED = """
import os, sys
from pathlib import Path
from real_openrlhf.training.trainer_process import supervise
from real_openrlhf.training.progress import Progress, last_error
folder = Path(sys.argv[1])
lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
progress = Progress(folder, 1, folder / "train.log")
print(supervise([sys.executable, "-c", sys.argv[2]], os.environ, lock, progress), flush=True)
"""
PATIENT = "import time; print('up', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(2, lambda *_: None); " + PATIENT
STUBBORN = "import signal; signal.signal(15, lambda *_: None); " + DEAF
TO_ITS_END = "import signal; signal.signal(2, lambda *_: exit(0)); " + PATIENT


@pytest.mark.parametrize(
    "child, signals, expected",
    [
        (PATIENT, [signal.SIGTERM], "(143, 'interrupted by SIGTERM')"),
        (PATIENT, [signal.SIGINT], "(130, 'interrupted by SIGINT')"),
        (DEAF, [signal.SIGINT, signal.SIGINT], "(130, 'interrupted by SIGINT')"),  # the second one insists
        (STUBBORN, [signal.SIGINT], "(130, 'interrupted by SIGINT')"),  # the command insists by itself
        (TO_ITS_END, [signal.SIGINT], "(130, None)"),
    ],
)
def test_an_interrupted_trainer_is_stopped_and_waited_for(tmp_path, child, signals, expected):
    command = [sys.executable, "-c", SUPERVISED, str(tmp_path), child]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    log = tmp_path / "train.log"
    while not (log.exists() and log.read_text()):
        time.sleep(0.05)
    for number in signals:
        time.sleep(0.2)
        watcher.send_signal(number)
    said, _ = watcher.communicate(timeout=1200)
    assert said.splitlines()[-1] == expected


def test_a_runs_scratch_folder_goes_with_rays_last_processes(monkeypatch, tmp_path):
    """And only with those of this run; after a failure Ray's logs stay."""
    monkeypatch.setattr(trainer_process, "LONGEST", 500)  # pytest's folders are deep

    def agent(folder: str, titled: bool = False) -> subprocess.Popen:
        """Ray's agents write their title over their environment, and have a log open in the folder."""
        title = f"log = open({folder + '/log'!r}, 'w'); import setproctitle; setproctitle.setproctitle('ray::Agent'); "
        words = [
            sys.executable if titled else "ray::Agent",
            "-c",
            title * titled + "import time; print(flush=True); time.sleep(60)",
        ]
        environment = {**os.environ, "RAY_TMPDIR": folder}
        made = subprocess.Popen(words, executable=sys.executable, env=environment, stdout=subprocess.PIPE)
        made.stdout.readline()
        assert (b"RAY_TMPDIR" in Path(f"/proc/{made.pid}/environ").read_bytes()) != titled
        return made

    other = agent(str(tmp_path))
    (tmp_path / "precious").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "precious")  # as a stranger's run may have it
    for failed, titled in ((False, False), (True, False), (False, True)):
        with trainer_process.scratch({"TMPDIR": str(tmp_path)}, tmp_path / "link") as own:
            own_agent = agent(own.folder, titled)
            assert own.environment["RAY_TMPDIR"] == own.environment["VLLM_RPC_BASE_PATH"] == own.folder
            open(f"{own.folder}/log", "w").close()
            own.keep = failed
        assert own_agent.wait(30) == -signal.SIGKILL and os.path.exists(own.folder) == failed
        assert (tmp_path / "link").is_symlink() == failed
        assert {path.name for path in tmp_path.glob("real_*")} == ({os.path.basename(own.folder)} if failed else set())
    assert other.poll() is None and (tmp_path / "precious").is_dir()
    other.kill()
    other.wait()


def test_a_long_folder_for_temporary_files_is_not_rays(tmp_path):
    """A socket's path has 107 characters at most."""
    long = tmp_path / ("a" * 40)
    long.mkdir()
    with trainer_process.scratch({"TMPDIR": str(long)}, tmp_path / "link") as own:
        assert own.folder == own.environment["RAY_TMPDIR"] and own.folder.startswith("/tmp/real_")


# A run that stands still ends, with a code and the phase: real processes, real signals

WAITS = "import time; time.sleep({})"


@pytest.mark.parametrize(
    "program, minutes, phase, where",
    [
        (WAITS.format(60), 0.02, "generation and rewards", "generation and rewards"),
        ("while True: print('waiting', flush=True)", 0.02, "", "the start of Ray, the engine and the policy"),
        # which hears no SIGTERM
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", 0.02, "", "the start of Ray"),
        (WAITS.format(2), 0, "", None),
    ],
)
def test_a_run_that_hangs_ends_and_says_in_which_phase(tmp_path, program, minutes, phase, where):
    if phase:
        enter(tmp_path, phase)
    with open(tmp_path / ".lock", "w") as lock:
        progress, watch = Progress(tmp_path, None, tmp_path / "train.log"), Watch(tmp_path, minutes)
        code, reason = supervise([sys.executable, "-c", program], os.environ, lock.fileno(), progress, watch)
    assert code == (STALLED if where else 0)
    assert reason is None or reason.startswith(f"stalled: nothing new for {minutes:g} minutes in {where}")


def test_a_run_that_enters_phases_is_left_alone_and_a_watch_that_stood_still_itself_judges_nobody(
    tmp_path, monkeypatch
):
    looks = iter((50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 3600.0, 3650.0, 3700.0, 3750.0))
    monkeypatch.setattr(trainer_process, "time", SimpleNamespace(monotonic=looks.__next__))
    watch, told = Watch(tmp_path, 2, last=0.0, looked=0.0), []
    for phase in range(4):
        enter(tmp_path, f"phase {phase}")
        os.utime(tmp_path / PHASE, ns=(phase, phase))  # a disk's clock may be coarse
        told.append(watch.stalled())
    told += [watch.stalled() for _ in range(6)]
    assert told[:-1] == [None] * 9 and told[-1].startswith("stalled: nothing new for 2 minutes in phase 3.")


def test_nohup_keeps_its_meaning(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with open(tmp_path / ".lock", "w") as lock:
            progress = Progress(tmp_path, None, tmp_path / "train.log")
            supervise([sys.executable, "-c", ""], os.environ, lock.fileno(), progress)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


OURS_AND_LONG = (
    "real_openrlhf.algorithm.mismatch.MismatchError: " + "x " * 200 + "--rollout.mismatch log never ends the run"
)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("\x1b[36m(PolicyModelActor pid=7)\x1b[0m vllm.EngineDeadError: it ended", "vllm.EngineDeadError: it ended"),
        ("ValueError: of ours", "ValueError: of ours"),
        ("Killed", "Killed"),
        ("ValueError: " + "x" * 999, f"ValueError: {'x' * 288} ..."),
        (OURS_AND_LONG, OURS_AND_LONG),
        (
            "ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory. Memory "
            "on the node (IP: 10.0.0.1, ID: ab) was 22.35GB / 23.52GB (0.95), which exceeds the threshold of 0.95; "
            "Top 10 memory users: PID MEM(GB) COMMAND, 20217 1.44 python train.py --key SECRET",
            "Ray ended a process of the run because the machine's memory was full, 22.35 of 23.52 GB used. Close "
            "other programs, or take less memory (docs/use/troubleshooting.md), then the same command with --resume",
        ),
    ],
    ids=lambda text: text[:30],
)
def test_the_reason_is_the_errors_line_without_colours_and_actors(tmp_path, line, reason):
    log = tmp_path / "train.log"
    log.write_text(f"Loading\n{line}\n\x1b[36m(RolloutRayActor pid=8)\x1b[0m bye\n 50%|##\n")
    assert last_error(log) == reason
