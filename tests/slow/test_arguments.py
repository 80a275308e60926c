"""REAL's flags in the patched OpenRLHF's own parser: what they default to, what is refused, and with what fix."""

import contextlib
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from real_openrlhf.base.errors import UserError
from real_openrlhf.flags.refusals import notes
from real_openrlhf.hooks import arguments

REQUIRED = (
    "--actor.model_name_or_path model --reward.remote_url reward.py --ds.attn_implementation eager "
    "--rollout.n_samples_per_prompt 8 --vllm.num_engines 1"
)
OBJECTIVE_FILES = Path(__file__).parents[2] / "examples/objectives"
PASS_AT_K, UNBIASED = (
    shlex.quote(f"{OBJECTIVE_FILES}/{name}") for name in ("passk.py:pass_at_k", "noise.py:unbiased_bce")
)
REAL = "--actor.policy_loss_type real"


def resolve(flags: str) -> SimpleNamespace:
    from openrlhf.cli.train_ppo_ray import parse_args

    return parse_args(shlex.split(f"{REQUIRED} {flags}"))


def refusals(flags: str) -> list[str]:
    with pytest.raises(UserError) as refused:
        resolve(f"{REAL} {flags}")
    return refused.value.problems


def test_real_needs_one_flag_beside_what_grpo_has():
    args = resolve(REAL)
    assert args.algo.kl.init_coef == 0 and args.derived.reference is False  # no reference model
    assert args.algo.advantage.estimator == "group_norm"  # no critic
    assert args.algo.real.objective == "real" and args.algo.real.uniform_groups == "zero_loss"


@pytest.mark.parametrize("flags, evaluates", [("", False), ("--eval.dataset rows.jsonl", True)])
def test_without_a_validation_set_nothing_is_evaluated(flags, evaluates):
    """--no-eval.dataset ended the run before its first step, because recipes evaluate at the start."""
    found = resolve(f"{REAL} --eval.at_start --eval.at_end {flags}").eval
    assert (found.at_start, found.at_end) == (evaluates, evaluates)


@pytest.mark.parametrize("loss", ["ppo", "gspo", "real"])
def test_a_kl_and_an_estimator_that_were_typed_are_kept(loss):
    flags = "--algo.kl.init_coef 0.5 --algo.kl.use_loss --algo.advantage.estimator rloo"
    args = resolve(f"--actor.policy_loss_type {loss} {flags}")
    assert args.algo.kl.init_coef == 0.5 and args.algo.advantage.estimator == "rloo" and args.derived.reference


def test_ppo_is_not_refused_what_real_is():
    resolve("--actor.dual_clip 3 --train.batch_size 7 --ds.zero_stage 0 --algo.real.tau -1")
    resolve("--reward.overlong_buffer_len 2048")  # as long as a response


@pytest.mark.parametrize(
    "flags, order, samples",
    [("", False, False), ("--rollout.seeded_order", True, False), ("--rollout.seeded", True, True)],
)
def test_a_seed_for_every_sample_includes_the_order(flags, order, samples):
    rollout = resolve(flags).rollout
    assert (rollout.seeded_order, rollout.seeded) == (order, samples)


SAPO, NFT, ICEPOP = (
    f"--algo.real.objective {shlex.quote(f'{OBJECTIVE_FILES}/{name}.py:{name}')}" for name in ("sapo", "nft", "icepop")
)


@pytest.mark.parametrize(
    "flags, mismatch, mode",
    [
        ("", "off", None),  # upstream's losses, as upstream
        ("--train.run_dir runs/x", "off", None),
        (f"{REAL} {SAPO}", "stop", "processed_logprobs"),
        (REAL, "stop", "processed_logprobs"),
        (f"{REAL} --train.async_enable", "log", "processed_logprobs"),  # older by design
        (f"{REAL} --rollout.mismatch log", "log", "processed_logprobs"),
        (f"{REAL} --rollout.mismatch off", "off", None),
        ("--algo.advantage.is_correction_level token", "off", "processed_logprobs"),  # upstream's own use of them
    ],
)
def test_vllm_tells_log_probabilities_where_someone_looks_at_them(flags, mismatch, mode):
    args = resolve(flags)
    assert (args.rollout.mismatch, args.derived.logprobs_mode) == (mismatch, mode)


def test_plain_real_with_stale_responses_is_told_what_did_better():
    stale = f"{REAL} --train.async_enable"
    (told,) = notes(resolve(stale))
    mended = re.search(r"With (--algo.*0.1) and", told)[1]
    for flags in (REAL, f"{stale} {mended}", f"{stale} {SAPO}", "--train.async_enable"):
        assert [*notes(resolve(flags))] == []


