"""REAL's flags: what they default to, what is refused, and that each refusal says what to do."""

import argparse
import contextlib
import importlib.util
import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from real_openrlhf.algorithm.formulas import OBJECTIVES, SETTINGS, readers
from real_openrlhf.errors import UserError
from real_openrlhf.hooks import arguments

# Upstream's flags that the checks read, with upstream's defaults; test_dry_run.py asks the patched parser itself.
UPSTREAM = {
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 8,
    "actor.policy_loss_type": "ppo",
    "actor.dual_clip": None,
    "algo.advantage.estimator": "gae",
    "algo.advantage.is_correction_level": "off",
    "algo.dynamic_filtering_enable": False,
    "algo.kl.init_coef": 0.01,
    "algo.kl.use_loss": False,
    "data.max_images_per_prompt": 0,
    "ds.attn_implementation": "eager",
    "ds.lora.dropout": 0.0,
    "ds.ring_attn_size": 1,
    "ds.tensor_parallel_size": 1,
    "ds.zero_stage": 2,
    "ref.offload": False,
    "reward.overlong_buffer_len": None,
    "reward.remote_url": None,
    "reward.stop_properly_penalty_coef": None,
    "rollout.batch_size": 1024,
    "rollout.n_samples_per_prompt": 1,
    "train.agent_func_path": None,
    "train.async_enable": False,
    "train.batch_size": 128,
    "train.colocate_all": False,
    "train.dynamic_batch_enable": False,
    "train.enable_ema": False,
    "train.micro_batch_size": 1,
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    for name, default in UPSTREAM.items():
        if isinstance(default, bool):
            made.add_argument(f"--{name}", action="store_true")
        else:
            kind = {"algo.kl.init_coef": float, "actor.dual_clip": float, "reward.stop_properly_penalty_coef": float}
            made.add_argument(
                f"--{name}", default=default, type=kind.get(name, type(default) if default is not None else str)
            )
    arguments.add(made)
    return made


def nested(flat: argparse.Namespace) -> SimpleNamespace:
    root = SimpleNamespace()
    for name, value in vars(flat).items():
        *parts, last = name.split(".")
        node = root
        for part in parts:
            node = vars(node).setdefault(part, SimpleNamespace())
        setattr(node, last, value)
    return root


REAL = "--actor.policy_loss_type real --reward.remote_url reward.py --rollout.n_samples_per_prompt 8"


def resolve(flags: str) -> SimpleNamespace:
    return arguments.resolve(nested(parser().parse_args(flags.split())))


def refusals(flags: str) -> list[str]:
    with pytest.raises(UserError) as refused:
        resolve(f"{REAL} {flags}")
    return refused.value.problems


def test_real_needs_one_flag_beside_what_grpo_has():
    args = resolve(REAL)
    assert args.algo.kl.init_coef == 0 and args.algo.real.reference is False  # no reference model
    assert args.algo.advantage.estimator == "group_norm"  # no critic
    assert args.algo.real.objective == "real" and args.algo.real.uniform_groups == "drop"


@pytest.mark.parametrize("loss", ["ppo", "gspo"])
def test_upstreams_losses_keep_upstreams_defaults(loss):
    args = resolve(f"--actor.policy_loss_type {loss}")
    assert args.algo.kl.init_coef == 0.01 and args.algo.advantage.estimator == "gae"
    assert args.algo.real.reference is True and args.algo.kl.use_loss is False


@pytest.mark.parametrize("loss", ["ppo", "gspo", f"real {REAL.split(' ', 2)[2]}"])
def test_what_was_typed_is_kept(loss):
    flags = "--algo.kl.init_coef 0.5 --algo.kl.use_loss --algo.advantage.estimator rloo"
    args = resolve(f"--actor.policy_loss_type {loss} {flags}")
    assert args.algo.kl.init_coef == 0.5 and args.algo.advantage.estimator == "rloo" and args.algo.real.reference


def test_ppo_is_not_refused_what_real_is():
    resolve(
        "--actor.dual_clip 3 --train.batch_size 7 --ds.zero_stage 0 --algo.real.tau -1 --reward.overlong_buffer_len 9"
    )


@pytest.mark.parametrize(
    "flags, order, samples",
    [("", False, False), ("--rollout.seeded_order", True, False), ("--rollout.seeded", True, True)],
)
def test_a_seed_for_every_sample_includes_the_order(flags, order, samples):
    rollout = resolve(flags).rollout
    assert (rollout.seeded_order, rollout.seeded) == (order, samples)


@pytest.mark.parametrize(
    "flags, mismatch, mode",
    [
        ("", "off", None),  # upstream's losses, as upstream
        ("--train.run_dir runs/x", "stop", "processed_logprobs"),
        (REAL, "stop", "processed_logprobs"),
        (f"{REAL} --train.async_enable", "log", "processed_logprobs"),  # older by design
        (f"{REAL} --rollout.mismatch log", "log", "processed_logprobs"),
        (f"{REAL} --rollout.mismatch off", "off", None),
        ("--algo.advantage.is_correction_level token", "off", "processed_logprobs"),  # upstream's own use of them
    ],
)
def test_vllm_tells_log_probabilities_where_someone_looks_at_them(flags, mismatch, mode):
    rollout = resolve(flags).rollout
    assert (rollout.mismatch, rollout.logprobs_mode) == (mismatch, mode)


@pytest.mark.parametrize(
    "flags, says",
    [
        ("--algo.real.mismatch_limit 0", "must be a positive number"),
        ("--algo.real.mismatch_limit 0.2 --rollout.mismatch off", "needs vLLM's log-probabilities"),
        ("--ref.offload --ds.zero_stage 2", "does nothing with --ds.zero_stage 2"),
        ("--actor.policy_loss_type cispo --actor.dual_clip 3", "--actor.dual_clip clips PPO's surrogate"),
        (
            "--actor.policy_loss_type cispo --algo.advantage.is_correction_level token",
            "is_correction_level token is not made with --actor.policy_loss_type cispo",
        ),
    ],
)
def test_what_could_not_work_is_refused(flags, says):
    (problem,) = refusals(flags)
    assert says in problem


def test_trpa_gets_its_reference_model_without_a_kl_loss():
    args = resolve(f"{REAL} --algo.real.objective trpa")
    assert args.algo.real.reference and args.algo.kl.use_loss and args.algo.kl.init_coef == 0


def test_an_objective_of_the_users_own_is_found_from_anywhere_and_gets_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from real_openrlhf.algorithm.objective import Objective\n"
        "def pull(scores, groups, settings):\n"
        "    return -groups.mean(scores, groups.positive)\n"
        "against_reference = Objective(pull, score='log_ratio_ref', reads=('trpa_beta',))\n"
    )
    args = resolve(f"{REAL} --algo.real.objective mine.py:pull --algo.real.tau 0.3")
    assert args.algo.real.objective == f"{tmp_path}/mine.py:pull" and not args.algo.real.reference
    args = resolve(f"{REAL} --algo.real.objective mine.py:against_reference --algo.real.trpa_beta 7")
    assert args.algo.real.reference and args.algo.kl.use_loss
    (refusal,) = refusals("--algo.real.objective mine.py:against_reference --algo.real.tau 0.3")
    assert f"is not read by --algo.real.objective {tmp_path}/mine.py:against_reference" in refusal
    (refusal,) = refusals("--algo.real.objective mine.py:push")
    assert refusal.startswith(f"--algo.real.objective {tmp_path}/mine.py:push: {tmp_path}/mine.py defines no 'push'")
    (tmp_path / "mine.py").write_text("def pull(scores, groups, settings):\n    return scores\n")
    (refusal,) = refusals("--algo.real.objective mine.py:pull")
    assert "pull: it returns shape (11,), not one loss for each group" in refusal


