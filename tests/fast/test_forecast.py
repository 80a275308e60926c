"""Estimates against models that exist and against sums done by hand."""

from types import SimpleNamespace

import pytest
from small_runs import run_flags
from small_world import REPOSITORY
from tiny_models import model_of

from real_openrlhf.forecast import duration
from real_openrlhf.forecast import memory as arithmetic
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks import Findings, run_checks

GPU, SLEEP = 80e9, "--vllm.enable_sleep"
APART = ["--train.colocate_all", SLEEP, "--ds.enable_sleep"]  # each role with GPUs of its own
P = 7_615_616_512


def planned(*args, **named):
    """(the shape of the plan's model, the plan)"""
    found = run_flags(*args, **named).args
    return arithmetic.shape_of(arithmetic.KNOWN_CONFIGS[found.actor.model_name_or_path]), found


def memory(*args, **named):
    shape, found = planned(*args, **named)
    return sum(arithmetic.states(shape, found, shape.adapter_parameters(found.ds.lora.rank)).values())


SIZES = {"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["Qwen2", "Llama", "Qwen3"])
def test_parameters_are_counted_as_transformers_builds_them(family, tied):
    model = model_of(family, **SIZES, num_hidden_layers=3, head_dim=16, tie_word_embeddings=tied)
    shape = arithmetic.shape_of(model.config.to_dict())
    extra = 3 * 2 * 16 if family == "Qwen3" else 0  # its norms of q and k, too few to be in the sums
    assert shape.parameters + extra == sum(p.numel() for p in model.parameters())


def test_adapters_are_counted_as_peft_builds_them():
    peft, model = pytest.importorskip("peft"), model_of(**SIZES)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert arithmetic.shape_of(model.config.to_dict()).adapter_parameters(8) == trained


def test_the_known_models_have_their_published_sizes():
    shapes = map(arithmetic.shape_of, arithmetic.KNOWN_CONFIGS.values())
    assert [shape.parameters for shape in shapes] == [1_777_088_000, P]


@pytest.mark.parametrize("config", [{}, {"hidden_size": 8, "num_hidden_layers": 2, "num_experts": 8}])
def test_no_guess_about_models_that_the_sums_do_not_describe(config):
    assert arithmetic.shape_of(config) is None


def test_states_follow_the_zero_stage_the_optimizer_and_the_reference_model():
    """By hand, at 8 GPUs: weights 2, gradients 4, Adam 12 bytes a parameter; a bucket; what ZeRO-3 gathers."""
    bucket = 2 * 500_000_000
    two, one = (memory("qwen7b", user={"--ds.zero_stage": (stage,)}) for stage in "21")
    assert two == 2 * P + 4 * P / 8 + bucket + 2 * P / 8 + 12 * P / 8
    assert one - two == 4 * P - 4 * P / 8
    three = memory("qwen7b")
    assert three == 2 * P / 8 + 2 * 1_000_000_000 + 4 * P / 8 + bucket + 12 * P / 8
    assert memory("qwen7b", "grpo") - three == 2 * P / 8 == memory("qwen7b", "trpa") - three
    assert memory("qwen7b", "grpo", {"--ref.offload": ()}) == three == memory("qwen7b", "grpo", removed=APART)
    assert three - memory("qwen7b", user={"--ds.adam_offload": ()}) == 12 * P / 8
    assert three - memory("qwen7b", removed=["--ds.grad_accum_dtype"]) == 2 * P / 8
    assert memory("qwen7b-lora") < memory("qwen7b-lora", user={"--ds.lora.rank": ("0",)}) / 4


def test_without_logits_the_vocabulary_costs_the_heads_gradient_and_a_chunk():
    def moments(tokens, removed=()):
        budgets = {f"--{when}.max_tokens_per_gpu": (str(tokens),) for when in ("train", "rollout")}
        return arithmetic.moments(*planned("qwen7b", user=budgets, removed=removed))

    (head, layer, _), (twice, *_) = moments(9216), moments(18432)
    # by hand: each of 28 layers' input, 12 bytes a number of the last one's output; 14 a logit of 2**26; bf16 gradient
    assert layer > head == 9216 * 3584 * (28 * 2 + 12) + 14 * 2**26 + 2 * 152064 * 3584
    assert twice - head == 9216 * 3584 * (28 * 2 + 12)
    with_logits, layer, _ = moments(9216, ["--ds.fused_logprobs"])
    # one fp32 table of 9,216 x 152,064 is 5.6 GB; the forward and backward pass holds more than two of them
    assert with_logits > layer and with_logits - head > 2 * 4 * 9216 * 152064


def test_graphs_that_wait_for_scores_are_counted():
    def peak(algo="real", depth="auto", length="9216", update="256"):
        user = {"--algo.real.max_live_micro_batches": (depth,), "--data.max_len": (length,)}
        user |= {"--train.batch_size": (update,), "--rollout.max_new_tokens": ("256",)}
        return arithmetic.peak(*planned("qwen7b", algo, user), GPU)

    need, most = peak()
    assert peak(depth="0") == peak("dapo") == (need, need) and need < most < GPU
    assert need < peak(length="1024")[1] < most > peak(depth="2")[1] > need  # an update's, or two micro-batches
    assert peak(depth="1") == peak(length="1024", update="64") == (need, need)


# bytes of a token's graph, tokens whose graphs fit beside the states, gigabytes at the peak
@pytest.mark.parametrize(
    "recipe, graph, live, most",
    [
        ("qwen1.5b", 98_304, 405_562, 47.338),
        ("qwen1.5b-1gpu", 98_304, 234_730, 69.411),
        ("lora-24gb", 98_304, 79_154, 19.783),
        ("qwen7b", 229_376, 143_515, 63.207),
        ("qwen7b-lora", 229_376, 145_278, 62.937),
    ],
)
def test_the_numbers_of_the_recipes(recipe, graph, live, most):
    shape, args = planned(recipe)
    adapters, gpu = shape.adapter_parameters(args.ds.lora.rank), RECIPES[recipe].gpu_gb * 1e9
    assert (
        arithmetic.graph_bytes(shape, args) == graph == (28 * 2 + 8) * shape.hidden
    )  # each layer's input, and a head
    assert arithmetic.live_tokens(shape, args, adapters, arithmetic.left_on(args, gpu)) == live
    assert arithmetic.peak(shape, args, gpu)[1] == pytest.approx(most * 1e9, abs=1e6)


def test_a_graph_without_checkpoints_keeps_all_that_layers_read_and_with_logits_the_vocabulary():
    """By hand, of 28 layers of 3,584 numbers with 4 heads' keys of 128, and 18,944 between."""
    layer = 16 * 3584 + 4 * (3584 + 4 * 128) + 8 * 18944
    for removed, head in ([], 8 * 3584), (["--ds.fused_logprobs"], 12 * 152064):
        found = planned("qwen7b", removed=["--actor.gradient_checkpointing_enable", *removed])
        assert arithmetic.graph_bytes(*found) == 28 * layer + head
    eager = planned("qwen7b", user={"--ds.attn_implementation": ("eager",)}, removed=["--ds.packing_samples"])
    assert arithmetic.layer_bytes(*eager) == layer + 28 * eager[1].data.max_len * 6  # scores of 28 heads


def test_engines_that_stay_awake_keep_their_share():
    (asleep, _), (awake, _) = (
        arithmetic.peak(*planned("qwen7b", "dapo", removed=removed), GPU) for removed in ([], [SLEEP])
    )
    assert awake - asleep == pytest.approx(0.7 * GPU)


@pytest.mark.parametrize(
    "gb, user, refused",
    [(24, {}, True), (48, {}, False), (24, {"--vllm.gpu_memory_utilization": ("0.7",)}, False)],
)
def test_weights_above_an_engines_share_of_the_card_are_refused(gb, user, refused):
    """By hand: 15.2 GB, and half of 24 GiB."""
    _, args = planned("lora-24gb", user=user)
    shape, _ = planned("qwen7b")
    said = [*arithmetic.engine_problems(shape, args, gb)]
    assert ["vLLM cannot start: weights of 15.2 GB per GPU" in one for one in said] == [True] * refused
    for recipe in RECIPES.values():
        assert "DeepSeek" not in recipe.model or not [
            *arithmetic.engine_problems(*planned(recipe.name), recipe.gpu_gb)
        ]


def test_only_an_asynchronous_run_generates_while_it_trains():
    apart, at_once = (
        duration.step_seconds(*planned("qwen7b", user=user, removed=APART), duration.CARDS[0], 4000)
        for user in ({}, {"--train.async_enable": ()})
    )
    assert apart > 1.2 * at_once


def test_disk_counts_what_is_kept_and_what_is_never_rotated():
    def total(user):
        return arithmetic.disk(*planned("qwen7b", user=user))

    checkpoint, model = 14 * P, 2 * P
    assert total({}) == 3 * checkpoint + model  # the third while it is written
    assert total({"--ckpt.save_hf": ()}) == 3 * checkpoint + 50 * model + model  # 1,000 steps, every 20
    assert total({"--ckpt.save_steps": ("-1",)}) == model
    assert total({"--train.max_steps": ("3",)}) == checkpoint + model  # of the last step


@pytest.mark.parametrize("recipe", [name for name, recipe in RECIPES.items() if "DeepSeek" in recipe.model])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_gpu_recipe_is_estimated_to_fit_its_gpus(recipe, algo):
    shape, found = planned(recipe, algo)
    fits = arithmetic.forecast(shape, found, RECIPES[recipe].gpu_gb)
    large = arithmetic.forecast(shape, found, RECIPES[recipe].gpu_gb / 4)
    assert fits.startswith("memory per GPU: ") and "--ds.adam_offload" not in fits
    assert "It may not fit: more GPUs" in large and "--ds.adam_offload" in large


H100, BY_32 = duration.CARDS[0], {"--rollout.batch_size": ("32",), "--train.batch_size": ("64",)}


@pytest.mark.parametrize(
    "user, mean, seconds",  # by hand, as a reader of the sources added it up
    [({}, 2700, 190), ({}, 3230, 240), ({}, 4000, 330), ({}, 5500, 530), (BY_32, 2700, 84), (BY_32, 5500, 142)],
)
def test_the_time_of_a_step_is_that_of_the_sums_by_hand(user, mean, seconds):
    shape, args = planned("qwen1.5b-1gpu", user=user)
    assert duration.step_seconds(shape, args, H100, mean) == pytest.approx(seconds, rel=0.2)


@pytest.mark.parametrize(
    "algo, user, removed",
    [
        ("real", {"--rollout.batch_size": ("256",)}, ()),
        ("real", {}, ["--train.skip_zero_gradient"]),
        ("real", {"--train.max_epochs": ("2",)}, ()),
        ("grpo", {"--algo.kl.init_coef": ("0.1",), "--algo.kl.use_loss": ()}, ()),  # a reference model
        ("dapo", {"--algo.dynamic_filtering_enable": ()}, ()),  # generates what it filters out
        ("real", {"--rollout.max_new_tokens": ("16384",), "--data.max_len": ("17408",)}, ()),
        ("real", {"--vllm.gpu_memory_utilization": ("0.1",)}, ()),  # fewer responses at once
    ],
)
def test_a_step_takes_longer_with_more_work(algo, user, removed):
    shape, args = planned("qwen1.5b-1gpu")
    more = planned("qwen1.5b-1gpu", algo, user, removed)[1]
    assert duration.step_seconds(shape, more, H100, 4000) > 1.05 * duration.step_seconds(shape, args, H100, 4000)


@pytest.mark.parametrize("flag", ["--vllm.max_num_seqs", "--train.max_steps", "--rollout.max_new_tokens"])
def test_a_flag_that_the_user_removes_leaves_a_forecast(flag):
    said = duration.forecast(*planned("qwen1.5b-1gpu", removed=[flag]), H100)
    assert said.startswith("time: ") and ("hours" in said) == (flag != "--train.max_steps")


def test_a_width_without_room_leaves_a_forecast():
    """It is refused, but the other checks go on."""
    assert duration.forecast(*planned("qwen1.5b-1gpu", user={"--vllm.tensor_parallel_size": ("2",)}), H100)


def test_the_card_is_the_machines_or_one_with_the_recipes_memory():
    assert [duration.card_of([], gb).name for gb in (80, 24, 16)] == ["H100", "A10", "A10"]
    large, small = (duration.card_of([], gb) for gb in (80, 24))
    said = f"an {large.name} at ${large.dollars:g} an hour, or an {small.name} at ${small.dollars:g} for"
    assert said in (REPOSITORY / "docs/use/gpu.md").read_text()
    named = "A100-SXM4-80GB", "GeForce RTX 4090", "GeForce RTX 5090", "L40S", "L4", "B200", "H200", "A10"
    cards = [duration.card_of([f"NVIDIA {name}"], 24) for name in named]
    assert [card.name for card in cards] == ["A100", "RTX 4090", "RTX 5090", "L40S", "L4", "B200", "H200", "A10"]
    other = duration.card_of(["NVIDIA RTX A6000"], 48)
    assert other.name == "NVIDIA RTX A6000 (taken for an A10)" and other.flops == cards[-1].flops


# GPUs, prompts, responses of each, limit, steps: DeepScaleR's stages (its model card), and Open-RS's 42,000 responses
DEEPSCALER = (8, 128, 8, 8192, 1040), (32, 128, 16, 16384, 480), (32, 128, 16, 24576, 230)
OPEN_RS = ((4, 24, 6, 3584, 42_000 / 144),)
A40 = duration.Card("A40", 48, 60e12, 0.55e12, 0.44)


@pytest.mark.parametrize(
    "stages, card, took, least, most",
    [(DEEPSCALER, duration.CARDS[1], 3800, 1.3, 2.4), (OPEN_RS, A40, 96, 3.3, 4.4)],
)
def test_public_runs_took_so_many_times_our_sum_as_the_page_says(stages, card, took, least, most):
    hours = [0.0, 0.0]
    for gpus, prompts, group, limit, steps in stages:
        numbers = {"--actor.num_gpus_per_node": gpus, "--vllm.num_engines": gpus, "--rollout.batch_size": prompts}
        numbers |= {"--rollout.n_samples_per_prompt": group, "--train.batch_size": prompts * group}
        numbers |= {"--rollout.max_new_tokens": limit, "--data.max_len": limit + 1024, "--ckpt.save_steps": -1}
        run = planned("qwen1.5b", "grpo", {flag: (str(number),) for flag, number in numbers.items()})
        for at, share in enumerate(duration.MEAN_SHARES):
            hours[at] += gpus * steps * duration.step_seconds(*run, card, share * limit) / 3600
    assert (round(took / hours[1], 1), round(took / hours[0], 1)) == (least, most)
    page = (REPOSITORY / "docs/use/gpu.md").read_text()
    assert f"{took:,} {card.name}-hours, {least} to {most} times" in page


def test_checkpoints_are_in_a_runs_time_and_rent():
    found, without = planned("qwen7b"), planned("qwen7b", user={"--ckpt.save_steps": ("-1",)})
    took = duration.step_seconds(*found, H100, 4000) - duration.step_seconds(*without, H100, 4000)
    assert took == pytest.approx(14 * P / 1e9 / 20)
    said = "checkpoints of 106.6 GB every 20 steps: 1.5 hours and $36 at 1 GB/s, 12 hours and $280 at 0.125 GB/s"
    assert said in duration.forecast(*found, H100) and "; no checkpoints;" in duration.forecast(*without, H100)
    endless = planned("qwen7b", user={"--train.max_steps": ("0",)})
    assert "every 20 steps: 5.3 s of each step at 1 GB/s, 43 s" in duration.forecast(*endless, H100)


def test_the_page_of_rehearsals_has_the_costs_of_its_recipe():
    _, hours, dollars = map(duration.text, duration.spans(*planned("qwen7b"), H100))
    page = (REPOSITORY / "docs/use/rehearse.md").read_text()
    assert f"cost: all of the run, {hours} hours and ${dollars}\n" in page


def test_host_memory_holds_what_sleeps_in_blocks_of_powers_of_two():
    """By hand: Adam's 12 bytes of each weight once, and an engine's bf16 weights on each GPU."""
    tables, small = 2 * 152064 * 3584, P - 28 * (3584 * 4608 + 3584**2 + 3 * 3584 * 18944) - 2 * 152064 * 3584
    least, most = arithmetic.pinned(*planned("qwen7b"))
    assert least == pytest.approx(12 * P + 8 * 2 * (P - small)) and small < 0.001 * tables
    engine = 28 * (2 * 2**25 + 2**29 + 2**28) + 2 * 2**31
    assert most == 8 * (3 * 2**32 + engine)  # 3.8 GB of each of Adam's states, on each rank
    one, two = (arithmetic.pinned(*planned("qwen7b", user={"--actor.num_nodes": (n,)}))[0] for n in "12")
    assert one > two > one / 2  # each node has engines of its own
    assert arithmetic.pinned(*planned("qwen7b", removed=[SLEEP, "--ds.enable_sleep"])) == (0, 0)


@pytest.mark.parametrize("free, problems, notes", [(10e9, 1, 0), (27e9, 0, 1), (64e9, 0, 1)])
def test_a_machine_without_the_host_memory_is_refused(monkeypatch, free, problems, notes):
    monkeypatch.setattr(run_checks.doctor, "available_memory", lambda: free)
    here = SimpleNamespace(target=SimpleNamespace(address=None), elsewhere="")
    found = Findings()
    found.add(run_checks._host_memory(here, 25e9, 30e9))
    assert (len(found.problems), len(found.notes)) == (problems, notes)
    assert all("25.0 GB to 30.0 GB for what sleeps" in text for text in (*found.problems, *found.notes))
    assert ["may not fit: 27.0 GB" in note for note in found.notes] == [free == 27e9] * notes
    assert found.conclusion.endswith("may lack the memory to run it." if free == 27e9 else "can run it.")
    found = Findings()
    found.add(run_checks._host_memory(SimpleNamespace(target=here.target, elsewhere="0 of 1 GPU"), 25e9, 30e9))
    assert found.problems == [] and len(found.notes) == 1  # a dry run for another machine
    found.elsewhere, found.notes = "0 of 1 GPU", ["memory per GPU: 27 of 24 GB. It may not fit: more GPUs"]
    assert found.conclusion.endswith("cannot run it: 0 of 1 GPU; the GPUs that it is for may lack the memory.")