def test_trpa_gets_its_reference_model_without_a_kl_loss():
    args = resolve(f"{REAL} --algo.real.objective trpa")
    assert args.derived.reference and args.algo.kl.use_loss and args.algo.kl.init_coef == 0


def test_an_objective_of_the_users_own_is_found_from_anywhere_and_gets_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from real_openrlhf.algorithm.formulas import Constant, Objective\n"
        "def pull(scores, groups, settings):\n"
        "    return -groups.mean(scores, groups.positive)\n"
        "own = {'push': Constant(0.5, 'how far', above=0)}\n"
        "against_reference = Objective(pull, score='log_ratio_ref', settings=own)\n"
    )
    args = resolve(f"{REAL} --algo.real.objective mine.py:pull --algo.real.tau 0.3")
    assert args.algo.real.objective == f"{tmp_path}/mine.py:pull" and not args.derived.reference
    args = resolve(f"{REAL} --algo.real.objective mine.py:against_reference --algo.real.set push=7")
    assert args.derived.reference and args.algo.kl.use_loss
    (refusal,) = refusals("--algo.real.objective mine.py:against_reference --algo.real.tau 0.3")
    assert f"is not read by --algo.real.objective {tmp_path}/mine.py:against_reference" in refusal
    (tmp_path / "mine.py").write_text("def pull(scores, groups, settings):\n    return scores\n")
    (refusal,) = refusals("--algo.real.objective mine.py:pull")
    assert "pull: it returns shape (" in refusal and "), not one loss for each group" in refusal


