"""A small random copy of a model: its architecture, tokenizer, chat template and generation_config.

It ends its responses now and then: an ordinary random model of 150,000 words never says the one that ends a text.
"""

import math
import shutil
from pathlib import Path
from typing import Any

from real_openrlhf.data.sources import is_hub_name

FILES = "tokenizer* *vocab* merges.txt special_tokens_map.json added_tokens.json chat_template* generation_config.json"
LAYERS, WIDTH, INNER, HEAD, HEADS = 2, 64, 96, 32, 2
EXPERTS, CHOSEN = 4, 2
SHARED = 0.5  # of all embeddings, in one direction; what layers add is small beside it, also with Gemma's norms
ENDS = 1 / 16  # how often a response ends at a token
COOLEST = 0.1  # temperature for which this can be made
CHATML = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
CHATML += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def copy_of(model: str, folder: Path, temperature: float) -> str:
    """Write it; at this temperature its responses end. Returns what it is, in words."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = Path(model).expanduser()
    if is_hub_name(model, "model"):
        from huggingface_hub import snapshot_download

        source = Path(snapshot_download(model, allow_patterns=["config.json", *FILES.split()]))
    tokenizer = AutoTokenizer.from_pretrained(source)
    # the tokenizer's words only: a trained model never says the others of its config
    words = max(tokenizer.get_vocab().values()) + 1
    config = _small(AutoConfig.from_pretrained(source), words)
    torch.manual_seed(0)
    small = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _let_it_end(small, tokenizer.eos_token_id, max(temperature, COOLEST))
    small.bfloat16().save_pretrained(folder)
    for path in {path for pattern in FILES.split() for path in source.glob(pattern) if path.is_file()}:
        shutil.copy(path, folder / path.name)  # over the generation_config that save_pretrained writes
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
    return f"{config.model_type}, {config.num_hidden_layers} layers, {words:,} words, {size:.0f} MB"


def model_of_bytes(folder: Path) -> str:
    """Tokenizer and config of a Qwen2 whose words are bytes, so it reads any text. Returns the folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config

    words = Tokenizer(models.BPE({sign: n for n, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "extra_special_tokens": ["<|im_start|>"]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, chat_template=CHATML, **special)
    tokenizer.save_pretrained(folder)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    Qwen2Config(architectures=["Qwen2ForCausalLM"], **ends).save_pretrained(folder)
    return str(folder)


def _small(config: Any, words: int) -> Any:
    """Its fields with small sizes; one layer of each kind at least."""
    text = config.get_text_config()
    kinds = list(dict.fromkeys(getattr(text, "layer_types", None) or ()))
    layers = max(LAYERS, len(kinds))
    grouped = (text.num_key_value_heads or text.num_attention_heads) < text.num_attention_heads
    sizes = {
        "vocab_size": words, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": 1 if grouped else HEADS, "head_dim": HEAD,
        "num_experts": EXPERTS, "num_local_experts": EXPERTS, "num_experts_per_tok": CHOSEN,
        "moe_intermediate_size": INNER // 3, "shared_expert_intermediate_size": INNER // 3,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": HEAD,
        "linear_value_head_dim": HEAD, "query_pre_attn_scalar": HEAD, "max_window_layers": layers,
    }  # fmt: skip
    for name, value in sizes.items():
        if getattr(text, name, None) is not None or name == "head_dim":
            setattr(text, name, value)
    if kinds:
        text.layer_types = (kinds * layers)[:layers]
    return text


def _let_it_end(model: Any, end: int, temperature: float) -> None:
    """Raise the end's logit: all words share a direction of the hidden state, and the end's row of the head has it."""
    import torch

    head = model.get_output_embeddings().weight
    with torch.no_grad():
        model.get_input_embeddings().weight[:, 0] = SHARED
        draw = torch.randint(head.shape[0], (8, 32), generator=torch.Generator().manual_seed(0))
        before = model(draw).logits / temperature
        head[end, 0] += 1  # what this adds is scaled as the model scales its logits
        slope = (model(draw).logits / temperature - before)[..., end]
        wanted = before.logsumexp(-1) + math.log(ENDS / (1 - ENDS))
        head[end, 0] += ((wanted - before[..., end]) / slope).median() - 1
