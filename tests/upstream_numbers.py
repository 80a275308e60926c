"""What `ppo` and `gspo` compute in the OpenRLHF that this process imports, for `slow/test_patched_release.py`.

    upstream_numbers.py OUT.pt [--lend]

Saves a dictionary per part, {name: tensor or value}: training from seeded batches to weights, the final arguments,
DeepSpeed's configuration. Losses, advantages and the experience maker are in files that no patch touches. `--lend`
gives the release, from outside and without a change to its files, what it lacks on a machine without CUDA; the patched
one needs none of it.
"""

import ast
import contextlib
import io
import itertools
import os
import sys
import tempfile
import types
from pathlib import Path
from unittest import mock

import torch
from tiny_models import letters, model_of

from real_openrlhf.hooks.fixes.deepspeed_optimizers import compile_less

SEED = 20261121
VOCABULARY, PROMPT = 19, 3


def lend_what_cuda_has() -> None:
    """The calls of torch.cuda that the release makes on the way, answered for a CPU."""

    class Cpu(str):
        """`torch.cuda.current_device()`: a device for torch, and an index where the release formats one."""

        def __format__(self, spec: str) -> str:
            return "0"

    from torch.distributed import device_mesh

    torch.cuda.current_device = lambda: Cpu("cpu")
    torch.cuda.set_device = lambda index: None
    torch.cuda.synchronize = lambda: None
    make_mesh = device_mesh.init_device_mesh
    device_mesh.init_device_mesh = lambda device, *args, **kwargs: make_mesh("cpu", *args, **kwargs)


@contextlib.contextmanager
def lend_flash_attn():
    """Names to import for `openrlhf.models`; taken away again, so that nothing else believes in them."""
    import peft  # noqa: F401  these look for the real package when they are imported
    import transformers.integrations.deepspeed
    import transformers.modeling_flash_attention_utils  # noqa: F401

    names = ("index_first_axis", "pad_input", "rearrange", "unpad_input", "all_gather")
    lent = ("flash_attn", "flash_attn.bert_padding", "flash_attn.utils", "flash_attn.utils.distributed")
    for name in lent:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in lent:
            del sys.modules[name]


# 1. Rollouts.


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


# 2. Training, with the real DeepSpeed engine.

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

    args = arguments(f"{flags} --actor.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --actor.adam.lr 1e-3")
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


# 3. The command line.

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


def call(flags: str) -> types.SimpleNamespace:
    """What the script calls `train` with, given these flags."""
    from openrlhf.cli import train_ppo_ray

    main_block = ast.parse(Path(train_ppo_ray.__file__).read_text()).body[-1].body
    seen: list = []
    code = compile(ast.Module(main_block, []), train_ppo_ray.__file__, "exec")
    with mock.patch.object(sys, "argv", ["train_ppo_ray.py", *flags.split()]):
        exec(code, vars(train_ppo_ray) | {"train": seen.append})
    return seen[0]


def arguments(flags: str) -> types.SimpleNamespace:
    with contextlib.redirect_stdout(io.StringIO()):  # it warns of what the tests mean to ask for
        return call(f"--actor.model_name_or_path model --reward.remote_url http://reward {flags}")


def flat(value, name: str = "") -> dict:
    if not isinstance(value, types.SimpleNamespace):
        return {name: value}
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
                values = flat(call(flags))
        except (Exception, SystemExit) as refusal:
            values = {"refused": f"{type(refusal).__name__}: {refusal}"}
        found[flags] = values | {"printed": printed.getvalue()}
    return found


# 4. DeepSpeed's configuration where CUDA is.


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


def main() -> None:
    out, *lend = sys.argv[1:]
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    if lend:
        lend_what_cuda_has()
    with lend_flash_attn() if lend else contextlib.nullcontext():
        import openrlhf.models

    compile_less()  # what others of the tests have compiled
    parts = (training, command_lines, deepspeed_settings)
    found = {part.__name__: part() for part in parts}
    torch.save(found | {"package": str(Path(openrlhf.__file__).parents[1])}, out)


if __name__ == "__main__":
    main()
