"""The rule by which `--rehearse` shrinks a run: the step that it trains is the run's."""

import argparse
from dataclasses import replace
from types import SimpleNamespace

import pytest
from every import EVERY

from real_openrlhf.base.model_tokenizer import load_tokenizer
from real_openrlhf.flags.refusals import gpu_problems, size_problems
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.rehearsal import command, known_texts, small_model
from real_openrlhf.rehearsal.command import Rehearsal
from real_openrlhf.rehearsal.known_texts import asked_form
from real_openrlhf.rehearsal.page import flat, table
from real_openrlhf.rehearsal.planted import episode_fault, planted
from real_openrlhf.rehearsal.rows import Row
from real_openrlhf.training.checks import Findings, run_checks
from real_openrlhf.training.command import parse, request_of
from real_openrlhf.training.start import Start

# What may differ: sizes, places, what a CPU lacks, and the layout
MAY_DIFFER = """
    actor.model_name_or_path data.prompt_dataset eval.dataset reward.remote_url train.agent_func_path
    rollout.batch_size train.batch_size rollout.vllm_generate_batch_size rollout.max_new_tokens data.max_len
    reward.overlong_buffer_len train.max_tokens_per_gpu rollout.max_tokens_per_gpu train.micro_batch_size
    rollout.micro_batch_size train.max_steps train.num_episodes ckpt.save_steps data.max_samples eval.steps
    eval.n_samples_per_prompt actor.num_gpus_per_node actor.num_nodes ref.num_gpus_per_node ref.num_nodes
    vllm.num_engines vllm.tensor_parallel_size vllm.sync_backend vllm.enforce_eager vllm.enable_sleep
    vllm.gpu_memory_utilization vllm.max_num_seqs ds.attn_implementation ds.adam_offload ds.ring_attn_size
    ds.tensor_parallel_size logger.wandb.key logger.wandb.project""".split()
PLACES = {"--logger.wandb.run_name", "--train.run_dir", "--logger.tensorboard_dir", "--ckpt.path", "--ckpt.output_dir"}
FOUND = {"model": "/small", "about": "small", "longest": 65, "end": "</s>", "trial": {"form": "{}"}}
METHODS = {
    "real": ("--algo", "real"),
    "grpo": ("--algo", "grpo", "--rollout.n_samples_per_prompt", "4"),
    "dapo": ("--algo", "dapo", "--algo.dynamic_filtering_enable"),
    "trpa": ("--algo", "trpa", "--data.max_samples", "500"),
    "lora": ("--ds.lora.rank", "8", "--ds.lora.alpha", "16"),
    "asynchronous": ("--train.async_enable", "--no-vllm.enable_sleep", "--rollout.vllm_generate_batch_size", "256"),
    "openrlhf": (
        *("--rollout.batch_size", "128", "--train.batch_size", "256", "--data.max_len", "8192"),
        *("--rollout.n_samples_per_prompt", "4", "--rollout.max_new_tokens", "7168"),
        *("--train.colocate_all", "--vllm.enable_sleep", "--ds.enable_sleep", "--vllm.sync_backend", "nccl"),
        *("--ds.attn_implementation", "flash_attention_2", "--ds.packing_samples", "--gpus", "8"),
        *("--train.dynamic_batch_enable", "--train.max_tokens_per_gpu", "16384", "--vllm.num_engines", "8"),
        *("--rollout.max_tokens_per_gpu", "32768", "--ref.num_gpus_per_node", "8", "--ds.adam_offload"),
        *("--algo.kl.init_coef", "1e-3", "--algo.kl.use_loss", "--algo.kl.estimator", "k3"),
    ),
    "split": ("--gpus", "8", "--vllm.tensor_parallel_size", "2", "--ds.adam_offload", "--logger.wandb.key", "x" * 40),
}


def both(tmp_path, *words: str):
    """The run and its rehearsal's, both resolved, and the printed table."""
    request = request_of([*words, "--rehearse"])
    start = Start.of(replace(request, args=argparse.Namespace(**vars(request.args) | {"dry_run": True})))
    assert not start.run.problems
    rehearsal = Rehearsal(start, tmp_path / "a b", found=FOUND)
    rehearsal.files = lambda flag: [start.run.text(flag)]  # as if they were here
    small = Start.of(rehearsal.small())
    assert [*small.run.problems, *size_problems(small.run.args), *gpu_problems(small.run.args)] == []
    return start.run, small.run, "\n".join(table(start.run, small.run, rehearsal.changes))


