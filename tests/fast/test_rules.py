"""Refused: values that cannot be right, and flags that nobody reads. A grid trains a method once without its flag."""

import pytest
from small_runs import run_flags

from real_openrlhf.base.errors import UserError
from real_openrlhf.comparison.entries import entries, once_each
from real_openrlhf.flags import parser
from real_openrlhf.flags.rules import READERS, VALUED, needs, unread, wrong_value
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks.model_check import model_problems
from real_openrlhf.training.command import request_of

MINE, FILTER, UPSTREAM = "mine.py:hinge", "--algo.dynamic_filtering_enable", "--train.batching upstream"
REWARD = "--reward.remote_url mine.py"
UNREAD = [  # method, flag and value, what it needs, what makes the run read it; with which other flags
    ("grpo", "--algo.real.tau 0.1", "--actor.policy_loss_type real", None),
    ("gspo", f"--algo.real.objective {MINE}", "--actor.policy_loss_type real", None),
    ("grpo", "--algo.real.set beta=1", "--actor.policy_loss_type real", None),
    ("dapo", "--algo.real.uniform_groups keep", "an objective over scores", None),
    ("real", "--algo.real.uniform_groups keep", f"without {FILTER}", None, FILTER),
    ("grpo", "--algo.real.tis_cap 2", "an objective over scores", None),
    ("real", "--algo.advantage.estimator rloo", "a loss of tokens", None),
    ("real", "--algo.advantage.gamma 0.9", "gae or reinforce", None),
    (
        "grpo",
        "--algo.advantage.no_std_norm",
        "gae, reinforce or reinforce_baseline",
        "--algo.advantage.estimator reinforce_baseline",
    ),
    ("real", "--reward.clip_range 0 1", "a loss of tokens", None),
    *(
        ("grpo", f"--{text}", "--train.batching whole_groups", None, UPSTREAM)
        for text in ("algo.real.truncated ignore", "algo.real.kl_old_coef 1", "rollout.mismatch log")
    ),
    ("grpo", "--actor.eps_clip 0.1", "with --no-actor.eps_clip_low_high", "--no-actor.eps_clip_low_high"),
    ("real", "--actor.eps_clip_low_high 0.2 0.3", "ppo or gspo", None),
    ("gspo", "--actor.loss_agg_mode token-mean", "--actor.policy_loss_type ppo", None),
    ("trpa", "--algo.kl.estimator k3", "--algo.kl.init_coef above 0", "--algo.kl.init_coef 0.1"),
    ("real", "--actor.lr_warmup_ratio 0.3", "constant_with_warmup", "--actor.lr_scheduler linear"),
    ("real", "--actor.min_lr_ratio 0.3", "cosine_with_min_lr or", "--actor.lr_scheduler cosine_with_min_lr"),
    *(
        ("real", f"--{part}.micro_batch_size 1", "no --train.dynamic_batch_enable", "--no-train.dynamic_batch_enable")
        for part in ("train", "rollout")
    ),
    ("real", "--train.async_queue_size 4", "--train.async_enable", "--train.async_enable"),
    *(
        ("real", f"--{text}", "with a reward model or a critic", None, REWARD)
        for text in ("reward.normalize_enable", "reward.num_nodes 2", "reward.num_gpus_per_node 2",
                     "train.colocate_critic_reward")
    ),
    ("real", "--data.image_key pictures", "--data.max_images_per_prompt above 0", None),
    ("real", "--actor.freeze_visual_encoder", "--data.max_images_per_prompt above 0", None),
    ("real", "--train.colocate_actor_ref", "a reference model", "--algo.kl.init_coef 0.1"),
    ("real", "--ckpt.save_hf", "--ckpt.save_steps above 0",
     "--eval.dataset a.jsonl --ckpt.best_metric_key eval_a_pass1", "--no-ckpt.save_steps"),
    ("real", "--actor.gradient_checkpointing_reentrant", "gradient_checkpointing_enable", None,
     "--no-actor.gradient_checkpointing_enable"),
    ("real", "--ds.zpg 2", "--ds.zero_stage 3", None, "--ds.zero_stage 2"),
    ("grpo", "--critic.lr_warmup_ratio 0.1", "--algo.advantage.estimator gae", None),
    ("grpo", "--critic.muon.lr 0.1", "--critic.optim muon", None, REWARD, UPSTREAM, "--algo.advantage.estimator gae"),
    ("real", "--algo.kl.use_loss", "--algo.kl.init_coef above 0", "--algo.kl.init_coef 0.1"),
    ("real", "--ref.offload", "a reference model", "--algo.kl.init_coef 0.1"),
    ("grpo", "--ref.offload", "--ds.zero_stage 3", None, "--ds.zero_stage 2"),
    ("real", "--ds.lora.alpha 8", "--ds.lora.rank above 0", "--ds.lora.rank 8"),
    ("real", "--actor.muon.lr 0.1", "--actor.optim muon", "--actor.optim muon"),
    ("real", f"{FILTER.replace('enable', 'range')} 0 1", FILTER, FILTER),
    ("grpo", "--reward.model_name_or_path a/b", "without --reward.remote_url", None, REWARD),
    ("grpo", "--critic.adam.lr 1e-5", "--algo.advantage.estimator gae", None),
]  # fmt: skip

