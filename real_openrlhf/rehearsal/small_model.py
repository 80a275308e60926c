"""A small random copy of a model: its architecture, tokenizer, chat template and generation_config.

It ends its responses now and then: an ordinary random model of 150,000 words never says the one that ends a text.
"""

import contextlib
import hashlib
import json
import math
import os
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


def copy_of(model: str, cache: Path, temperature: float) -> Path:
    """The folder of the copy, made once for each model and rule; at this temperature its responses end."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = Path(model).expanduser()
    if is_hub_name(model, "model"):
        from huggingface_hub import snapshot_download

        source = Path(snapshot_download(model, allow_patterns=["config.json", *FILES.split()]))
    parts = sorted({path for pattern in FILES.split() for path in source.glob(pattern) if path.is_file()})
    read = (source / "config.json", *parts, Path(__file__))  # another rule makes another copy
    key = hashlib.sha256(b"".join(path.read_bytes() for path in read)).hexdigest()[:12]
    folder = cache / f"small-{key}-{temperature:g}"
    if folder.exists():
        return folder
    draft = folder.with_name(f"{folder.name}.making-{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        # the tokenizer's words only: a trained model never says the others of its config
        config = _small(AutoConfig.from_pretrained(source), max(tokenizer.get_vocab().values()) + 1)
        torch.manual_seed(0)
        small = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        _let_it_end(small, tokenizer.eos_token_id, max(temperature, COOLEST))
        small.bfloat16().save_pretrained(draft)
        for path in parts:  # over the generation_config that save_pretrained writes
            shutil.copy(path, draft / path.name)
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def stand_in(cache: Path, temperature: float) -> Path:
    """A small Qwen2 whose words are bytes, so it reads any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config

    words = Tokenizer(models.BPE({sign: n for n, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "extra_special_tokens": ["<|im_start|>"]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, chat_template=CHATML, **special)
    tokenizer.save_pretrained(cache / "bytes")
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    Qwen2Config(architectures=["Qwen2ForCausalLM"], **ends).save_pretrained(cache / "bytes")
    return copy_of(str(cache / "bytes"), cache, temperature)


def about(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
    return (
        f"{config['model_type']}, {config['num_hidden_layers']} layers, {config['vocab_size']:,} words, {size:.0f} MB"
    )


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

    words, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    with torch.no_grad():
        words[:, 0] = SHARED
        draw = torch.randint(words.shape[0], (8, 32), generator=torch.Generator().manual_seed(0))
        hidden = model(draw, output_hidden_states=True).hidden_states[-1]
        logits = hidden @ head.T
        rest = temperature * ((logits / temperature).logsumexp(-1) + math.log(ENDS / (1 - ENDS)))
        head[end, 0] += ((rest - logits[..., end]) / hidden[..., 0]).median()
