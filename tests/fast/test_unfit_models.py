"""Models that packing, shared prompts, attention or head would train wrongly: refused by configuration, twice."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.model import flash_attention_torch, unfit_models
from real_openrlhf.hooks.model.logit_free_head import LogitFreeHead, attach
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training.checks import model_check

ROOT = Path(__file__).resolve().parents[2]
SIZES = dict(
    vocab_size=200, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, head_dim=32,
    num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
HYBRIDS = {
    "lfm2": {"full_attn_idxs": [2]},
    "qwen3_5_text": {},
    "qwen3_next": {"full_attention_interval": 4, **EXPERTS},
}
PLAIN = {"qwen3": {}, "gemma3_text": {"sliding_window": 8}, "olmo3": {"sliding_window": 8}}
PACKED = {"recipe": "qwen7b"}
PADDED = {"recipe": "qwen7b", "removed": ("--ds.packing_samples", "--train.dynamic_batch_enable")}


def unfit_problems(*asked) -> list[str]:
    return [*model_check.unfit_problems(*asked)]


def made(name: str, attention: str = "sdpa"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **SIZES, **(HYBRIDS | PLAIN)[name])
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32).eval()


def refuse_unfit(model, **asked) -> None:
    """What OpenRLHF's process of the policy does once its model is loaded."""
    ds = dict(attn_implementation="sdpa", packing_samples=False, share_prompts=False, logit_free=True)
    args = SimpleNamespace(ds=SimpleNamespace(**ds | asked), actor=SimpleNamespace(entropy_coef=0.0))
    attach(SimpleNamespace(model=model, temperature=1.0), SimpleNamespace(args=args, print=lambda line: None))


def actor_of(model):
    return SimpleNamespace(model=model, logit_free=LogitFreeHead(model, 1.0, False, lambda line: None))


def log_probs(actor, tokens, **named):
    return actor.logit_free.scoring(actor.model, tokens.roll(-1, 1), False)(tokens, **named)["logits"][..., 0]


def plan_of(recipe: str, flags: dict | None = None, removed=()):
    plan = compose(RECIPES[recipe], ALGORITHMS["real"], flags or {}, launcher={})
    for flag in removed:
        plan.flags.pop(flag)
    return plan


def raw(name: str, **more) -> dict:
    """A config.json as its authors published it: without what transformers adds."""
    return {"model_type": name, **SIZES, **HYBRIDS.get(name, {}), **more}


@torch.no_grad()
@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrid_leaks_if_packed_is_refused_and_is_exact_if_padded(name):
    rows = torch.randint(3, 200, (2, 24), generator=torch.Generator().manual_seed(0))
    model = made(name)
    actor = actor_of(model)
    alone = log_probs(actor, rows[1:], attention_mask=None)[0, :-1]
    flash_attention_torch.register()
    packing = actor_of(made(name, "flash_attention_torch"))
    places = torch.arange(24).repeat(2)[None]
    packed = log_probs(packing, rows.reshape(1, -1), attention_mask=None, position_ids=places)[0, 24:-1]
    assert (packed - alone).abs().max() > 1e-4  # what a refusal is for
    with pytest.raises(UserError, match="carry state.*--no-ds.packing_samples --no-train.dynamic_batch_enable"):
        refuse_unfit(model, packing_samples=True)
    with pytest.raises(UserError, match="--no-ds.share_prompts"):
        refuse_unfit(model, share_prompts=True)
    for side in ((5, 0), (0, 5)):
        tokens, mask = (torch.nn.functional.pad(one, side) for one in (rows, torch.ones_like(rows)))
        mask[0], tokens[0] = 1, tokens[0].clamp(min=3)  # the other row is longer
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        padded = log_probs(actor_of(model), tokens, attention_mask=mask, position_ids=positions)[1, side[0] :][:23]
        assert (padded - alone).abs().max() < 1e-5


@pytest.mark.parametrize("name", HYBRIDS)
def test_the_dry_run_refuses_what_leaks_and_names_what_works(name):
    (found,) = unfit_problems(plan_of(**PACKED), raw(name))
    assert "carry state" in found and "--no-ds.packing_samples --no-train.dynamic_batch_enable" in found
    assert unfit_problems(plan_of(**PADDED), raw(name)) == []
    vision = {"model_type": "qwen3_5", "text_config": raw("qwen3_5_text"), "vision_config": {}}
    assert "carry state" in unfit_problems(plan_of(**PACKED), vision if name == "qwen3_5_text" else raw(name))[0]
    either = plan_of("qwen7b", removed=("--ds.packing_samples",))  # OpenRLHF packs with either flag
    assert unfit_problems(either, raw(name))
    (shared,) = unfit_problems(plan_of("cpu-smollm2"), raw(name))
    assert "--no-ds.share_prompts" in shared


@pytest.mark.parametrize(
    "name, more, said",
    [
        ("gemma2", {}, ("attn_logit_softcapping", "final_logit_softcapping")),
        ("gpt_oss", {}, ("names its own attention kernels",)),
        ("gemma4_text", {}, ("has heads of width 512",)),
        ("granite", {"logits_scaling": 8.0}, ("logits_scaling 8.0",)),
        ("qwen2", {"head_dim": 12}, ("heads of width 12",)),
        *((name, {}, ("mamba_",)) for name in ("falcon_h1", "bamba")),
        ("recurrent_gemma", {}, ("recurrent carry state",)),
        ("a_model_of_its_own", {"linear_attn_config": {}}, ("linear_attn_config",)),
        *((name, PLAIN.get(name, {}), ()) for name in ("qwen2", "qwen3", "llama", "mistral", "olmo2", "phi3", *PLAIN)),
        *((name, {}, ()) for name in ("smollm3", "a_model_of_its_own", "qwen3_moe", "deepseek_v3")),
    ],
)
def test_other_models_are_refused_in_the_dry_run_for_what_they_are(name, more, said):
    found = unfit_problems(plan_of(**PACKED), raw(name, **more))
    assert all(any(one in problem for problem in found) for one in said) and bool(found) == bool(said), found


@pytest.mark.parametrize("name", unfit_models.PLAIN)
def test_the_classes_that_are_not_asked_have_nothing_to_say(name):
    model_class = type(AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **SIZES)))
    assert unfit_models.attention_problem({"num_attention_heads": 4, "head_dim": 32}, model_class) is None


MODELS = runpy.run_path(str(ROOT / "docs/models.py"))


@pytest.mark.parametrize("name", MODELS["MODELS"])
def test_the_page_refuses_what_the_code_refuses(name):
    """docs/models.py made the page; here its flags of each published shape are asked again."""
    kind, published, _ = MODELS["MODELS"][name]
    said = unfit_problems(plan_of(**PACKED), {"model_type": kind, **published.fields})
    flags = [flag for flag, parts in MODELS["FLAGS"].items() if any(part in one for part in parts for one in said)]
    flags = f"`{' '.join(flags)}`" if flags else ""
    page = (ROOT / "docs/use/models.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in page if line.startswith(f"| {name} |")]
    assert len(rows[0]) == 8 and rows[1:] == ([[name, flags]] if flags else [])
