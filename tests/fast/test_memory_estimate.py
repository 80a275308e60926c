"""Estimates against models that exist and against sums done by hand."""

from types import SimpleNamespace

import pytest
import torch
from small_runs import plan
from tiny_models import model_of

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks import memory_estimate
from real_openrlhf.training.checks.findings import Findings

GPU = 80e9
P = 7_615_616_512


def planned(*args, **named):
    """(the shape of the plan's model, the plan)"""
    found = plan(*args, **named)
    return memory_estimate.shape_of(memory_estimate.KNOWN_CONFIGS[found.text("--actor.model_name_or_path")]), found


def memory(*args, **named):
    shape, found = planned(*args, **named)
    return shape, memory_estimate.states(shape, found)


SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["Qwen2", "Llama", "Qwen3"])
def test_parameters_are_counted_as_transformers_builds_them(family, tied):
    model = model_of(family, **SIZES, num_hidden_layers=3, head_dim=16, tie_word_embeddings=tied)
    shape = memory_estimate.shape_of(model.config.to_dict())
    extra = 3 * 2 * 16 if family == "Qwen3" else 0  # its norms of q and k, too few to be in the sums
    assert shape.parameters + extra == sum(p.numel() for p in model.parameters())


def test_adapters_are_counted_as_peft_builds_them():
    peft, model = pytest.importorskip("peft"), model_of(**SIZES)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert memory_estimate.shape_of(model.config.to_dict()).adapter_parameters(8) == trained


def test_the_known_models_have_their_published_sizes():
    shapes = map(memory_estimate.shape_of, memory_estimate.KNOWN_CONFIGS.values())
    assert [shape.parameters for shape in shapes] == [1_777_088_000, P]


@pytest.mark.parametrize("config", [{}, {"hidden_size": 8, "num_hidden_layers": 2, "num_experts": 8}])
def test_no_guess_about_models_that_the_sums_do_not_describe(config):
    assert memory_estimate.shape_of(config) is None


def test_zero_stages_shard_what_they_shard():
    shape, two = memory("qwen7b", user={"--ds.zero_stage": ("2",)})
    _, three = memory("qwen7b", user={"--ds.zero_stage": ("3",)})
    _, one = memory("qwen7b", user={"--ds.zero_stage": ("1",)})
    size = shape.parameters
    adam = "Adam: fp32 weights and two moments"
    assert (one["weights (bf16)"], two["weights (bf16)"], three["weights (bf16)"]) == (2 * size, 2 * size, size / 4)
    gradients = "gradients, added up in 32 bits"
    assert (one[gradients], two[gradients]) == (4 * size, size / 2)
    _, rounded = memory("qwen7b", removed=["--ds.grad_accum_dtype"])
    assert rounded["gradients, added up in 16 bits"] == size / 4
    assert one[adam] == two[adam] == three[adam] == 12 * size / 8


def test_offloading_and_adapters_take_the_optimizer_off_the_gpu():
    shape, full = memory("qwen7b-lora", user={"--ds.lora.rank": ("0",)})
    _, adapters = memory("qwen7b-lora")
    _, offloaded = memory("qwen7b-lora", user={"--ds.lora.rank": ("0",), "--ds.adam_offload": ()})
    adam = "Adam: fp32 weights and two moments"
    assert full[adam] == 12 * shape.parameters
    assert adapters[adam] == 12 * shape.adapter_parameters(64) < full[adam] / 20
    assert adam not in offloaded


def test_only_methods_with_a_reference_model_hold_one():
    name = "reference model (bf16)"
    assert {algo for algo in ALGORITHMS if name in memory("qwen7b", algo)[1]} == {"grpo", "trpa"}
    assert name not in memory("qwen7b", "grpo", {"--ref.offload": ()})[1]
    assert name in memory("qwen7b-lora", "grpo", {"--ref.offload": ()})[1]  # ZeRO-2, where it does nothing


def moments(tokens, removed=()):
    budgets = {f"--{when}.max_tokens_per_gpu": (str(tokens),) for when in ("train", "rollout")}
    return memory_estimate.moments(*planned("qwen7b", user=budgets, removed=removed))


def test_with_logits_they_are_the_largest_moment_and_grow_with_the_token_budget():
    small, large = (moments(tokens, ("--ds.logit_free",)) for tokens in (9216, 18432))
    name = "activations at their largest: the logits"
    assert max(small, key=small.get) == name
    # one fp32 table of 9,216 x 152,064 is 5.6 GB; the forward and backward pass holds more than two of them
    assert large[name] - small[name] > 2 * 4 * 9216 * 152064