# flags, what the message must name, the fix that it must give (flags that are then accepted in their place)
REFUSED = {
    "a critic": ("--algo.advantage.estimator gae", "would start a critic", "--algo.advantage.estimator group_norm"),
    "no labels": ("--reward.remote_url=", "there is none. Give --reward.remote_url FILE.py", ""),
    "a length penalty": ("--reward.overlong_buffer_len 512", "--reward.overlong_buffer_len 512 changes", ""),
    "a truncation penalty": (
        "--reward.stop_properly_penalty_coef 0",
        "--reward.stop_properly_penalty_coef 0.0 changes",
        "",
    ),
    "a group of one": (
        "--rollout.n_samples_per_prompt 1",
        "a group of one has nothing to classify. Use 8",
        "--rollout.n_samples_per_prompt 8",
    ),
    "no group": ("--rollout.n_samples_per_prompt 0", "--rollout.n_samples_per_prompt 0: a group", ""),
    "torn groups": ("--train.batch_size 100", "Use a multiple of 8, for example 96", "--train.batch_size 96"),
    "no batch": ("--train.batch_size 0", "--train.batch_size 0 (samples) does not hold whole groups", ""),
    "more than a rollout": (
        "--rollout.batch_size 8",
        "more than a rollout of --rollout.batch_size 8 x --rollout.n_samples_per_prompt 8 = 64 samples. Use 64 or "
        "less",
        "--rollout.batch_size 8 --train.batch_size 64",
    ),
    "uneven micro-batches": (
        "--train.micro_batch_size 3",
        "is not a multiple of --train.micro_batch_size 3 x 8 ranks",
        "--train.micro_batch_size 3 --train.dynamic_batch_enable",
    ),
    "no micro-batch": ("--train.micro_batch_size 0", "--train.micro_batch_size 0: use 1 or more", ""),
    "idle ranks": (
        "--train.dynamic_batch_enable --train.batch_size 8 --actor.num_gpus_per_node 16",
        "gives no sample to some of the 16 ranks. Use fewer ranks (--actor.num_gpus_per_node)",
        "--train.dynamic_batch_enable --train.batch_size 8 --actor.num_gpus_per_node 8",
    ),
    "dual clip": ("--actor.dual_clip 3", "--actor.dual_clip clips a PPO ratio", ""),
    "IS correction": (
        "--algo.advantage.is_correction_level token",
        "Use --algo.advantage.is_correction_level off",
        "--algo.advantage.is_correction_level off",
    ),
    "KL in a reward": (
        "--algo.kl.init_coef 0.1",
        "Use --algo.kl.init_coef 0 (the paper), or add --algo.kl.use_loss --algo.kl.estimator k3",
        "--algo.kl.init_coef 0.1 --algo.kl.use_loss",
    ),
    "LoRA dropout": ("--ds.lora.dropout 0.1", "Use --ds.lora.dropout 0", "--ds.lora.dropout 0"),
    "filtered and kept": (
        "--algo.dynamic_filtering_enable --algo.real.uniform_groups keep",
        "--algo.dynamic_filtering_enable removes the groups that --algo.real.uniform_groups keep is about",
        "--algo.dynamic_filtering_enable",
    ),
    "ZeRO 0": ("--ds.zero_stage 0", "Use --ds.zero_stage 2", "--ds.zero_stage 2"),
    "EMA under ZeRO-3": (
        "--train.enable_ema --ds.zero_stage 3",
        "Use --ds.zero_stage 2, or leave --train.enable_ema out",
        "--train.enable_ema --ds.zero_stage 2",
    ),
    "ring attention": ("--ds.ring_attn_size 2", "Use --ds.ring_attn_size 1", "--ds.ring_attn_size 1"),
    "images": ("--data.max_images_per_prompt 1", "text prompts", ""),
    **{
        f"tau {tau}": (
            f"--algo.real.tau={tau}",
            f"--algo.real.tau {float(tau)}: it must be a positive",
            "--algo.real.tau 0.5",
        )
        for tau in ("0", "-1", "nan", "inf")
    },
    "trpa's beta": (
        "--algo.real.objective trpa --algo.real.trpa_beta 0",
        "--algo.real.trpa_beta 0.0: it must be a positive number. Use 0.1",
        "--algo.real.objective trpa --algo.real.trpa_beta 0.1",
    ),
    **{
        f"{flag} {value}": (
            f"{context} --{flag}={value}",
            f"--{flag} {float(value)}: a KL term",
            f"{context} --{flag} 0",
        )
        for value in ("-0.1", "nan", "inf")
        for flag, context in {
            "algo.kl.init_coef": "--algo.kl.use_loss",
            "algo.real.kl_old_coef": "",
            "algo.real.disco_kl_coef": "--algo.real.objective disco_logl",
            "algo.real.disco_kl_delta": "--algo.real.objective disco_lratio",
        }.items()
    },
    "threshold": (
        "--algo.real.label_threshold nan",
        "--algo.real.label_threshold nan",
        "--algo.real.label_threshold 0.5",
    ),
    "an objective that there is not": (
        "--algo.real.objective reel",
        "--algo.real.objective reel: unknown objective 'reel': choose one of real, ",
        "--algo.real.objective real",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_with_the_fix(name):
    flags, message, fix = REFUSED[name]
    found = refusals(flags)
    assert any(message in refusal for refusal in found), found
    for refusal in found:
        assert "\n" not in refusal
        assert re.search(r"--[a-z]|text prompts", refusal)  # what is wrong by name,
        assert re.search(r"\b(Use|Leave|Give|Change|use|choose) ", refusal)  # and what to do
    resolve(f"{REAL} {fix}")  # what the message says is then accepted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--algo.real.scoring often", "invalid choice: 'often'"),
        ("--algo.real.wave_depth 0", "'0': give auto, or a number of micro-batches of 1 or more"),
    ],
)
def test_the_parser_itself_refuses_a_wave_that_cannot_be(capsys, words, message):
    with pytest.raises(SystemExit):
        parser().parse_args(words.split())
    assert re.search(message, capsys.readouterr().err)


