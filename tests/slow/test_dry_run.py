"""Every recipe with every algorithm against the patched OpenRLHF's own parser, and what a dry run refuses.

One process: importing OpenRLHF takes longer than all the checks.
"""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from safetensors.numpy import save_file
from small_world import copy_release

from real_openrlhf import cli
from real_openrlhf.cli import main
from real_openrlhf.flags import parser
from real_openrlhf.machine import nvidia
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.command import request_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No run, no data and no tiny model of this machine; no network; no cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


ERROR = "real-openrlhf train: error: "


def dry_run(capsys, *words) -> tuple[int, str, list[str]]:
    """(exit code, what was printed, the problems)."""
    code = main(["train", "--dry-run", *words])
    printed = capsys.readouterr()
    return (
        code,
        printed.out,
        [line.removeprefix(ERROR) for line in printed.err.splitlines() if line.startswith(ERROR)],
    )


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_takes_every_algorithm(capsys, recipe, algo):
    assert main(["train", "--dry-run", "--recipe", recipe, "--algo", algo]) == 0
    printed = capsys.readouterr().out.splitlines()
    here = (
        "can run it."
        if RECIPES[recipe].on_cpu
        else f"cannot run it: 0 of {RECIPES[recipe].gpus} GPU{'s' * (RECIPES[recipe].gpus > 1)}."
    )
    unchecked = "what is made before training" + ", the model on the hub" * (not RECIPES[recipe].on_cpu)
    assert printed[-1] == f"Flags OK. Not checked: {unchecked}. This machine {here}"
    assert os.listdir() == []  # nothing was written either


@pytest.mark.parametrize("recipe", ["qwen1.5b", "qwen7b", "qwen1.5b-1gpu", "lora-24gb"])
def test_the_page_says_a_runs_time_and_money_as_a_dry_run_does(capsys, recipe):
    _, printed, _ = dry_run(capsys, "--recipe", recipe)
    page = (Path(__file__).resolve().parents[2] / "docs/use/gpu.md").read_text()
    (row,) = (line.split("|") for line in page.splitlines() if line.startswith(f"|`{recipe}`|") and "|128|" in line)
    _, _, gpus, prompts, seconds, steps, hours, dollars, _ = row
    said = (
        f"note: time: {seconds} s per step of {prompts} prompts x 8 on {gpus}, "
        f"{hours} hours and ${dollars} for {steps}"
    )
    assert said in printed


@pytest.mark.parametrize("recipe, given, said", [("qwen7b", "", "1"), ("cpu", "", "0"), ("qwen7b", "0", "0")])
def test_vllms_runner_is_among_the_runs_variables(capsys, monkeypatch, recipe, given, said):
    """Its own choice: the second wherever Triton is, so on GPUs."""
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", given)
    _, printed, _ = dry_run(capsys, "--recipe", recipe)
    (line,) = (line.split() for line in printed.splitlines() if "V2_MODEL_RUNNER" in line)
    assert line == [f"VLLM_USE_V2_MODEL_RUNNER={said}", "user" if given else "default"]


