"""`--ds.logit_free` on two ZeRO-3 ranks: steps of REAL and GRPO are those with logits, in part of the memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).with_name("logit_free_rank.py")
VOCABULARY = 152_064
STEPS = 3


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    """A tiny model of a real vocabulary, and smaller ones with a tied and with an untied head."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from real_openrlhf.training import tiny_task

    tokenizer, made = tiny_task.make_tokenizer(), {}
    for name, vocabulary, tied in (("large", VOCABULARY, False), ("tied", 512, True), ("untied", 512, False)):
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
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
    flags = {"logit_free": logit_free, "head_dtype": more.pop("head_dtype", None)}
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
