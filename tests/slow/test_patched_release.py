"""OpenRLHF as released against OpenRLHF patched: `ppo` and `gspo` compute the same, bit for bit.

Two processes run `main` below, each with its own copy of the installed package in front: one that the series was taken
off (the tool proves by SHA-256 that it is the release), one that it is on. Each saves a dictionary per part, {name:
tensor or value}: training from seeded batches to weights, the final arguments, DeepSpeed's configuration. Losses,
advantages and the experience maker are in files that no patch touches.
"""

import ast
import contextlib
import dataclasses
import io
import itertools
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from unittest import mock

import pytest
import torch
from every import EVERY
from small_world import REPOSITORY, copy_release
from tiny_models import letters, model_of

from real_openrlhf import patching
from real_openrlhf.hooks.fixes.deepspeed_optimizers import compile_less

COPIES = {"release": (patching.revert, patching.BEFORE, ("--lend",)), "patched": (patching.apply, patching.AFTER, ())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder for each of `COPIES`, with openrlhf in that state."""
    folder = tmp_path_factory.mktemp("release")
    for copy, (bring, state, _) in COPIES.items():
        bring(copy_release(folder / copy))
        assert set(patching.file_states(folder / copy, patching.load_series()).values()) == {state}
    return folder


def importing(root: Path) -> dict[str, str]:
    """The environment of a process that imports the openrlhf in `root`."""
    settings = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{REPOSITORY / 'tests'}", **settings}


@pytest.fixture(scope="module")
def found(python, folder) -> dict[str, dict]:
    """{"release": {name: value}, "patched": {name: value}}"""
    running = {}
    for copy, (_, _, lend) in COPIES.items():
        log = (folder / f"{copy}.log").open("w")
        command = [python, __file__, str(folder / f"{copy}.pt"), *lend]
        running[copy] = subprocess.Popen(command, env=importing(folder / copy), stdout=log, stderr=log)
    for copy, process in running.items():
        assert process.wait() == 0, (folder / f"{copy}.log").read_text()[-4000:]
    values = {copy: torch.load(folder / f"{copy}.pt", weights_only=False) for copy in COPIES}
    for copy in COPIES:
        assert values[copy].pop("package") == str(folder / copy)  # the copy is what was imported
    return values


def bits(value: torch.Tensor | float):
    """What two equal values have in common and no others: nan equals itself, 0.0 is not -0.0."""
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
    return tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8).tolist()


def test_training_by_release_and_patched_openrlhf_is_equal_bit_for_bit(found):
    """What is logged of losses and gradients, and the weights after four or more optimizer steps."""
    release, patched = found["release"]["training"], found["patched"]["training"]
    assert release.keys() == patched.keys()
    assert [key for key in release if bits(release[key]) != bits(patched[key])] == []
    runs = {key.split("/")[0] for key in release}
    assert {run.split(",")[0] for run in runs} == {"ppo", "gspo"} and len(runs) == 4
    assert all(release[f"{run}/status 1/actor_grad_norm"] > 0 for run in runs)
    assert found["patched"]["own batching"] == 4 * [False]  # so each run of these keeps the release's AdamW


def test_the_same_command_line_gives_the_same_arguments(found):
    """But for what the series adds: REAL's settings, what a run lacks, all of it off, and notes on unread flags."""
    release, patched = found["release"]["command_lines"], found["patched"]["command_lines"]
    assert release.keys() == patched.keys()
    for flags, values in release.items():
        added = {name: patched[flags].pop(name) for name in patched[flags].keys() - values.keys()}
        for arguments in (patched[flags], values):
            arguments.pop("logger.wandb.run_name", None)  # the minute of the day is in it
        patched[flags]["printed"] = re.sub("note: .* is not read by this run: .*\n", "", patched[flags]["printed"])
        assert patched[flags] == values, flags
        if "refused" in values:
            assert added == {}
        else:
            derived = added.pop("derived")
            assert derived["reference"] == (values["algo.kl.init_coef"] > 0)  # as the release starts one
            assert added.pop("train.batching") == "upstream" and added.pop("rollout.mismatch") == "off"
            corrected = values["algo.advantage.is_correction_level"] != "off"  # the release asks vLLM the same then
            assert derived["logprobs_mode"] == ("processed_logprobs" if corrected else None)
            # limits of a run that has a folder: here is none
            of_folder = {"train.watchdog_minutes", "logger.rollout_groups"}
            assert not any(added[name] for name in added.keys() - of_folder if not name.startswith("algo.real."))
    refused = [values["refused"] for values in release.values() if "refused" in values]
    assert any("requires --train.async_enable" in why for why in refused) and 4 < len(refused) < len(release) / 2


def test_deepspeed_is_configured_alike_where_cuda_is(found):
    """The settings of the gathers are for gloo alone."""
    release, patched = found["release"]["deepspeed_settings"], found["patched"]["deepspeed_settings"]
    assert release == patched and len(release) == 32


def test_where_this_package_was_uninstalled_first_openrlhf_imports_and_the_command_names_the_fix(python, folder):
    program = """
import sys
for name in ["real_openrlhf", *sys.modules]:  # an import of it fails as if it were not there
    if name.partition(".")[0] == "real_openrlhf":
        sys.modules[name] = None
import openrlhf.trainer.ppo_trainer_async, openrlhf.trainer.ray.ppo_actor, openrlhf.trainer.ray.vllm_worker_wrap
print(openrlhf.trainer.ppo_trainer.__file__)
import openrlhf.cli.train_ppo_ray
"""
    done = subprocess.run(
        [python, "-c", program], env=importing(folder / "patched"), cwd=folder, capture_output=True, text=True
    )
    assert done.stdout.split()[-1] == str(folder / "patched/openrlhf/trainer/ppo_trainer.py"), done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: this openrlhf is patched: reinstall it, or install real_openrlhf"


# What runs in the two processes.


SEED = 20261121
VOCABULARY, PROMPT = 19, 3


@contextlib.contextmanager
def lent():
    """What the release lacks on a machine without CUDA, from outside: torch.cuda's answers for a CPU, and names to
    import for `openrlhf.models`, taken away again, so that nothing else believes in them."""
    import peft  # noqa: F401  these look for the real package when they are imported
    import transformers.integrations.deepspeed
    import transformers.modeling_flash_attention_utils  # noqa: F401
    from torch.distributed import device_mesh

    class Cpu(str):
        """`torch.cuda.current_device()`: a device for torch, and an index where the release formats one."""

        def __format__(self, spec: str) -> str:
            return "0"

    torch.cuda.current_device = lambda: Cpu("cpu")
    torch.cuda.set_device = torch.cuda.synchronize = lambda *_: None
    make_mesh = device_mesh.init_device_mesh
    device_mesh.init_device_mesh = lambda device, *args, **kwargs: make_mesh("cpu", *args, **kwargs)
    names = ("index_first_axis", "pad_input", "rearrange", "unpad_input", "all_gather")
    packages = ("flash_attn", "flash_attn.bert_padding", "flash_attn.utils", "flash_attn.utils.distributed")
    for name in packages:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in packages:
            del sys.modules[name]


def batches(count: int, size: int, name: str):
    """Rollouts as the sampler hands them over, with what the models say of them."""
    from openrlhf.trainer.ppo_utils.experience import Experience

    draw, made = torch.Generator().manual_seed(SEED + sum(map(ord, name))), []
    for _ in range(count):
        length = int(torch.randint(1, 8, (), generator=draw))
        tokens = PROMPT + length

        def numbers(scale: float, tokens=tokens) -> torch.Tensor:
            return scale * torch.randn(1, tokens - 1, generator=draw)

        mask = torch.arange(1, tokens)[None] >= PROMPT  # as upstream: one column less than tokens, prompt included
        if length > 4:
            mask[0, PROMPT + 1] = False  # a tool's answer, say
        made.append(
            Experience(
                sequences=torch.randint(2, VOCABULARY, (1, tokens), generator=draw),
                attention_mask=torch.ones(1, tokens, dtype=torch.long),
                action_mask=mask,
                action_log_probs=numbers(0.3) - 3,
                base_action_log_probs=numbers(0.3) - 3,
                rollout_log_probs=numbers(0.3) - 3,
                advantages=numbers(1.0),
                scores=(torch.rand(1, generator=draw) < 0.4).float(),
                response_length=torch.tensor([length]),
                total_length=torch.tensor([tokens]),
                info={"reward": torch.ones(1)},
            )
        )
    return [Experience.concat_experiences(made[at : at + size], 0) for at in range(0, count, size)]


BATCHES = "--rollout.batch_size 6 --rollout.n_samples_per_prompt 4 --train.batch_size 12"
STATIC = f"{BATCHES} --train.micro_batch_size 4"
DYNAMIC = (
    f"{BATCHES} --train.dynamic_batch_enable --train.max_tokens_per_gpu 40 --train.max_epochs 2 --vllm.num_engines 1"
)
KL_LOSS = "--algo.kl.use_loss --algo.kl.estimator k3 --algo.kl.init_coef 0.2"
RUNS = {
    "ppo": STATIC,
    "ppo, ZeRO-3, KL loss, entropy": f"{STATIC} {KL_LOSS} --ds.zero_stage 3 --actor.entropy_coef 0.01",
    "ppo, dynamic batches": DYNAMIC,
    "gspo, ZeRO-3, dynamic batches": f"{DYNAMIC} --actor.policy_loss_type gspo --ds.zero_stage 3",
}


def train(name: str, flags: str, model: Path) -> dict:
    """Two rollout batches through the policy actor as Ray would construct it: what it logs, and the weights."""
    from deepspeed.utils import safe_get_full_fp32_param
    from openrlhf.trainer.ppo_utils.experience import balance_experiences
    from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
    from openrlhf.utils import get_strategy

    with contextlib.redirect_stdout(io.StringIO()):  # it warns of what the tests mean to ask for
        args = called(f"{REQUIRED} {flags} --actor.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --actor.adam.lr 1e-3")
    args.ds.packing_samples, args.ds.attn_implementation = False, "eager"  # dynamic batching sets flash-attn's
    args.ds.param_dtype = "bf16"
    args.train.run_dir = str(model.parent)  # as every run of the package has one
    cls = PolicyModelActor.__ray_metadata__.modified_class
    policy = cls.__new__(cls)
    policy.init_model_from_pretrained(get_strategy(args), str(model), max_steps=8)
    trainer = policy.trainer
    found: dict = {}
    for rollout_step in range(2):
        torch.manual_seed(SEED + rollout_step)  # the data loader shuffles
        experiences = batches(24, 6, f"train {rollout_step}")
        if args.train.dynamic_batch_enable:
            experiences = balance_experiences(experiences, args)
        for experience in experiences:
            trainer.replay_buffer.append(experience)
        status = trainer.ppo_train(args.algo.kl.init_coef)
        found |= {f"{name}/status {rollout_step}/{key}": value for key, value in status.items()}
        trainer.replay_buffer.clear()
    for parameter, value in policy.actor.model.module.named_parameters():
        found[f"{name}/after/{parameter}"] = safe_get_full_fp32_param(value).clone()
    return found


def training() -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        torch.distributed.init_process_group("gloo", f"file://{scratch}/ranks", rank=0, world_size=1)
        model = model_of(vocab_size=VOCABULARY)
        model.save_pretrained(Path(scratch) / "model")
        letters().save_pretrained(Path(scratch) / "model")
        found = {}
        for name, flags in RUNS.items():
            found |= train(name, flags, Path(scratch) / "model")
        torch.distributed.destroy_process_group()
    return found


REQUIRED = "--actor.model_name_or_path model --reward.remote_url http://reward:5000/a,http://reward:5000/b"
# Beside what is required. Refused are: a group of one, what needs --train.async_enable, fewer rollouts than actors,
# and flags and losses that there are not.
OPTIONS = f"""
--actor.policy_loss_type gspo --actor.eps_clip 0.1
--algo.advantage.estimator group_norm --rollout.n_samples_per_prompt 8 {KL_LOSS}
--algo.advantage.estimator group_norm
--algo.advantage.is_correction_level seq --algo.advantage.is_correction_threshold 2.0
{DYNAMIC} --algo.advantage.estimator reinforce_baseline
--train.async_enable --train.partial_rollout_enable --rollout.vllm_generate_batch_size 2048
--train.partial_rollout_enable
--rollout.vllm_generate_batch_size 2048
--algo.dynamic_filtering_enable
--train.agent_func_path agent.py --eval.dataset held_out --eval.steps 5
--critic.model_name_or_path critic --critic.save_value_network --train.enable_ema
--actor.dual_clip 3 --ds.lora.dropout 0.1 --ds.zero_stage 0 --train.batch_size 7
--rollout.batch_size 4 --rollout.micro_batch_size 1
--actor.policy_loss_type policy_gradient
--no.such_flag 1
--train.micro 2 --algo.kl.init 0.5"""
COMMANDS = [
    "",
    *(f"{REQUIRED} {options}" for options in OPTIONS.split("\n")),
    "--actor.model_name_or_path model --reward.model_name_or_path judge,other",
    "--actor.model_name_or_path model --eval.dataset held_out --reward.model_name_or_path judge",
]


def called(flags: str) -> types.SimpleNamespace:
    """What the script calls `train` with, given these flags."""
    from openrlhf.cli import train_ppo_ray

    main_block = ast.parse(Path(train_ppo_ray.__file__).read_text()).body[-1].body
    seen: list = []
    code = compile(ast.Module(main_block, []), train_ppo_ray.__file__, "exec")
    with mock.patch.object(sys, "argv", ["train_ppo_ray.py", *flags.split()]):
        exec(code, vars(train_ppo_ray) | {"train": seen.append})
    return seen[0]


def flat(value, name: str = "") -> dict:
    if not isinstance(value, types.SimpleNamespace):
        return {name: vars(value) if dataclasses.is_dataclass(value) else value}
    return {
        key: v
        for part, inner in vars(value).items()
        for key, v in flat(inner, f"{name}.{part}" if name else part).items()
    }


def command_lines() -> dict:
    found = {}
    for flags in COMMANDS:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                values = flat(called(flags))
        except (Exception, SystemExit) as refusal:
            values = {"refused": f"{type(refusal).__name__}: {refusal}"}
        found[flags] = values | {"printed": printed.getvalue()}
    return found


def deepspeed_settings() -> dict:
    from deepspeed.accelerator import set_accelerator
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
    from openrlhf.utils.deepspeed.deepspeed_utils import get_eval_ds_config, get_train_ds_config

    set_accelerator(CUDA_Accelerator())
    found = {}
    for stage, offload, tp in itertools.product((0, 1, 2, 3), (False, True), (1, 2)):
        at = f"{stage}/{offload}/{tp}"
        found[f"train/{at}"] = get_train_ds_config(
            offload, stage=stage, overlap_comm=offload, tensor_parallel_size=tp, optim_config={"type": "AdamW"}
        )
        found[f"eval/{at}"] = get_eval_ds_config(offload, stage=stage, tensor_parallel_size=tp)
    return found


def main(out: str, *lends: str) -> None:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    with lent() if lends else contextlib.nullcontext():
        import openrlhf.models

    # Each with DeepSpeed's own AdamW, where that can be compiled, which takes a minute; or else each with PyTorch's.
    compile_less(own_batching=not EVERY)
    asked: list[bool] = []
    if not lends:
        from real_openrlhf.hooks import run_strategy

        run_strategy.compile_less = asked.append
    found = {part.__name__: part() for part in (training, command_lines, deepspeed_settings)}
    found["own batching"] = asked
    torch.save(found | {"package": str(Path(openrlhf.__file__).parents[1])}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