def test_a_model_whose_answers_would_leak_is_refused_by_its_configuration(capsys, tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = {"model_type": "lfm2", "vocab_size": 64, "full_attn_idxs": [2], **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({}, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": "-"}))
    code, _, problems = dry_run(capsys, "--recipe", "qwen7b", "--model", str(tmp_path))
    assert code == 2 and any("carry state" in one for one in problems)
    works = ("--no-ds.packing_samples", "--no-train.dynamic_batch_enable")
    _, _, problems = dry_run(capsys, "--recipe", "qwen7b", "--model", str(tmp_path), *works)
    assert problems == []


POLICY_LOSSES = {"grpo": "ppo", "dapo": "ppo", "gspo": "gspo"}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_the_parser_understood_is_what_the_recipe_says(algo):
    from openrlhf.cli.train_ppo_ray import parse_args

    from real_openrlhf.recipes.run import compose

    plan = compose(RECIPES["qwen7b"], ALGORITHMS[algo], {}, launcher={})
    words = [*plan.argv(), "--reward.remote_url", "reward.py"]
    args = parse_args(words)
    assert parser.functions().parse_args(words) == args
    assert args.critic.model_name_or_path is None
    assert args.derived.reference == plan.args.derived.reference == (algo in ("grpo", "trpa"))
    assert args.actor.policy_loss_type == POLICY_LOSSES.get(algo, "real")


@pytest.mark.parametrize(
    "algo, flags, all_train",
    [
        ("real", "", False),
        ("real", "--algo.real.uniform_groups keep", False),  # ignored rollouts are left out
        ("real", "--actor.entropy_coef 0.01", True),
        ("real", "--actor.aux_loss_coef 0.01", True),
        ("real", "--algo.kl.init_coef 0.1 --algo.kl.use_loss", True),
        ("grpo", "", True),
        ("trpa", "", True),
        ("dapo", "", False),
        ("grpo", "--no-algo.kl.use_loss --algo.kl.init_coef 0 --algo.advantage.estimator dr_grpo", False),
        ("gspo", "--algo.advantage.estimator rloo", False),
        ("dapo", "--algo.advantage.estimator reinforce_baseline", True),
        ("dapo", "--reward.overlong_buffer_len 64 --reward.overlong_penalty_factor 1", False),
        ("dapo", "--reward.stop_properly_penalty_coef 0.5", False),
        ("dapo", "--train.batching upstream", True),
    ],
)
def test_rollouts_are_left_out_only_where_that_is_exact(algo, flags, all_train):
    def left_out(*more: str) -> bool:
        return request_of(["--recipe", "qwen7b", "--algo", algo, *flags.split(), *more]).run.args.derived.skips

    assert left_out() != all_train
    assert not left_out("--no-train.skip_zero_gradient")


def test_each_value_is_printed_with_its_origin(capsys):
    words = ("--recipe", "qwen7b", "--actor.adam.lr", "3e-6", "--no-eval.at_start", "--vllm.enforce_eager")
    _, printed, _ = dry_run(capsys, *words)
    assert "--eval.at_start: on (authors' code) -> off\n" in printed and "--vllm.enforce_eager: off -> on\n" in printed
    lines = {line.split()[0]: line for line in printed.splitlines() if line.startswith("  --")}
    assert "8192" in lines["--rollout.max_new_tokens"] and " paper " in lines["--rollout.max_new_tokens"]
    assert " authors' code " in lines["--actor.adam.betas"]
    assert " recipe" in lines["--ds.zero_stage"]
    assert " derived " in lines["--vllm.num_engines"]
    assert " run folder" in lines["--ckpt.path"]
    assert "--actor.adam.lr: 1e-6 (paper) -> 3e-6" in printed
    assert "memory per GPU: " in printed and " of 80 GB allocated (upper estimate" in printed
    assert lines["--algo.advantage.estimator"].endswith(" not read by this run")
    own = f"{Path(__file__).parents[2]}/examples/objectives/reverse_kl.py:reverse_kl"
    _, printed, _ = dry_run(capsys, "--recipe", "qwen7b", "--algo.real.objective", own)
    assert "real: with the loss reverse_kl.py:reverse_kl, and a reference model\n" in printed
    unread = [line.split()[0] for line in printed.splitlines() if line.endswith(" not read by this run")]
    assert unread == ["--actor.lr_warmup_ratio", "--algo.real.uniform_groups"]


def test_all_that_is_wrong_is_told_at_once_each_with_its_fix(capsys, monkeypatch):
    monkeypatch.setenv("REAL_GRADER", "robst")
    monkeypatch.setenv("REAL_REWARD_SECONDS", "5m")
    code, _, problems = dry_run(
        capsys,
        *("--recipe", "qwen7b", "--model", "/not/there", "--data", "/not/there.jsonl"),
        *("--rollout.batchsize", "64", "--actor.adam.lr", "fast", "--ds.packing_samples", "yes"),
        *("--actor.policy_loss_type", "reel", "--train.batch_size", "100", "--actor.dual_clip", "3.0"),
        *("--no-ds.zero_stag", "--rollout.max_tokens_per_gpu", "100"),
    )
    assert code == 2
    for expected in (
        "unknown flag --rollout.batchsize. Did you mean --rollout.batch_size?",
        "unknown flag --ds.zero_stag. Did you mean --ds.zero_stage?",
        "--actor.adam.lr fast: invalid float value: 'fast'.",
        "--ds.packing_samples yes: unrecognized arguments: yes. It is a switch",
        "--actor.policy_loss_type reel: invalid choice: 'reel' (choose from ",
        "--train.batch_size 100 does not cut a rollout of 128 prompts x 8 into equal updates of whole groups",
        "--actor.dual_clip clips PPO's surrogate",
        "--rollout.max_tokens_per_gpu 100 cannot hold one sample of --data.max_len 9216",
        "model /not/there has no readable config.json",
        "--data.prompt_dataset /not/there.jsonl does not exist. Name a file",
        "REAL_GRADER=robst must be robust, disco or math_verify. Set one of these, or unset it.",
        "REAL_REWARD_SECONDS=5m must be a number above 0",
    ):
        assert any(expected in problem for problem in problems), expected
    assert len(problems) == 12


def test_a_hub_that_does_not_answer_is_asked_once(tmp_path):
    """Its client would try for half a minute, with a warning each time."""
    asked = []

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                asked.append(server.accept()[0].close())

    program = "from real_openrlhf.cli import main; main('train --recipe qwen7b --dry-run'.split())"
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=hang_up).start()
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{server.getsockname()[1]}", "HF_HUB_OFFLINE": "0"}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | hub)
        server.shutdown(socket.SHUT_RDWR)
    assert len(asked) <= 2 and done.stderr == ""  # httpx may knock again
    assert "Flags OK. Not checked: what is made before training, the model on the hub. " in done.stdout


def test_a_run_goes_on_with_as_many_gpus_as_its_checkpoints_have(capsys, tmp_path):
    """DeepSpeed would say so after every rank has loaded the model."""
    for step in (20, 40):
        checkpoint = tmp_path / f"runs/begun/checkpoints/_actor/global_step{step}"
        checkpoint.mkdir(parents=True)
        about = {"global_step": step, "ranks": 8, "run": "begun", "files": {}}
        (checkpoint / "manifest.json").write_text(json.dumps(about))
    record = {"recipe": "qwen7b", "algo": "real", "seed": 42, "status": "failed", "objective": {}}
    (tmp_path / "runs/begun/run.json").write_text(json.dumps(record))
    words = ("--recipe", "qwen7b", "--resume", "--run-name", "begun", "--runs-dir", str(tmp_path / "runs"))
    (problem,) = dry_run(capsys, *words, "--gpus", "4")[2]
    assert "has checkpoints of 8 GPUs, and this run has 4" in problem and "Give 8 in all" in problem
    for as_many in (("--gpus", "8"), ("--gpus", "4", "--nodes", "2"), ("--gpus", "4", "--ds.use_universal_ckpt")):
        _, printed, problems = dry_run(capsys, *words, *as_many)
        assert not [one for one in problems if "checkpoints" in one]
        assert "/runs/begun goes on after step 40, from its last checkpoint" in printed


def test_a_run_goes_on_under_the_grader_that_it_began_with(capsys, tmp_path, monkeypatch):
    """On another CPU too."""
    (tmp_path / "runs/begun").mkdir(parents=True)
    record = {"recipe": "cpu", "algo": "real", "seed": 42, "status": "failed", "objective": {}}
    record |= {"variables": {"REAL_GRADER": "disco", "REAL_THINK": "auto"}, "machine": {"cpu": "another"}}
    (tmp_path / "runs/begun/run.json").write_text(json.dumps(record))
    words = ("--resume", "--run-name", "begun", "--runs-dir", str(tmp_path / "runs"))
    _, printed, problems = dry_run(capsys, *words)
    (problem,) = [one for one in problems if "REAL_GRADER" in one]
    assert "began with REAL_GRADER=disco, and now it is robust" in problem and "Set REAL_GRADER=disco" in problem
    assert printed == ""
    monkeypatch.setenv("REAL_GRADER", "disco")
    assert not [one for one in dry_run(capsys, *words)[2] if "REAL_GRADER" in one]


def test_a_run_goes_on_with_the_objective_that_it_began_with(capsys, tmp_path):
    text = "def mine(scores, groups, settings):\n    return groups.sum(scores, groups.negative)\n"
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "runs/begun").mkdir(parents=True)
    record = {"recipe": "qwen7b", "algo": "real", "seed": 42, "status": "failed", "flags": {"--actor.adam.lr": 0.5}}
    record["objective"] = {"elsewhere.py": hashlib.sha256(text.encode()).hexdigest()}  # the file may have moved
    (tmp_path / "runs/begun/run.json").write_text(json.dumps(record))

    def problems(objective: str) -> list[str]:
        resumed = ("--recipe", "qwen7b", "--run-name", "begun", "--resume")
        _, printed, problems = dry_run(capsys, *resumed, "--algo.real.objective", objective)
        assert problems or "since this run began --actor.adam.lr has changed from 0.5 to 1e-06" in printed
        return problems

    assert problems("mine.py:mine") == []
    (changed,) = problems("real")
    assert "began with another objective or agent" in changed and "now none" in changed
    (tmp_path / "mine.py").write_text(text + "# another\n")
    (changed,) = problems("mine.py:mine")
    assert record["objective"]["elsewhere.py"][:12] in changed and "another --run-name" in changed


def test_asynchronous_engines_cannot_sleep(capsys):
    words = ("--recipe", "qwen7b", "--gpus", "4", "--train.async_enable")
    _, _, (problem,) = dry_run(capsys, *words)
    assert problem.startswith("--vllm.enable_sleep: ") and "(--no-vllm.enable_sleep)" in problem
    code, printed, problems = dry_run(capsys, *words, "--no-vllm.enable_sleep", "--no-ds.enable_sleep")
    assert (code, problems) == (0, [])
    assert "this run needs 8 GPUs (4 of the 8 are for vLLM alone)" in printed


def test_a_dry_run_does_not_import_the_stack():
    """It would take ten seconds, and on a login node fail."""
    program = (
        "import sys; from real_openrlhf.cli import main; code = main('train --recipe qwen7b --dry-run'.split());"
        "print(code, {'deepspeed', 'openrlhf', 'ray', 'transformers', 'vllm'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 set()", done.stderr


def test_an_unpatched_openrlhf_is_told_with_the_fix(tmp_path):
    """Run against a copy that the patches were taken off again."""
    copy_release(tmp_path / "copy")
    package = Path(cli.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "real_openrlhf.cli", "train", "--recipe", "cpu"],
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{tmp_path / 'copy'}", "REAL_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "does not carry the patches" in done.stderr and "patching apply" in done.stderr
    assert "Traceback" not in done.stderr


# The launcher learns how much memory GPUs have without starting CUDA in its own process


def test_the_launcher_asks_for_memory_in_another_process(monkeypatch):
    import torch

    assert len(nvidia.memory_sizes()) == torch.cuda.device_count()  # the real question
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # there is none here
    monkeypatch.setattr(nvidia, "environment_for_cpu", lambda: False)
    assert nvidia.usable_gpus() == []  # the driver's, which PyTorch cannot use
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for chosen, devices in {"": ["0", "1"], "4,7": ["4", "7"], "5": ["5"]}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
        assert nvidia.usable_gpus()[: len(devices)] == devices
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(nvidia, "memory_sizes", lambda: [150_000_000_000, 80_000_000_000])
    assert nvidia.local_gpus() == (2, 80.0)


def test_a_kl_that_a_grpo_command_brings_into_real_is_noted(capsys):
    grpo = ("--algo.kl.use_loss", "--algo.kl.init_coef", "1e-3")
    _, printed, problems = dry_run(capsys, *grpo)
    assert problems == [] and "note: --algo.kl.init_coef 0.001 adds a KL loss and a reference model" in printed
    for algo in ("real", "grpo"):
        assert "adds a KL loss" not in dry_run(capsys, "--algo", algo)[1]