# flags, what the message must name, the fix that it must give (flags that are then accepted in their place)
GROUPS, MICRO, LEVEL = "--train.batch_size", "--train.micro_batch_size", "--algo.advantage.is_correction_level"
RANKS, SAMPLES = "--actor.num_gpus_per_node", "--rollout.n_samples_per_prompt"
ESTIMATOR, CLIP = "--algo.advantage.estimator", "--algo.real.tis_cap"
FILTER = "--algo.dynamic_filtering_enable"
REFUSED = [
    ("--algo.advantage.estimator gae", "trains no critic", "--algo.advantage.estimator group_norm"),
    ("--reward.remote_url=", "there is none. Give --reward.remote_url FILE.py", ""),
    ("--reward.overlong_buffer_len 512", "--reward.overlong_buffer_len 512.0 changes", ""),
    (f"{SAMPLES} 1", "compares a prompt's responses. Use 8", f"{SAMPLES} 8"),
    ("--algo.real.objective trpa --algo.real.tau 0.3", "--algo.real.tau 0.3 is not read by",
     "--algo.real.objective bce --algo.real.tau 0.3"),
    (f"{SAPO} {ESTIMATOR} reinforce", "a prompt's own baseline. Use group_norm", f"{SAPO} {ESTIMATOR} rloo"),
    (f"{CLIP} 0", f"{CLIP} 0.0: give 1 or more", f"{CLIP} 2"),
    (f"{CLIP} 2 --rollout.mismatch off", f"{CLIP} 2 is made of vLLM's log-probabilities", f"{CLIP} 2"),
    (f"{CLIP} 2 --rollout.top_p 0.9", f"{CLIP} 2 needs the sampler's own distribution", f"{CLIP} 2"),
    (f"{CLIP} 2 --algo.real.set score=log_ratio_rollout", "which is against vLLM already. Leave it out", f"{CLIP} 2"),
    (f"{CLIP} 2 {SAPO}", "sapo has `group.gap`. Leave it out", SAPO),
    (f"{ICEPOP} --rollout.mismatch off", "group.gap needs vLLM's log-probabilities. Leave --rollout.mismatch", ICEPOP),
    (f"--algo.real.tau 0.5 {SAPO}", "--algo.real.tau 0.5 is not read by --algo.real.objective", SAPO),
    (f"--actor.loss_agg_mode seq-mean-token-mean {NFT}", "declares the mean token-mean. Leave the flag out", NFT),
    (f"{GROUPS} 100", "equal updates of whole groups. Give 128", f"{GROUPS} 128"),
    (f"{SAMPLES} 6 {MICRO} 32", f"Give 96 and {MICRO} 4.", f"{SAMPLES} 6 {GROUPS} 96 {MICRO} 4"),
    ("--rollout.batch_size 8", "8 prompts x 8 into equal updates of whole groups. Give 64",
     f"--rollout.batch_size 8 {GROUPS} 64"),
    (f"{MICRO} 3", f"is not a multiple of {MICRO} 3 x 8 ranks", f"{MICRO} 3 --train.dynamic_batch_enable"),
    ("--actor.dual_clip 3", "--actor.dual_clip clips PPO's surrogate, which the loss real does not have", ""),
    (f"{LEVEL} token", f"Use {LEVEL} off", f"{LEVEL} off"),
    ("--algo.kl.init_coef 0.1", "Use --algo.kl.init_coef 0 (the paper), or add --algo.kl.use_loss",
     "--algo.kl.init_coef 0.1 --algo.kl.use_loss"),
    ("--ds.lora.dropout 0.1", "Use --ds.lora.dropout 0", "--ds.lora.dropout 0"),
    ("--ds.zero_stage 0", "Use --ds.zero_stage 2", "--ds.zero_stage 2"),
    ("--train.enable_ema", "makes no average. Leave it out", ""),
    ("--ds.ring_attn_size 2", "Use --ds.ring_attn_size 1", "--ds.ring_attn_size 1"),
    ("--ds.tensor_parallel_size 16", "need as many GPUs of the policy, and it has fewer", ""),
    ("--data.max_images_per_prompt 1", "text prompts", ""),
    *(
        (f"{score} {flag}", f"score log_ratio_rollout {message}", score)
        for score in ("--algo.real.set score=log_ratio_rollout",)
        for flag, message in {
            "--rollout.mismatch off": "is made of vLLM's log-probabilities. Leave --rollout.mismatch off out",
            "--rollout.top_p 0.9": "needs the sampler's own distribution, and --rollout.top_p 0.9 cuts",
        }.items()
    ),
    ("--algo.real.objective reel", "unknown objective 'reel'. Choose one of real, ", "--algo.real.objective real"),
    ("--algo.real.set tau=0.3", "tau has a flag of its own. Use --algo.real.tau", "--algo.real.tau 0.3"),
    ("--algo.real.set reduction=mean", "no setting 'reduction'. Use one of these: score",
     "--algo.real.set reduction=mean --algo.real.objective bce"),
    *(
        (f"--algo.real.tau={tau}", f"--algo.real.tau {float(tau)}: give a number from 0.001", "--algo.real.tau 0.5")
        for tau in ("0", "-1", "nan", "inf")
    ),
    *(
        (f"{which} --algo.real.set {word}", f"--algo.real.set {word}: {message}", f"{which} --algo.real.set {fix}")
        for name, word, message, fix in (
            ("trpa", "beta=0", "beta is 0: use a number above 0, for example 0.1", "beta=0.1"),
            ("trpa", "beta=much", "beta is much: use a number above 0", "beta=0.2"),
            (PASS_AT_K, "k=2.5", "k is 2.5: use a whole number above 0, for example 4", "k=2"),
            (UNBIASED, "fn_rate=1", "fn_rate is 1: use a number below 1, for example 0.1", "fn_rate=0.2"),
            ("bce", "reduction=max", "reduction is 'max': choose sum or mean", "reduction=mean"),
            ("trpa", "gain=2", "the objective has no setting 'gain'. Use one of these", "beta=2"),
            ("bce", "reduction", "'reduction' is not NAME=VALUE. Use for example", "reduction=sum"),
        )
        for which in (f"--algo.real.objective {name}",)
    ),
    (f"--algo.real.objective {UNBIASED} --algo.real.set fn_rate=-0.2",
     "noise.py:unbiased_bce: fn_rate=-0.2 fp_rate=0: use rates of 0 or more whose sum is below 1",
     f"--algo.real.objective {UNBIASED} --algo.real.set fn_rate=0"),
    (f"--algo.real.objective {PASS_AT_K} --algo.real.set k=16 --rollout.n_samples_per_prompt 16",
     "its gradient is 0 everywhere, in groups of up to 16",
     f"--algo.real.objective {PASS_AT_K} --algo.real.set k=15 --rollout.n_samples_per_prompt 16"),
    ("--train.max_epochs 2", "trains each rollout once", ""),
    (f"{FILTER} --algo.real.label_threshold 3", "a score is correct above 3. Give a range of your scores",
     f"{FILTER} --algo.dynamic_filtering_range 1 5 --algo.real.label_threshold 3"),
    (f"{FILTER} --algo.real.label_threshold 1", "a score is correct above 1",
     f"{FILTER} --algo.real.label_threshold 0"),
    (f"{FILTER} --algo.dynamic_filtering_range 1 5", "nearly all prompts would be dropped",
     f"{FILTER} --algo.dynamic_filtering_range 0 5"),
    (f"{FILTER} --algo.dynamic_filtering_range -1 0", "nearly all prompts would be dropped", FILTER),
    (f"{FILTER} --algo.dynamic_filtering_range 0.4 0.1", "give the lower number first",
     f"{FILTER} --algo.dynamic_filtering_range 0.1 0.4"),
    ("--train.batching upstream", "Use --train.batching whole_groups", "--train.batching whole_groups"),
]  # fmt: skip