PAIRS = [
    (recipe, method) for recipe in RECIPES for method in METHODS if recipe == "qwen7b" or method == "real" or EVERY
]


@pytest.mark.parametrize("recipe, method", PAIRS)
def test_the_step_that_is_trained_is_the_runs_but_for_what_is_printed(recipe, method, tmp_path):
    if recipe.startswith("cpu") and method in ("split", "asynchronous"):
        return  # no flags of a CPU run
    run, small, printed = both(tmp_path, "--recipe", recipe, *METHODS[method])
    before, after = flat(run.args), flat(small.args)
    assert before.keys() == after.keys()
    differ = {flag for flag in before if before[flag] != after[flag]} - PLACES
    assert differ <= {f"--{name}" for name in MAY_DIFFER}
    lines = [line.split() for line in printed.splitlines()[2:]]
    assert {line[0] for line in lines} == differ and all(len(line) > 4 for line in lines)  # with its reason
    # groups are whole, updates as many, a budget of as many of the longest samples
    args, group = small.args, run.args.rollout.n_samples_per_prompt
    updates = run.args.rollout.batch_size * group // run.args.train.batch_size
    assert args.rollout.batch_size * group // args.train.batch_size == updates
    assert args.train.batch_size == 2 * group and args.derived.layout.ranks == 1
    if run.args.train.dynamic_batch_enable:
        for part in ("train", "rollout"):
            budgets = [getattr(one, part).max_tokens_per_gpu // one.data.max_len for one in (run.args, args)]
            assert budgets[0] == budgets[1]


def test_two_ranks_are_rehearsed_where_two_are_typed(tmp_path):
    for typed, ranks in (("2", 2), ("8", 1), ("1", 1)):
        _, small, _ = both(tmp_path, "--recipe", "qwen7b", "--gpus", typed)
        assert (small.args.derived.layout.ranks, small.args.vllm.num_engines) == (ranks, ranks)


def test_a_command_for_gpus_with_the_recipe_for_none_is_checked_as_one_for_gpus(tmp_path, monkeypatch):
    """An OpenRLHF user names no recipe: the room on this machine's disk and its missing GPUs are no findings."""
    monkeypatch.setattr(run_checks.shutil, "disk_usage", lambda path: SimpleNamespace(free=1e9, total=1e9))
    rehearsal = Rehearsal(
        command.asked(parse([*METHODS["openrlhf"], "--algo", "grpo", "--no-eval.dataset"])), tmp_path
    )
    rehearsal.check()
    assert rehearsal.findings == [] and any("hours and $" in note for note in rehearsal.dry)


def test_a_rehearsals_run_cannot_be_taken_for_the_run(tmp_path):
    """Its record names no recipe, so `--resume --run-name` refuses it; others look for a stem that it has not."""
    start = Start.of(request_of(["--recipe", "qwen7b"]))
    request = Rehearsal(start, tmp_path, found=FOUND).small()
    assert request.words[:2] == ["--recipe", "rehearsal-qwen7b"] and request.stem == "rehearsal-qwen7b-real-s42"
    with pytest.raises(SystemExit):
        request_of(request.words)


@pytest.mark.parametrize("code, told", [(1, 3), (137, 1)])
def test_a_training_that_fails_is_a_finding_and_one_that_is_killed_is_a_crash(
    tmp_path, monkeypatch, capsys, code, told
):
    start = Start.of(request_of(["--recipe", "qwen7b", "--no-eval.dataset", "--dry-run"]))
    rehearsal = Rehearsal(start, tmp_path, found=FOUND)
    rehearsal.check = rehearsal.try_parts = lambda: None
    monkeypatch.setattr(command.run_checks, "findings", lambda start: Findings())
    ended = SimpleNamespace(code=code, reason="killed by SIGKILL", path=tmp_path)
    monkeypatch.setattr(command.command, "trained", lambda start: ended)
    assert rehearsal.run() == told
    rehearsal.write()
    page = capsys.readouterr().out
    assert "the training ends in step 1: killed by SIGKILL. Its output: " in page
    assert ("THE REHEARSAL ITSELF FAILED and is not complete: the training ends" in page) == (told == 1)


# Whose logits are scaled, whose norms grow, whose layers differ
FAMILIES = {"granite": {"logits_scaling": 8.0}, "gemma3_text": {}, "gpt_oss": {}}


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_small_copy_ends_its_responses(kind, tmp_path):
    """A random model never does: all would be truncated."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = small_model.model_of_bytes(tmp_path / "bytes")
    transformers.AutoConfig.for_model(kind, eos_token_id=256, pad_token_id=257, **FAMILIES[kind]).save_pretrained(
        folder
    )
    about = small_model.copy_of(folder, tmp_path / "model", 0.6)
    assert about.startswith(f"{kind}, 2 layers, 259 words, ")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    with torch.no_grad():
        ends = (model(torch.arange(256).view(8, 32)).logits / 0.6).softmax(-1)[..., 256]
    assert 0.02 < ends.mean() < 0.2


def test_rehearse_and_dry_run_are_not_given_together(refused):
    assert "Give one of them" in refused("train", "--dry-run", "--rehearse")
    assert "Give one of them" in refused("compare", "--dry-run", "--rehearse")


def test_a_fault_of_an_agents_episode_is_named():
    whole = {
        "observation_tokens": [1, 2, 3],
        "action_ranges": [(1, 3)],
        "reward": 0.0,
        "scores": 0.0,
        "truncated": False,
    }
    whole["rollout_log_probs"] = [0.0, -1.0, -1.0]
    faults = {
        "": {},
        "an episode lacks scores": {"scores": None},
        "an episode has no rollout_log_probs": {"rollout_log_probs": None},
        "an episode has 2 rollout_log_probs for 3 tokens": {"rollout_log_probs": [0.0, -1.0]},
        "action_ranges [(1, 4)] do not lie in the 3 tokens": {"action_ranges": [(1, 4)]},
    }
    for told, change in faults.items():
        fault = episode_fault({**whole, **change}, compared=True)
        assert fault.startswith(told) and bool(fault) == bool(told)
    assert episode_fault({**whole, "rollout_log_probs": None}, compared=False) == ""


def test_a_form_that_no_prompt_asks_for_is_told_and_no_finding(tmp_path, monkeypatch):
    """As in the tiny task, whose model has learnt it."""

    def reward(queries, prompts, labels):
        return {"rewards": [float(f"\\boxed{{{labels[0]}}}" in queries[0])]}

    async def fetch(*call):
        return [{"scores": reward(*call)["rewards"][0]}]

    calls = SimpleNamespace(seconds=1.0, details={})
    fake = SimpleNamespace(calls=calls, reward_func=reward, _fetch_rewards_via_func=fetch)
    monkeypatch.setattr(known_texts, "executor", lambda url: fake)
    monkeypatch.setattr(known_texts, "right_of", lambda url: None)
    tokenizer = load_tokenizer(small_model.model_of_bytes(tmp_path / "bytes"))
    every = [Row(n, f"{n}+1?", f"{n}+1?", str(n + 1), 4, False, {}) for n in range(1, 9)]
    start = Start.of(request_of(["--recipe", "qwen7b", "--dry-run"]))
    about, findings = known_texts.tried(every, start.run.args, tokenizer)
    assert findings == [] and about["form"] == "\\boxed{{{}}}"
    assert about["calls"].endswith("no prompt asks for a form, and the gold is right as \\boxed{X}")


def test_the_form_of_a_gold_is_the_one_that_the_question_asks_for():
    asked = {
        "2+2? Answer:": "{}",
        "The last line is Answer: $Answer": "Answer: {}",
        "Box it: \\boxed{}.": "\\boxed{{{}}}",
    }
    for question, form in asked.items():
        assert asked_form(SimpleNamespace(question=question, prompt=f"User: {question}<end>")) == form
    assert asked_form(SimpleNamespace(question="2+2?", prompt="Use <answer>. 2+2?")) == "<answer>{}</answer>"


@pytest.mark.parametrize("form", ["\\boxed{{{}}}", None])
def test_every_second_response_gets_the_verdict_of_a_right_one(form, tmp_path):
    """A random model is never right, and without a right one nothing would have a gradient."""
    text = "def reward_func(queries, prompts, labels):\n    return {'rewards': float('</think>' in queries[0])}\n"
    (tmp_path / "mine.py").write_text(text)
    ask = planted([str(tmp_path / "mine.py")], form, "</s>")
    verdicts = [ask([f"Why? <think>{n}</s>"], ["Why? <think>"], ["42"])["rewards"] for n in range(100)]
    assert 30 < sum(verdicts) < 70 and {*verdicts} == {0.0, 1.0}
