"""What examples/scripts/train_real_*.sh call, with other programs in the place of set-up and training."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "examples/scripts"


@pytest.fixture
def call(tmp_path):
    """call(script, words..., VARIABLE=value) -> what was called, one line each."""
    shutil.copytree(SCRIPTS, tmp_path / "examples/scripts")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho real-openrlhf $* >>'{tmp_path}/called'\n")
    program.chmod(0o755)
    (tmp_path / "examples/scripts/setup_env.sh").write_text(
        f"echo setup_env.sh $* >>'{tmp_path}/called'\n"
        f"mkdir -p '{tmp_path}/.venv/bin' && cp '{program}' '{tmp_path}/.venv/bin/real-openrlhf'\n"
    )
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname", "mkdir", "cp"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))

    def run(script: str, *words: str, installed: bool = False, **variables: str) -> list[str]:
        if installed:
            shutil.copy(program, tmp_path / "bin/real-openrlhf")
        command = ["bash", tmp_path / "examples/scripts" / script, *words]
        environment = {"PATH": str(tmp_path / "bin"), "HOME": os.environ["HOME"], **variables}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return (tmp_path / "called").read_text().splitlines()

    return run


@pytest.mark.parametrize(
    "script, recipe", [("train_real_qwen7b.sh", "qwen7b"), ("train_real_qwen1.5b.sh", "qwen1.5b")]
)
def test_a_dry_run_takes_any_environment_and_a_training_one_for_gpus(call, script, recipe):
    assert call(script, "--algo", "grpo", "--dry-run") == [
        "setup_env.sh any",
        f"real-openrlhf train --recipe {recipe} --resume --algo grpo --dry-run",
    ]
    assert call(script)[2:] == ["setup_env.sh gpu", f"real-openrlhf train --recipe {recipe} --resume"]


def test_variables_are_flags_and_the_users_flags_come_last(call):
    variables = {"ALGO": "dapo", "GPUS": "4", "DATA_DIR": "d", "RUNS_DIR": "r", "RESUME": "0"}
    (called,) = call("train_real_gpu.sh", "qwen7b", "--algo", "gspo", installed=True, **variables)
    expected = "--recipe qwen7b --algo dapo --gpus 4 --data-dir d --runs-dir r --algo gspo"
    assert called == f"real-openrlhf train {expected}"


def test_the_pretrained_model_trains_in_any_environment_and_on_a_gpu_by_one_flag(call):
    assert call("train_real_smollm2.sh", "--recipe", "smollm2-1gpu") == [
        "setup_env.sh any",
        "real-openrlhf train --recipe cpu-smollm2 --recipe smollm2-1gpu",
    ]


def test_slurm_steps_have_all_of_a_node(tmp_path):
    """Without a word a step has one core, and a job its partition's default memory."""
    (tmp_path / "examples/scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "train_real_gpu.sh", tmp_path / "examples/scripts")
    answers = {
        "scontrol": "printf 'a\\nb\\n'",
        "getent": "echo 10.0.0.1 STREAM",
        "srun": f"echo $* >>'{tmp_path}/steps'",
        "python": "exit 0",
        "real-openrlhf": f"sleep 1; echo $* >'{tmp_path}/trained'",
    }
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, answer in answers.items():
        program = tmp_path / ".venv/bin" / name
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
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
    assert "#SBATCH --mem=0\n" in (SCRIPTS / "slurm_real.sbatch").read_text()
    assert (tmp_path / "trained").read_text().startswith("train --recipe qwen7b --gpus 8 --nodes 2 --resume")