@pytest.mark.parametrize("flags, message, fix", REFUSED, ids=lambda text: text.replace(" ", "_"))
def test_what_makes_no_sense_is_refused_with_the_fix(flags, message, fix):
    found = refusals(flags)
    assert any(message in refusal for refusal in found), found
    for refusal in found:
        assert "\n" not in refusal
        assert re.search(r"--[a-z]|text prompts", refusal)  # what is wrong by name,
        assert re.search(r"\b(Use|Leave|Give|Change|Choose|use|choose|give) ", refusal)  # and what to do
    resolve(f"{REAL} {fix}")  # what the message says is then accepted


@pytest.mark.parametrize("loss", ["ppo", "gspo", "real"])
def test_what_would_spoil_any_method_is_refused_for_all(loss):
    """In OpenRLHF's own batches too if OpenRLHF itself saves the wrong model."""
    dealt = f"--actor.policy_loss_type {loss} --train.batching whole_groups --algo.advantage.estimator group_norm"
    dealt += " --algo.kl.init_coef 0"
    resolve(dealt)
    for flags, message in (
        ("--train.enable_ema", "--train.batching whole_groups makes no average"),
        ("--ds.zero_stage 0", "needs ZeRO stage 1, 2 or 3"),
        ("--reward.remote_url=", "labels are the `scores` of a reward function"),
        ("--actor.adam.lr 0", "--actor.adam.lr 0.0: give a number above 0"),
        ("--actor.optim muon --ds.zero_stage 3", "does not start with --ds.zero_stage 3"),
        ("--actor.optim muon", "--actor.max_norm 1: with --actor.optim muon"),
        ("--ds.lora.rank 4 --ds.lora.target_modules all-linear", "typed it is no module's name. Leave it out"),
        ("--reward.overlong_buffer_len 100000", "is above the 2048 tokens of a response. Give fewer"),
        (f"{LEVEL} seq --algo.advantage.is_correction_mode clip", "is of the ratios of tokens. Use"),
        (f"{LEVEL} token --algo.advantage.is_correction_gating tv", "has an upper bound only. Give"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            resolve(f"{dealt} {flags}")
    with pytest.raises(UserError, match="saves the untrained model"):
        resolve("--train.enable_ema --ds.zero_stage 3")
    with pytest.raises(UserError, match="does not go with --ds.ring_attn_size. Use flash_attention_2"):
        resolve("--ds.attn_implementation flash_attention_torch --ds.ring_attn_size 2 --ds.packing_samples")
    with pytest.raises(UserError, match="starts vLLM in bf16.*Use bf16"):
        resolve("--vllm.num_engines 1 --ds.param_dtype fp16")


def test_the_script_names_flags_that_its_run_does_not_read(capsys, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", ray.init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(sys, "argv", ["train_ppo_ray", "--algo.real.tau=0.3", "--actor.adam.lr", "1e-6"])
    arguments.run_training_script(lambda args: None, lambda: resolve("--algo.real.tau 0.3"))
    said = capsys.readouterr().out
    assert "note: --algo.real.tau is not read by this run: it needs --actor.policy_loss_type real" in said
    assert "--actor.adam.lr is" not in said


def test_the_script_refuses_with_a_line_for_each_problem_and_exit_code_2(capsys):
    with pytest.raises(SystemExit) as exit:
        arguments.run_training_script(pytest.fail, lambda: resolve(f"{REAL} --ds.zero_stage 0 --train.max_epochs 2"))
    assert exit.value.code == 2
    epochs, zero = capsys.readouterr().err.splitlines()
    assert (
        zero
        == "error: --ds.zero_stage 0: --train.batching whole_groups needs ZeRO stage 1, 2 or 3. Use --ds.zero_stage 2"
    )
    assert epochs.startswith("error: --train.max_epochs 2: ")


@pytest.mark.parametrize(
    "flags, has, joined, ends",
    [
        ("", 8, False, True),  # 8 ranks, and one engine beside them
        ("", 9, False, False),
        ("--train.colocate_all", 8, False, False),
        ("--train.colocate_all", 7, False, True),
        ("--train.colocate_all", 0, True, False),  # to a cluster nodes may still come
        ("--algo.kl.init_coef 0.1 --algo.kl.use_loss", 16, False, True),  # 8 more for the reference model
        ("--algo.kl.init_coef 0.1 --algo.kl.use_loss", 17, False, False),
    ],
)
def test_fewer_gpus_than_a_run_needs_end_it_where_ray_would_wait_for_ever(
    monkeypatch, capsys, flags, has, joined, ends
):
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 2.0} | ({"GPU": float(has)} if has else {}))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if joined:
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    args = resolve(f"{REAL} {flags}")
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext():
        arguments.refuse_too_few_gpus(args)
    said = "".join(capsys.readouterr())
    assert ("it would wait for ever" in said) == ends and ("it waits until more nodes join" in said) == joined