# Flags without a reader's row. Before you add one here, look for the run that does not read it.
EVERY_RUN = """
    actor.adam.betas actor.adam.eps actor.adam.lr actor.adam.weight_decay actor.aux_loss_coef actor.dual_clip
    actor.entropy_coef actor.gradient_checkpointing_enable actor.lr_scheduler actor.max_norm actor.model_name_or_path
    actor.num_gpus_per_node actor.num_nodes actor.optim actor.policy_loss_type
    algo.advantage.is_correction_level algo.dynamic_filtering_enable algo.kl.init_coef algo.real.label_threshold
    ckpt.load_enable ckpt.output_dir ckpt.path ckpt.save_steps
    data.apply_chat_template data.dataloader_num_workers data.disable_fast_tokenizer data.input_key data.label_key
    data.max_images_per_prompt data.max_len data.max_samples data.prompt_dataset data.prompt_probs data.prompt_split
    ds.adam_offload ds.attn_implementation ds.deepcompile ds.enable_sleep ds.experts_implementation ds.fused_logprobs
    ds.grad_accum_dtype ds.load_in_4bit ds.lora.rank ds.overlap_comm ds.packing_samples ds.param_dtype
    ds.ring_attn_size ds.tensor_parallel_size ds.use_liger_kernel ds.use_universal_ckpt ds.zero_stage
    eval.dataset local_rank logger.logging_steps logger.tensorboard_dir logger.wandb.key
    reward.overlong_buffer_len reward.remote_url reward.stop_properly_penalty_coef
    rollout.batch_size rollout.max_new_tokens rollout.n_samples_per_prompt rollout.seeded rollout.seeded_order
    rollout.temperature rollout.top_p rollout.vllm_generate_batch_size
    train.agent_func_path train.async_enable train.batch_size train.batching train.colocate_all
    train.dynamic_batch_enable train.enable_ema train.full_determinism_enable train.max_epochs train.max_steps
    train.num_episodes train.partial_rollout_enable train.run_dir train.seed train.watchdog_minutes use_ms
    vllm.enable_prefix_caching vllm.enforce_eager vllm.gpu_memory_utilization vllm.max_num_seqs vllm.num_engines
    vllm.sync_backend vllm.sync_with_ray vllm.tensor_parallel_size"""


def test_every_flag_has_its_readers_or_is_read_by_every_run():
    without = {flag for flag in parser.options() if not needs(flag)} - {"-h", "--help"}
    assert without == {f"--{name}" for name in EVERY_RUN.split()}


def run_of(algo: str, *texts: str):
    user, removed = {}, []
    for flag, *words in (text.split() for text in texts):
        if flag.startswith("--no-"):
            removed.append(f"--{flag.removeprefix('--no-')}")
        else:
            user[flag] = tuple(words)
    return run_flags("qwen7b", algo, user, removed)


@pytest.mark.parametrize("row", UNREAD, ids=lambda row: " ".join(map(str, row[:2])))
def test_a_flag_that_nobody_reads_is_refused_with_what_it_needs(row):
    algo, text, needs, reader, *beside = row
    flag = text.split()[0]
    (problem,) = [one for one in run_of(algo, text, *beside).problems if one.startswith(f"{flag} is not read")]
    assert needs in problem
    if reader:
        assert flag not in run_of(algo, text, reader).unread


