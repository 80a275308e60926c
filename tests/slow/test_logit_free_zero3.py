"""`--ds.logit_free` on two ZeRO-3 ranks: steps of REAL and GRPO are those with logits, in part of the memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).with_name("logit_free_rank.py")
VOCABULARY, SMALLER, WIDTH = 152_064, 40_000, 32
STEPS = 3


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    """A tiny model of a real vocabulary, and smaller ones with a tied and with an untied head."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from real_openrlhf.training import tiny_task

    tokenizer, made = tiny_task.make_tokenizer(), {}
    for name, vocabulary, tied in (("large", VOCABULARY, False), ("tied", SMALLER, True), ("untied", SMALLER, False)):
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=vocabulary, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=tied,
        )  # fmt: skip
        model = Qwen2ForCausalLM(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0, 0.3)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made[name] = str(folder)
    return made


def train(folder: Path, cases: list[dict]) -> list[list[dict]]:
    """What each of two ranks reports of each case."""
    environment = {
        **os.environ, "DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false", "TORCHDYNAMO_DISABLE": "1",
    }  # fmt: skip
    processes = []
    for rank in range(2):
        log = (folder / f"{rank}.log").open("w")
        command = [sys.executable, str(LAB), str(rank), str(folder), json.dumps(cases)]
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    try:
        for rank, process in enumerate(processes):
            assert process.wait(240) == 0, (folder / f"{rank}.log").read_text()[-4000:]
    finally:
        for process in processes:
            process.kill()
    return [json.loads((folder / f"{rank}.log").read_text().splitlines()[-1]) for rank in range(2)]


def case(model: str, loss: str, logit_free: bool, vocabulary: int, **more) -> dict:
    """16 rollouts: eight a rank and step, in micro-batches of four."""
    flags = {"logit_free": logit_free, "lora_targets": more.pop("lora_targets", None)}
    layout = {"epochs": STEPS, "groups_per_step": 4, "micro_batch_size": 4, "zero_stage": 3}
    return {"model": model, "loss": loss, "flags": flags, "vocabulary": vocabulary, **layout, **more}


def test_with_a_real_vocabulary_steps_agree_and_memory_falls(models, tmp_path, capsys):
    settings = [(loss, flag) for loss in ("real", "ppo") for flag in (False, True)]
    cases = [
        case(models["large"], *setting, VOCABULARY, dtype="bf16", learning_rate=1e-6, uniform_groups="keep")
        for setting in settings
    ]
    first, second = train(tmp_path, cases)
    for one, other in zip(first, second, strict=True):
        assert one["points"] == other["points"]
    for with_logits, without in zip(first[::2], first[1::2], strict=True):
        assert len(without["points"]) == STEPS
        for (loss, norm), (expected_loss, expected_norm) in zip(without["points"], with_logits["points"], strict=True):
            assert loss == pytest.approx(expected_loss, rel=1e-3, abs=1e-3)
            assert norm == pytest.approx(expected_norm, rel=1e-2)
        assert sorted(without["gathered"]) == sorted(with_logits["gathered"])  # the head's weight as often as before
        assert without["peak"] < 0.6 * with_logits["peak"]
    with capsys.disabled():
        for setting, found in zip(settings, first, strict=True):
            print("\n", setting, found["points"], f"{found['peak']:.0f} MB", len(found["gathered"]), end="")


VARIANTS = {
    "untied": {"model": "untied"},
    "tied, checkpointing": {"model": "tied", "checkpointing": True},
    "lora": {"model": "untied", "lora": True},
    "lora on the head": {"model": "untied", "lora": True, "lora_targets": ["q_proj", "down_proj", "lm_head"]},
}


@pytest.fixture(scope="module")
def in_fp32(models, tmp_path_factory) -> dict[tuple[str, bool], dict]:
    """Three large steps of REAL with every kind of head, without the flag and with it."""
    settings = [(name, flag) for name in VARIANTS for flag in (False, True)]
    common = {"dtype": "fp32", "learning_rate": 1e-2, "uniform_groups": "keep", "entropy_coef": 0.1}
    cases = []
    for name, flag in settings:
        variant = dict(VARIANTS[name])
        cases.append(case(models[variant.pop("model")], "real", flag, SMALLER, **common, **variant))
    first, second = train(tmp_path_factory.mktemp("fp32"), cases)
    assert [one["points"] for one in first] == [one["points"] for one in second]
    return dict(zip(settings, first, strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_kind_of_head_trains_as_with_logits(in_fp32, name):
    plain, logit_free = (in_fp32[name, flag] for flag in (False, True))
    assert len(plain["points"]) == STEPS and plain["points"][0] != pytest.approx(plain["points"][2], rel=1e-2)
    for found, expected in zip(logit_free["points"], plain["points"], strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    head = SMALLER * WIDTH  # large enough for ZeRO-3 to shard it
    assert logit_free["gathered"].count(head) == plain["gathered"].count(head) > 0


def test_the_adapter_of_a_head_counts(in_fp32):
    adapted, other = (in_fp32[name, True]["points"] for name in ("lora on the head", "lora"))
    assert adapted[0][1] != pytest.approx(other[0][1], rel=1e-2)
