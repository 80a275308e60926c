"""What examples/scripts/train_real_*.sh call, with other programs in the place of set-up and training."""

import argparse
import contextlib
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import time
import weakref
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml

from real_openrlhf.base.errors import UserError
from real_openrlhf.cli import main
from real_openrlhf.data.benchmarks import BENCHMARKS, chosen, read_benchmark

SCRIPTS = Path(__file__).resolve().parents[2] / "examples/scripts"


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def call(tmp_path):
    """call(script, words..., VARIABLE=value) -> what was called, one line each."""
    shutil.copytree(SCRIPTS, tmp_path / "examples/scripts")
    shutil.copytree(SCRIPTS.parent / "smollm2", tmp_path / "examples/smollm2")
    program(tmp_path / "program", f"echo real-openrlhf $* >>'{tmp_path}/called'")
    real_run, _, _ = (SCRIPTS / "setup_env.sh").read_text().partition("\nunset PYTHONPATH")
    (tmp_path / "examples/scripts/setup_env.sh").write_text(
        f"{real_run}\n"
        f"[ $1 != where ] || {{ echo '{tmp_path}/.venv' && exit; }}\necho setup_env.sh $* >>'{tmp_path}/called'\n"
        f"mkdir -p '{tmp_path}/.venv/bin' && cp '{tmp_path}/program' '{tmp_path}/.venv/bin/real-openrlhf'\n"
    )
    (tmp_path / "bin").mkdir()

    def run(script: str, *words: str, installed: bool = False, **variables: str) -> list[str]:
        if installed:
            shutil.copy(tmp_path / "program", tmp_path / "bin/real-openrlhf")
        command = ["bash", tmp_path / "examples/scripts" / script, *words]
        environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": os.environ["HOME"], **variables}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return (tmp_path / "called").read_text().splitlines()

    return run


@pytest.mark.parametrize(
    "script, recipe", [("train_real_qwen7b.sh", "qwen7b"), ("train_real_qwen1.5b.sh", "qwen1.5b")]
)
def test_a_dry_run_takes_any_environment_and_makes_none_and_a_training_one_for_gpus(call, script, recipe):
    assert call(script, "--algo", "grpo", "--dry-run") == [
        "setup_env.sh check any",
        f"real-openrlhf train --recipe {recipe} --resume --algo grpo --dry-run",
    ]
    assert call(script)[2:] == ["setup_env.sh gpu", f"real-openrlhf train --recipe {recipe} --resume"]


def test_variables_are_flags_and_the_users_flags_come_last(call):
    variables = {"ALGO": "dapo", "GPUS": "4", "DATA_DIR": "d", "RUNS_DIR": "r", "RESUME": "0"}
    (called,) = call("train_real_gpu.sh", "qwen7b", "--algo", "gspo", installed=True, **variables)
    expected = "--recipe qwen7b --algo dapo --gpus 4 --data-dir d --runs-dir r --algo gspo"
    assert called == f"real-openrlhf train {expected}"