WRONG = """
    algo.real.label_threshold nan, algo.real.label_threshold inf, algo.kl.init_coef -0.1, algo.real.kl_old_coef -1,
    actor.lr_warmup_ratio 2, algo.real.tis_cap 0.5, rollout.top_p 0, rollout.top_p 1.5,
    rollout.temperature 0.001, actor.adam.betas 0.9 1.5,
    eval.temperature -1, eval.n_samples_per_prompt 0, train.seed -1, vllm.gpu_memory_utilization 2,
    train.watchdog_minutes -1, actor.adam.lr nan, actor.entropy_coef inf, algo.real.tau 1e300, algo.real.tau 1e-300,
    ds.lora.alpha 0, ds.lora.alpha -16, actor.dual_clip 0.5, reward.stop_properly_penalty_coef 5,
    reward.overlong_buffer_len 0, reward.overlong_buffer_len -4, reward.overlong_penalty_factor -1, algo.kl.target -6,
    reward.clip_range 1 0, algo.advantage.is_correction_threshold 5 0.5, algo.dynamic_filtering_range 0.5 0.5,
    actor.lr_scheduler nonsense, actor.lr_scheduler reduce_lr_on_plateau, ds.grad_accum_dtype nonsense,
    ds.attn_implementation nonsense, vllm.sync_backend nonsense"""


@pytest.mark.parametrize("text", [f"--{one.strip()}" for one in WRONG.split(",")])
def test_a_value_that_cannot_be_right_is_refused(text):
    starts = tuple(f"{text}: {verb} " for verb in ("give", "choose"))
    assert any(problem.startswith(starts) for problem in run_of("real", text).problems)


@pytest.mark.parametrize("flag", VALUED)
def test_openrlhfs_own_default_is_a_right_value(flag):
    default = parser.options()[flag].default
    words = default if isinstance(default, list | tuple) else [default]
    assert default is None or wrong_value(flag, words) is None
    assert wrong_value("--ds.attn_implementation", ["kernels-community/flash-attn"]) is None


def test_adapters_of_a_layer_that_the_model_lacks_are_refused():
    args = run_of("real", "--ds.lora.rank 4", "--ds.lora.target_modules self_attn.q_proj nonsense").args
    (problem,) = model_problems(args, {"model_type": "qwen2"})
    assert problem.startswith("--ds.lora.target_modules nonsense is not trained in")


def test_a_model_without_a_chat_template_is_told_before_a_gpu_is_rented(tmp_path):
    args = run_of("real", f"--actor.model_name_or_path {tmp_path}", "--data.apply_chat_template").args
    (problem,) = model_problems(args, {"model_type": "qwen2"})
    assert problem.endswith("has no chat template. Give --no-data.apply_chat_template, or a model that has one")
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "-"}')
    assert not [*model_problems(args, {"model_type": "qwen2"})]
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "-"}')
    assert [*model_problems(args, {"model_type": "qwen2"})]
    (tmp_path / "chat_template.jinja").write_text("-")
    assert not [*model_problems(args, {"model_type": "qwen2"})]


def test_a_method_trains_with_its_own_loss():
    for algo, other in (("real", "ppo"), ("grpo", "real")):
        problems = run_of(algo, f"--actor.policy_loss_type {other}").problems
        assert any(problem.endswith("Choose another method by --algo.") for problem in problems)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_recipe_has_no_flag_that_nobody_reads(recipe, algo):
    run = request_of(["--recipe", recipe, "--algo", algo]).run
    assert unread(run.flags, run.args).keys() <= {
        "--ref.num_nodes",
        "--ref.num_gpus_per_node",
        "--algo.advantage.estimator",
        "--actor.lr_warmup_ratio",  # 0, for other schedulers
    }


def test_every_flag_of_the_table_is_one_of_openrlhfs():
    names = [name for flags, _, _ in READERS for name in flags.split()]
    known = parser.options()
    assert [one for one in names if one not in known and not any(flag.startswith(one) for flag in known)] == []
    assert len({*names}) == len(names)


def test_a_grid_trains_a_method_once_that_does_not_read_its_flag():
    grid = [["algo.real.tau", "0.1", "1"]]
    every = once_each(entries(["real", "grpo"], 1, 1, grid), ("--recipe", "cpu"), ["--algo.real.tau"])
    assert [entry.name for entry in every] == ["real-tau-0.1-s1", "grpo-s1", "real-tau-1-s1"]
    with pytest.raises(UserError, match="none of these methods reads it"):
        once_each(entries(["dapo", "grpo"], 1, 1, grid), ("--recipe", "cpu"), ["--algo.real.tau"])


def test_a_seed_has_one_spelling():
    assert request_of(["--seed", "007"]).stem == request_of(["--seed", "7"]).stem == "cpu-real-s7"
