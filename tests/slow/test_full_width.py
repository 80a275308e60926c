"""Full-size models through OpenRLHF's Actor, our attention and head, at the recipes' own token budgets.

Bytes are counted on tensors without values (`full_width.py`). The estimate of `--dry-run` must agree within 10 %.
"""

import pytest
import torch
from small_runs import plan

from real_openrlhf.algorithm.graph_memory import LOGITS_AT_ONCE_ON_GPU, graph_bytes_per_token
from real_openrlhf.training.checks import memory_estimate

# Adapters need every layer: their own head and first layer differ from what the estimate counts, others hardly do.
RECIPES = {"qwen7b": 2, "qwen1.5b": 2, "qwen7b-lora": 8}


def close(found: float, estimate: float) -> bool:
    return found == pytest.approx(estimate, rel=0.1)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_estimate_is_what_a_step_at_full_width_holds(one_rank, recipe):
    found = plan(recipe)
    known = memory_estimate.KNOWN_CONFIGS[found.text("--actor.model_name_or_path")]
    config = {**known, "num_hidden_layers": RECIPES[recipe]}
    shape, rank = memory_estimate.shape_of(config), found.number("--ds.lora.rank")
    tokens, many = (memory_estimate.tokens(found, when) for when in (memory_estimate.TRAIN, memory_estimate.ROLLOUT))
    sizes = shape.hidden, shape.intermediate, shape.layers, shape.vocabulary

    def step(tokens: int, **how) -> dict:
        (result,) = one_rank("full_width.step", config=config, tokens=tokens, lora_rank=rank, **how)
        assert result["mixes"] == {} and sum(result["waits"].values()) == 5
        return result

    again, whole = (step(tokens, checkpointing=way) for way in (True, False))
    for way, one in ((True, again), (False, whole)):
        estimate = graph_bytes_per_token(*sizes, checkpointing=way, logit_free=True) * tokens
        assert close(one["kept"], estimate) or rank  # a head and norms that are not trained keep less
    layer = 16 * shape.hidden + 4 * (shape.attention_width + shape.kv_width) + 8 * shape.intermediate
    assert close(whole["saved"], layer * tokens)
    moments = memory_estimate.moments(shape, found)
    assert close(again["head"], moments["activations at their largest: the head"])
    assert close(again["backward"], moments["activations at their largest: one layer"])
    scored = step(many, checkpointing=True, gradients=False)
    assert close(scored["forward"], moments["log-probabilities of rollouts"])

    packed = (tokens, shape.heads, shape.attention_width // shape.heads)
    attention = [call for call in again["calls"] if call[0] == "torch_attn::_varlen_attn"]
    assert len(attention) == 2 * shape.layers  # there, and again
    assert all(shapes[0] == packed and formats == {torch.bfloat16, torch.int32} for _, shapes, formats in attention)
    words = LOGITS_AT_ONCE_ON_GPU // tokens // 8 * 8
    blocks = [shapes for _, shapes, _ in again["calls"] if shapes == [(tokens, shape.hidden), (shape.hidden, words)]]
    assert len(blocks) == 2 * (shape.vocabulary // words)  # there and back; the last one is smaller