def test_a_negative_step_limit_is_refused_for_every_method():
    for flags in ("", REAL):
        with pytest.raises(UserError, match="Use a number of steps, or 0 for all data"):
            resolve(f"{flags} --train.max_steps=-1")


def test_the_script_refuses_with_a_line_for_each_problem_and_exit_code_2(capsys):
    with pytest.raises(SystemExit) as exit:
        arguments.or_exit(lambda: resolve(f"{REAL} --ds.zero_stage 0 --algo.real.trpa_beta 0"))
    assert exit.value.code == 2
    zero, beta, unread = capsys.readouterr().err.splitlines()
    assert zero == "error: --ds.zero_stage 0: REAL's trainer needs ZeRO stage 1, 2 or 3. Use --ds.zero_stage 2"
    assert beta.startswith("error: --algo.real.trpa_beta 0.0: ") and unread.startswith(
        "error: --algo.real.trpa_beta 0.0 "
    )


def own_actions() -> list[argparse.Action]:
    return [action for action in parser()._actions if action.dest not in {*UPSTREAM, "help"}]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_help_names_every_objective_its_source_and_its_own_temperature(name):
    actions = {action.dest: action for action in own_actions()}
    assert f"{name} ({OBJECTIVES[name].source})" in actions["algo.real.objective"].help
    if "tau" in OBJECTIVES[name].reads:
        said = dict(re.findall(r"for (\w+) ([\d.]+)", actions["algo.real.tau"].help))
        assert OBJECTIVES[name].tau == float(said.get(name, 0.5))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_is_refused_the_settings_that_it_does_not_read(name):
    """Each setting of `SETTINGS` by itself: taken, or refused with the objectives that read it."""
    for setting, value in {
        "tau": 0.3,
        "bce_reduction": "mean",
        "trpa_beta": 7,
        "disco_kl_coef": 7,
        "disco_kl_delta": 7,
    }.items():
        flags = f"--algo.real.objective {name} --algo.real.{setting} {value}"
        if setting in OBJECTIVES[name].reads:
            resolve(f"{REAL} {flags}")
        else:
            (refusal,) = refusals(flags)
            assert f"--algo.real.{setting} {value}" in refusal and readers(setting)[0] in refusal


def test_settings_of_some_objectives_have_their_flags_and_defaults():
    defaults = {action.dest.removeprefix("algo.real."): action.default for action in own_actions()}
    assert {name: defaults[name] for name in SETTINGS} == SETTINGS


@pytest.mark.skipif(importlib.util.find_spec("openrlhf") is None, reason="OpenRLHF is not installed")
def test_the_nesting_here_is_openrlhfs():
    origin = Path(importlib.util.find_spec("openrlhf").origin).parent / "utils/config.py"
    spec = importlib.util.spec_from_file_location("config_of_openrlhf", origin)  # openrlhf.utils itself imports ray
    config = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    flat = parser().parse_args([])
    assert config.hierarchize(flat) == nested(flat)


def test_help_is_printable():
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
        parser().parse_args(["--help"])  # argparse formats %-signs
    assert "REAL (Rewards as Labels)" in printed.getvalue()