def test_without_logits_the_vocabulary_costs_the_heads_gradient_and_a_chunk():
    small, large = moments(9216), moments(18432)
    head, layer = "activations at their largest: the head", "activations at their largest: one layer"
    assert max(small, key=small.get) == layer
    # by hand: each of 28 layers' input, 12 bytes a number of the last one's output; 14 a logit of 2**26; bf16 gradient
    assert small[head] == 9216 * 3584 * (28 * 2 + 12) + 14 * 2**26 + 2 * 152064 * 3584
    assert large[head] - small[head] == 9216 * 3584 * (28 * 2 + 12)


def test_disk_counts_what_is_kept_and_what_is_never_rotated():
    def total(user):
        return sum(memory_estimate.disk(*planned("qwen7b", user=user)).values())

    checkpoint, model = 14 * P, 2 * P
    assert total({}) == 3 * checkpoint + model  # the third while it is written
    assert sum(memory_estimate.disk(*planned("qwen7b"), ended=True).values()) == 2 * checkpoint + model
    assert total({"--ckpt.save_hf": ()}) == 3 * checkpoint + 50 * model + model  # 1,000 steps, every 20
    assert total({"--ckpt.save_steps": ("-1",)}) == model
    assert total({"--train.max_steps": ("20",)}) == checkpoint + model
    assert total({"--train.max_steps": ("3",)}) == checkpoint + model  # of the last step


@pytest.mark.parametrize("recipe", [name for name, recipe in RECIPES.items() if "DeepSeek" in recipe.model])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_gpu_recipe_is_estimated_to_fit_its_gpus(recipe, algo):
    gpu_gb = RECIPES[recipe].gpu_gb
    said = Findings()
    said.add(memory_estimate.check(*planned(recipe, algo), gpu_gb, measured=False))
    lines = said.lines
    assert said.notes == []
    assert any("activations at their largest" in line for line in lines)
    generated = 128 * 8 * (8192 if gpu_gb == 80 else 4096)
    assert any(f"{generated:,} generated tokens" in line for line in lines)


def test_a_run_that_does_not_fit_is_told_what_to_do():
    one_gpu = planned("qwen7b", user={"--actor.num_gpus_per_node": ("1",), "--actor.num_nodes": ("1",)})
    warnings = [*memory_estimate.check(*one_gpu, 80, measured=False)]
    assert any(warning.startswith("training may need") and "--ds.adam_offload" in warning for warning in warnings)


def test_an_engine_whose_weights_exceed_its_share_is_told_before_it_fails():
    """A 32B model on eight GPUs of 80 GB: the policy is sharded, and each engine has all weights."""
    sizes = dict(zip(memory_estimate._SIZES, (5120, 27648, 40, 8, 152064), strict=True))
    shape = memory_estimate.shape_of({**sizes, "num_hidden_layers": 64, "model_type": "qwen2"})

    def said(**vllm: str) -> list[str]:
        user = {"--ds.adam_offload": (), **{f"--vllm.{name}": (value,) for name, value in vllm.items()}}
        notes = Findings()
        notes.add(memory_estimate.check(shape, plan(user=user), 80, measured=True))
        return notes.notes

    (note,) = said()
    # by hand: 2 bytes of each parameter, and 9,216 tokens x 64 layers x keys and values of 8 x 128 numbers
    assert f"{(2 * shape.parameters + 9216 * 64 * 2 * 1024 * 2) / 1e9:.0f} GB a GPU, and it gets 56 GB" in note
    assert said(tensor_parallel_size="2") == []


# Graphs of waves, and budgets that fill a GPU

KEPT = "graphs of further micro-batches, at most"


def test_kept_graphs_are_in_the_sum_of_methods_that_keep_them():
    def training(algo="real", **user):
        shape, found = planned("qwen1.5b-1gpu", algo, {f"--algo.real.{key}": (value,) for key, value in user.items()})
        return memory_estimate.training_memory(shape, found, GPU)

    token = 28 * 2 * 1536 + 8 * 1536  # each layer's input, and the head's
    states = sum(size for name, size in training("grpo").items() if "activ" not in name and "reference" not in name)
    room = 0.6 * (GPU - 5e9 - states)
    assert training()[KEPT] == pytest.approx(room - 36864 * token, rel=1e-5)
    assert training(wave_depth="3")[KEPT] == 2 * 36864 * token
    for made in (training("grpo"), training(wave_depth="1"), training(wave_depth="0")):
        assert KEPT not in made


