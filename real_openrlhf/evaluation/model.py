"""The model under evaluation: where it is, which one it is, how much it can read."""

import hashlib
import json
from pathlib import Path

from real_openrlhf.errors import UserError, first_line
from real_openrlhf.evaluation.tasks import Task
from real_openrlhf.files import sha256
from real_openrlhf.training.tasks import smollm2

SUFFIXES = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")  # weights, configuration, tokenizer


def find_model(name: str) -> Path:
    """Its folder, made or downloaded if it is a model by name or on the hub."""
    folder = smollm2.prepare() if name == smollm2.NAME else Path(name)
    if not folder.exists():
        from huggingface_hub import snapshot_download

        try:
            return Path(snapshot_download(name, allow_patterns=[f"*{suffix}" for suffix in SUFFIXES]))
        except Exception as error:  # the hub's client raises a dozen unrelated types for one missing model
            raise UserError(
                f"no such model: {name} is no folder here and cannot be downloaded ({first_line(error)}). Check the "
                "name and the network, or give a folder"
            ) from error
    if not (folder / "config.json").exists():
        raise UserError(f"{folder} is not a model: it has no config.json. Give a Hugging Face model folder")
    return folder


def fingerprint(model: Path) -> str:
    """One hash over every file that can change an answer; reading the weights also warms the disk's cache for vLLM."""
    files = sorted(file for file in model.iterdir() if file.suffix in SUFFIXES)
    return hashlib.sha256("".join(f"{file.name} {sha256(file)}\n" for file in files).encode()).hexdigest()


def context_length(model: Path, tasks: list[Task], max_new_tokens: int) -> int:
    """Just enough for the longest prompt and its response; refused where the model was not made for that many."""
    longest = max(len(task.tokens) for task in tasks)
    limit = json.loads((model / "config.json").read_text()).get("max_position_embeddings")
    if limit and longest + max_new_tokens > limit:
        raise UserError(
            f"the longest prompt has {longest} tokens and --max-new-tokens is {max_new_tokens}, but the model's "
            f"context is {limit}. Use --max-new-tokens {limit - longest} or less"
        )
    return longest + max_new_tokens