def test_beside_gpus_an_environment_for_cpus_is_not_trained_with(call, tmp_path):
    """README's first command had it sourced. The one for GPUs stands first on PATH when the script runs again."""
    (tmp_path / ".real_env").write_text("complete\ncpu 3.11\n")
    assert len(call("compare_gpu.sh", installed=True)) == 1  # no GPU: training refuses
    program(tmp_path / "bin/nvidia-smi", "exit 0")
    assert call("train_real_gpu.sh", "qwen7b", "--rehearse", installed=True)[1:] == [
        "real-openrlhf train --recipe qwen7b --resume --rehearse"
    ]
    assert call("train_real_gpu.sh", "qwen7b", installed=True)[2:] == [
        "setup_env.sh gpu", "real-openrlhf train --recipe qwen7b --resume"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "gb, recipe, longest",
    [(80, "qwen1.5b-1gpu", ""), (48, "lora-24gb", "--longest 192"), (24, "lora-24gb", "--longest 192")],
)
def test_the_parts_of_a_gpu_trial_fit_the_gpu(tmp_path, gb, recipe, longest):
    """The program in Python's place answers for the memory, and notes all else that it is asked to do."""
    notes = tmp_path / "called"
    program(tmp_path / "python", f'case "$*" in *total_memory*) echo {gb};; *) echo "$*" >>"{notes}";; esac')
    command = ["bash", SCRIPTS.parents[1] / "benchmarks/on_a_gpu.sh"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(tmp_path / "python")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and f"a GPU of {gb} GB: step and train take recipe {recipe}" in done.stdout
    called = notes.read_text()
    assert f"benchmarks/gpu_step.py --recipe {recipe} --prompts 8 --steps 1\n" in called
    assert called.count(f"real_openrlhf.cli train --recipe {recipe} --model") == 2  # both of vLLM's model runners
    assert f"benchmarks/packed_exactness.py {longest}".rstrip() + "\n" in called
    refused = subprocess.run(command, env={**environment, "GPU_GB": "16"}, capture_output=True, text=True)
    assert refused.returncode == 2 and "this GPU has 16 GB" in refused.stderr


def test_parts_of_a_gpu_trial_whose_packages_are_missing_are_skipped(tmp_path):
    """Both import Ray and vLLM: the actor's step does through OpenRLHF."""
    found = 'case "$*" in *"import find_spec"*vllm*) echo vllm; exit 1;; esac'
    program(tmp_path / "python", found)
    command = ["bash", SCRIPTS.parents[1] / "benchmarks/on_a_gpu.sh", "exact", "head", "step", "train"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(tmp_path / "python"), "GPU_GB": "80"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "4 parts, 2 skipped (step train), 0 failed (none)" in done.stdout, done.stdout
    assert done.stdout.count("skipped: missing: vllm") == 2


def test_a_first_day_without_an_environment_says_how_to_make_it(tmp_path):
    program(tmp_path / "python", "exit 1")
    command = ["bash", SCRIPTS.parents[1] / "benchmarks/on_a_gpu.sh", "first-day"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(tmp_path / "python"), "GPU_GB": "80"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "make it with 'bash examples/scripts/setup_env.sh gpu'" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["python"]  # no pack to send


@pytest.mark.parametrize(
    "words, code, told",
    [
        ("--help", 0, "  first-day doctor and all of these but setup"),
        ("first-day --dry-run", 2, "first-day has all parts: give it alone"),
        ("exact --dry-run", 2, "no such part: --dry-run. --help lists them"),
    ],
)
def test_what_is_no_part_of_a_gpu_trial_is_told_before_anything_runs(tmp_path, words, code, told):
    program(tmp_path / "python", f"touch '{tmp_path}/called'")
    command = ["bash", SCRIPTS.parents[1] / "benchmarks/on_a_gpu.sh", *words.split()]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": str(tmp_path / "python")}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code and told in done.stdout + done.stderr
    assert not (tmp_path / "called").exists() and "set -uo" not in done.stdout


def test_the_workflow_of_a_public_runner_runs_commands_that_are_there():
    jobs = yaml.safe_load((SCRIPTS.parents[1] / ".github/workflows/test.yml").read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = re.findall(r"(?<!\S)(\w+/[\w/]+\.(?:sh|py)|\.ci/\w+)", "\n".join(commands))
    assert len(called) >= 7 and all((SCRIPTS.parents[1] / path).exists() for path in called)


@pytest.mark.parametrize("allocated, fits", [(48.0, True), (53.0, False)])
def test_a_gpus_allocated_memory_is_judged_and_not_what_fragments_add(allocated, fits, capsys, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS.parents[1] / "benchmarks")
    import gpu_step

    row = dict.fromkeys(gpu_step.FIELDS, "1") | {"estimate GB": "50", "allocated GB": f"{allocated}"}
    with contextlib.nullcontext() if fits else pytest.raises(SystemExit):
        gpu_step.show([row | {"reserved GB": "53.0"}], cpu=False)
    assert ("ok      1, allocated" in capsys.readouterr().out) == fits


def test_the_trials_random_model_leaves_memory_before_others_are_measured(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS.parents[1] / "benchmarks")
    import gpu_step
    from transformers import Qwen2ForCausalLM

    alive: list[weakref.ref] = []
    save, left = Qwen2ForCausalLM.save_pretrained, []
    monkeypatch.setattr(
        Qwen2ForCausalLM, "save_pretrained", lambda self, path: alive.append(weakref.ref(self)) or save(self, path)
    )
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: left.extend(model() for model in alive))
    gpu_step.save_model(argparse.Namespace(recipe="cpu-like-gpu", folder=str(tmp_path)))
    assert left == [None] and (tmp_path / "model.safetensors").exists() and (tmp_path / "train.jsonl").exists()


def test_the_pretrained_model_trains_on_cpu_and_on_a_gpu_by_one_flag(call, tmp_path):
    task = tmp_path / "smollm2"
    (task / "model").mkdir(parents=True)  # made before
    made, train = call("train_real_smollm2.sh", REAL_CACHE=str(tmp_path))
    assert made == "setup_env.sh cpu" and train.startswith(f"real-openrlhf train --model {task}/model --data {task}/")
    assert train.endswith("--ds.attn_implementation sdpa")
    made, train = call("train_real_smollm2.sh", "--recipe", "qwen1.5b-1gpu", REAL_CACHE=str(tmp_path))[2:]
    assert made == "setup_env.sh gpu"
    assert train.endswith("--rollout.max_tokens_per_gpu 8192 --recipe qwen1.5b-1gpu")


def test_the_gates_all_run_before_they_fail_and_are_silent_if_all_is_well(tmp_path):
    def gates(code: int) -> tuple[int, str]:
        for name in ("ruff", "mypy"):
            program(tmp_path / "bin" / name, f"[ {code} = 0 ] || echo {name} $1\nexit {code}")
        command = ["bash", SCRIPTS.parents[1] / ".ci/gates"]
        done = subprocess.run(command, env=os.environ | {"REAL_VENV": str(tmp_path)}, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    told = f"ruff format\nnot formatted: run {tmp_path}/bin/ruff format .\nruff check\nmypy --no-error-summary\n"
    assert gates(0) == (0, "") and gates(2) == (1, told)


def test_what_python_prints_at_a_ctrl_c_in_set_up_goes_to_its_log():
    calls = re.findall(r'"\$PYTHON" "\$ROOT/requirements/.*', (SCRIPTS / "setup_env.sh").read_text())
    assert len(calls) == 5 and all('2>>"$LOG"' in call or '>>"$LOG" 2>&1' in call for call in calls)


def test_the_page_of_reliability_says_what_the_killed_runs_were_like():
    root = SCRIPTS.parents[1]
    found = [row["lost or wrong"] for row in csv.DictReader((root / "benchmarks/results/kill_campaign.csv").open())]
    ray, engine = (sum(name in one for one in found) for name in ("ray::", "VLLM::"))
    assert all(part.startswith("still there: ") for one in found for part in one.split("; ") if one != "nothing")
    said = " ".join((root / "docs/evidence/reliability.md").read_text().split())
    assert f"**{len(found)} trials, nothing lost**" in said and f"after {ray}, and the engine after {engine}," in said


def test_cuts_of_one_batch_are_told_apart_by_their_gradient(monkeypatch):
    for folder in ("benchmarks", "benchmarks/one_gradient"):
        monkeypatch.syspath_prepend(SCRIPTS.parents[1] / folder)
    import one_gradient
    import ours_step

    whole, cut = ours_step.gradient("real"), ours_step.gradient("real", size=2)
    assert one_gradient.compared(whole, cut) == pytest.approx((1, 1), abs=1e-9)
    wrong: list[str] = []
    numbers = {"whole": (1.0, 1.0), one_gradient.HALF: one_gradient.compared(whole, cut / 2)}
    assert f"{one_gradient.HALF}: 0.5 (1.000)" in one_gradient.row("TRL 1.7.1", "dapo", numbers, wrong)
    assert not wrong
    one_gradient.row("TRL 1.16.0", "dapo", numbers, wrong)
    assert len(wrong) == 1


def test_the_evaluation_of_the_paper_prepares_its_benchmarks_and_takes_more_options(call, tmp_path):
    places = {"BENCHMARKS": str(tmp_path / "data"), "TP": "2"}
    prepare, evaluate = call("eval_math.sh", "M", "O", "--k", "2", installed=True, **places)
    assert prepare == f"real-openrlhf data benchmarks --out {tmp_path}/data"
    assert evaluate.startswith(
        f"real-openrlhf eval --model M --out O --benchmarks all --data-dir {tmp_path}/data --k 16"
    )
    assert evaluate.endswith("--grader robust --tensor-parallel 2 --k 2")


SAVED = "mine/runs/a/checkpoints/_actor/b"


@pytest.mark.parametrize(
    "sent, ending, restarts, code, requeued",
    [
        (signal.SIGUSR1, "exit 143", 0, 0, True),
        (signal.SIGTERM, "exit 143", 0, 143, False),
        (signal.SIGUSR1, "exit 0", 0, 0, False),  # it was in its last step
        (signal.SIGUSR1, "exit 143", 1, 1, False),  # the limit is below the first checkpoint
        (signal.SIGUSR1, f"mkdir -p {SAVED}; touch {SAVED}/manifest.json; exit 143", 1, 0, True),
    ],
)
def test_a_task_is_requeued_at_its_time_limit_and_not_by_scancel(tmp_path, sent, ending, restarts, code, requeued):
    (tmp_path / "examples/scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "setup_env.sh", tmp_path / "examples/scripts")
    waits = f"trap 'sleep 0.3; {ending}' TERM; touch '{tmp_path}/started'; while :; do sleep 0.1; done"
    answers = {"python": "exit 0", "real-openrlhf": waits, "scontrol": f"echo $* >'{tmp_path}/asked'"}
    for name, answer in answers.items():
        program(tmp_path / ".venv/bin" / name, answer)
    own = {"PATH": os.environ["PATH"], "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    own["SLURM_RESTART_COUNT"] = str(restarts)
    words = [SCRIPTS / "compare_gpu.sh", "--out=mine"] if restarts else ["--out", "mine"]
    task = subprocess.Popen(["bash", SCRIPTS / "slurm_compare.sbatch", *words], env=own, cwd=tmp_path)
    while not (tmp_path / "started").exists():
        assert task.poll() is None
        time.sleep(0.05)
    task.send_signal(sent)
    assert task.wait(60) == code
    assert (tmp_path / "asked").exists() == requeued
    assert "#SBATCH --signal=B:USR1@" in (SCRIPTS / "slurm_compare.sbatch").read_text()


@pytest.mark.parametrize(
    "script, words, instead",
    [
        ("real", "qwen7b --dry-run", "bash examples/scripts/train_real_gpu.sh qwen7b --dry-run"),
        ("real", "", "bash examples/scripts/train_real_gpu.sh RECIPE --dry-run"),
        ("compare", "examples/scripts/compare_gpu.sh", "bash examples/scripts/compare_gpu.sh --dry-run"),
        ("compare", "--seeds 2", "real-openrlhf compare --seeds 2 --dry-run"),
    ],
)
def test_a_script_for_sbatch_says_what_to_type_without_it(script, words, instead):
    command = ["bash", SCRIPTS / f"slurm_{script}.sbatch", *words.split()]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.endswith(
        f"this is for sbatch, on a machine with SLURM. Without it: {instead}\n"
    )


def test_slurm_steps_have_all_of_a_node(tmp_path):
    """Without a word a step has one core, and a job its partition's default memory."""
    (tmp_path / "examples/scripts").mkdir(parents=True)
    for name in ("train_real_gpu.sh", "setup_env.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "examples/scripts")
    answers = {
        "scontrol": "printf 'a\\nb\\n'",
        "getent": "printf '127.0.1.1 STREAM a\\n10.0.0.1 STREAM\\n'",  # as /etc/hosts has it on Debian
        "srun": f"echo $* >>'{tmp_path}/steps'",
        "python": "exit 0",
        "real-openrlhf": f"sleep 1; echo $* >'{tmp_path}/trained'",
    }
    for name, answer in answers.items():
        program(tmp_path / ".venv/bin" / name, answer)
    slurm = {
        "SUBMIT_DIR": str(tmp_path),
        "JOB_NODELIST": "a,b",
        "GPUS_ON_NODE": "8",
        "CPUS_ON_NODE": "96",
        "JOB_ID": "7",
    }
    subprocess.run(
        ["bash", SCRIPTS / "slurm_real.sbatch", "qwen7b"],
        env={"PATH": os.environ["PATH"], **{f"SLURM_{name}": value for name, value in slurm.items()}},
        cwd=tmp_path,
        check=True,
    )
    head, worker = sorted((tmp_path / "steps").read_text().splitlines(), key=lambda step: "--head" not in step)
    for step, node in ((head, "a"), (worker, "b")):
        assert {"--cpus-per-task=96", "--mem=0", f"--nodelist={node}"} <= set(step.split())
    assert "--node-ip-address=10.0.0.1" in head and "--address=10.0.0.1:" in worker
    assert "#SBATCH --mem=0\n" in (SCRIPTS / "slurm_real.sbatch").read_text()
    assert (tmp_path / "trained").read_text().startswith("train --recipe qwen7b --gpus 8 --nodes 2 --resume")


# The six benchmarks: row counts, formats, prompts

ROWS = {"aime24": 30, "aime25": 30, "math500": 500, "amc23": 83, "minerva": 272, "olympiadbench": 675}


def test_a_prepared_benchmark_has_every_prompt_and_gold_and_prepares_to_itself(benchmarks, tmp_path):
    out, again = tmp_path / "prepared", tmp_path / "again.jsonl"
    assert main(["data", "benchmarks", "--source", str(benchmarks), "--out", str(out)]) == 0
    for name, count in ROWS.items():
        before = pyarrow.parquet.read_table(benchmarks / f"{BENCHMARKS[name].stem}.parquet").to_pylist()
        after = [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
        assert len(before) == count == BENCHMARKS[name].rows == len({row["id"] for row in after})
        assert [row["prompt"] for row in after] == [row["prompt"] for row in before]
        assert [row["label"] for row in after] == [f'["{2 * number}"]' for number in range(count)]
        assert {row["datasource"] for row in after} == {name}
        for source in (out, out / f"{name}.jsonl"):
            assert main(["data", name, "--source", str(source), "--out", str(again)]) == 0
            assert again.read_bytes() == (out / f"{name}.jsonl").read_bytes()


def write_aime(folder, golds):
    rows = ({"problem": f"Problem {number}?", "answer": gold} for number, gold in enumerate(golds))
    (folder / "aime24.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_another_number_of_rows_is_refused(tmp_path, refused):
    write_aime(tmp_path, range(29))
    error = refused("data", "aime24", "--source", tmp_path, "--out", tmp_path / "o.jsonl")
    assert "aime24 has 30 problems, " in error and "has 29" in error
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("rows, taken", [(675, True), (674, True), (673, False)])
def test_olympiadbench_may_have_the_hubs_number_of_rows(tmp_path, rows, taken):
    lines = [json.dumps({"problem": f"What is {n} + {n}?", "answer": str(2 * n)}) for n in range(rows)]
    (tmp_path / "olympiadbench.jsonl").write_text("\n".join(lines))
    with contextlib.nullcontext() if taken else pytest.raises(UserError, match="olympiadbench has 675 problems"):
        assert len(read_benchmark("olympiadbench", tmp_path)[0]) == rows


def test_a_row_without_gold_is_refused(tmp_path):
    write_aime(tmp_path, [*range(29), ""])
    with pytest.raises(UserError, match="row 29 of .* lacks its problem or gold"):
        read_benchmark("aime24", tmp_path)


def test_a_folder_without_the_benchmark_is_named(tmp_path):
    with pytest.raises(UserError, match="has no aime24.jsonl and no aime.parquet"):
        read_benchmark("aime24", tmp_path)


def test_benchmarks_are_chosen_by_name_in_the_order_of_the_paper():
    assert chosen("all") == (list(ROWS), [])
    assert chosen("minerva, mine.jsonl,aime24,") == (["aime24", "minerva"], ["mine.jsonl"])
    with pytest.raises(UserError, match="unknown benchmark aime26"):
        chosen("aime24,aime26")