@pytest.mark.parametrize("recipe", ["qwen1.5b", "qwen7b", "qwen1.5b-1gpu", "lora-24gb", "qwen7b-lora"])
@pytest.mark.parametrize("algo", ["real", "grpo"])
@pytest.mark.parametrize("share", [0.85, 0.7])
def test_budgets_that_fill_a_gpu(recipe, algo, share):
    (shape, found), gpu = planned(recipe, algo), RECIPES[recipe].gpu_gb * 1e9
    flags = memory_estimate.filling(shape, found, gpu, share)
    assert ("--algo.real.wave_depth" in flags) == (algo == "real")

    def fills(tokens: int) -> float:
        user = {**flags, "--train.max_tokens_per_gpu": str(tokens), "--rollout.max_tokens_per_gpu": "1"}
        memory = memory_estimate.training_memory(
            *planned(recipe, algo, {flag: (value,) for flag, value in user.items()}), gpu
        )
        return (sum(memory.values()) + 5e9) / gpu

    tokens, longest = int(flags["--train.max_tokens_per_gpu"]), found.number("--data.max_len")
    assert tokens % longest == 0 and fills(tokens) <= share
    assert fills(tokens + longest) > share or tokens >= 2**31 / shape.intermediate - longest
    assert tokens <= int(flags["--rollout.max_tokens_per_gpu"]) <= 2 * tokens


def test_budgets_are_not_larger_than_an_update_and_none_where_none_fits():
    few = planned("qwen1.5b", user={"--train.batch_size": ("16",)})
    assert memory_estimate.filling(*few, GPU)["--train.max_tokens_per_gpu"] == str(2 * 9216)
    assert memory_estimate.filling(*planned("qwen7b"), 24e9) == {}
    assert memory_estimate.filling(*planned("qwen7b", removed=["--train.dynamic_batch_enable"]), GPU) == {}


# What a rank's memory leaves for kept graphs, on a GPU that is not here: DeepSpeed's accelerator is replaced

kept_graphs = pytest.importorskip("real_openrlhf.hooks.actor.kept_graphs")

TOTAL = 80_000_000_000


@pytest.fixture
def args(monkeypatch) -> SimpleNamespace:
    gpu = SimpleNamespace(device_name=lambda: "cuda", total_memory=lambda: TOTAL)
    monkeypatch.setattr(kept_graphs, "get_accelerator", lambda: gpu)
    return SimpleNamespace(
        train=SimpleNamespace(colocate_all=True, async_enable=False),
        vllm=SimpleNamespace(enable_sleep=False, gpu_memory_utilization=0.7),
        ds=SimpleNamespace(zero_stage=2, adam_offload=False, overlap_comm=False),
        algo=SimpleNamespace(real=SimpleNamespace(reference=True)),
        ref=SimpleNamespace(offload=False),
    )


def test_kept_graphs_leave_room_for_states_and_the_runtime(args, monkeypatch):
    sizes = {"hidden_size": 10, "intermediate_size": 20, "num_hidden_layers": 3, "vocab_size": 50}
    module = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(**sizes)), parameters=list)
    args.vllm.enable_sleep, args.actor = True, SimpleNamespace(gradient_checkpointing_enable=True)
    args.ds.logit_free = True
    token = 3 * 2 * 10 + 8 * 10
    found = kept_graphs.kept_tokens(SimpleNamespace(module=module, dp_world_size=1), args)
    assert found == 0.6 * (TOTAL - 5e9 - 1e9) // token  # a bucket of gradients is all that an empty model has


@pytest.mark.parametrize("flag", ["vllm.enable_sleep", "train.async_enable"])
def test_vllm_takes_its_share_unless_it_sleeps_or_has_gpus_of_its_own(args, flag):
    assert kept_graphs.sampler_bytes(args) == 0.7 * TOTAL
    group, name = flag.split(".")
    setattr(getattr(args, group), name, True)
    assert kept_graphs.sampler_bytes(args) == 0


def test_states_are_counted_from_the_engines_parameters(args):
    module = torch.nn.Sequential(torch.nn.Linear(10, 10, bias=False), torch.nn.Linear(10, 10, bias=False))
    module[0].weight.requires_grad = False
    engine = SimpleNamespace(module=module, dp_world_size=2)
    # weights and a reference's in bf16; of what is trained half the gradients in fp32 and in bf16, and half of Adam's
    # states; a bucket of 5e8 numbers, and a second one to exchange the first meanwhile
    expected = 2 * (2 * 200) + (4 + 2 + 12) * 100 / 2
    assert kept_graphs.states_bytes(engine, args) == expected + 1e9
    args.ref.offload = args.ds.overlap_comm = True  # the first has no effect under ZeRO-2
    assert kept_graphs.states_bytes(engine, args) == expected + 2e9
