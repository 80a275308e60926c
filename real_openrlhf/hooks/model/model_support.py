"""Models that packing, attention or the fused head would train wrongly, by configuration.

A dry run asks before anything is downloaded; the policy's processes ask again when they have loaded the model.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

ATTENTION = "flash_attention_torch"
ATTENTION_REMEDY = (
    "Give --ds.attn_implementation flash_attention_2 if flash-attn is installed; without it --ds.attn_implementation "
    "eager --no-ds.packing_samples --no-train.dynamic_batch_enable"
)
HEAD_REMEDY = "Leave --ds.fused_logprobs out (recipes: --no-ds.fused_logprobs)"
PACKING_REMEDY = (
    "Leave --ds.packing_samples and --train.dynamic_batch_enable out (recipes: --no-ds.packing_samples "
    "--no-train.dynamic_batch_enable): padded responses train exactly"
)
# Names in model configurations for a factor or a cap after the head.
AFTER_THE_HEAD = (
    *("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap", "logits_scaling", "logit_scale"),
    *("lm_head_multiplier", "output_multiplier", "logits_mup_width_multiplier"),
)
ATTENDING = ("full_attention", "sliding_attention", "chunked_attention", "attention")
KINDS_OF_LAYERS = ("layer_types", "layers_block_type", "block_types")
# Beginnings of names that configurations have for linear attention, convolutions and state-space layers only.
OF_STATE = ("linear_conv", "linear_num", "linear_attn", "mamba_", "ssm_", "conv_L", "conv_dim", "lru_", "hybrid_overr")
PLAIN = ("llama", "qwen2", "qwen3")  # their classes need not be imported, which takes seconds


class Features(NamedTuple):
    """What a run asks of its model."""

    attention: str
    packs: bool
    fused_logprobs: bool


def model_problems(wanted: Features, config: Mapping, model_class: Any = None) -> Iterator[str]:
    """`config`: the text model's, with the defaults of transformers. `model_class`: None for a plain model."""
    state = keeps_state(config)
    if state and wanted.packs:
        yield (f"{state}, and in packed responses it would go on from one into the next. {PACKING_REMEDY}")
    if wanted.packs and loses_positions(config):
        yield (
            "this model's layers get no positions (mrope_section), which separate packed responses: each would attend "
            f"to those before it. {PACKING_REMEDY}"
        )
    if wanted.attention == ATTENTION and (problem := attention_problem(config, model_class)):
        yield f"{ATTENTION}: this model {problem}. {ATTENTION_REMEDY}"
    if wanted.fused_logprobs and (problem := head_problem(config)):
        yield problem


def keeps_state(config: Mapping) -> str | None:
    """Names the layers that hand something from token to token beside attention."""
    kinds = {kind for name in KINDS_OF_LAYERS for kind in config.get(name) or () if isinstance(kind, str)}
    if others := sorted(kinds - set(ATTENDING)):
        return f"this model's layers of {' and '.join(others)} carry state from token to token"
    keys = sorted(key for key, value in config.items() if key.startswith(OF_STATE) and value is not None)
    return f"this model's layers carry state from token to token ({keys[0]})" if keys else None


def loses_positions(config: Mapping) -> bool:
    """Whether its class takes positions of text, height and width, and hands its layers none of a text alone."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return "mrope_section" in rope and not str(config.get("model_type")).startswith("qwen3_vl")


def attention_problem(config: Mapping, model_class: Any) -> str | None:
    """What the model's attention is more than causal softmax attention with a window."""
    heads, layers = config.get("num_attention_heads"), (config.get("per_layer_config") or {}).values()
    widths = [config.get("head_dim") or (config["hidden_size"] // heads if heads else 0)]
    widths += [layer.get("head_dim") for layer in layers]
    wrong = [width for width in widths if width and (width % 8 or width > 256)]
    if compatible := getattr(model_class, "_compatible_flash_implementations", None):
        return f"names its own attention kernels ({', '.join(compatible)})"
    if not getattr(model_class, "_supports_flash_attn", True):
        return "supports no flash attention in transformers"
    if config.get("attn_logit_softcapping"):
        return f"caps its attention scores (attn_logit_softcapping {config['attn_logit_softcapping']})"
    if "chunked_attention" in (config.get("layer_types") or ()):
        return "attends in chunks (layer_types chunked_attention)"
    return f"has heads of width {wrong[0]}, and the kernel takes multiples of 8 up to 256" if wrong else None


def head_problem(config: Mapping) -> str | None:
    for name in AFTER_THE_HEAD:
        if config.get(name) not in (None, 1):
            return f"--ds.fused_logprobs: this model changes its logits ({name} {config[name]}). {HEAD_REMEDY}"
    return None


def as_transformers_reads(config: Mapping) -> tuple[Mapping, Any]:
    """(the text model's configuration with defaults, its class); a plain model's config.json unchanged."""
    if config.get("model_type") in PLAIN:
        return config, None
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto

    rest = {key: value for key, value in config.items() if key not in ("model_type", "transformers_version")}
    made = AutoConfig.for_model(config["model_type"], **rest)
    several = hasattr(made, "vision_config")  # as OpenRLHF chooses
    classes = (
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING if several else modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    )
    return made.get_text_config().to_dict(), classes[type(made)]
