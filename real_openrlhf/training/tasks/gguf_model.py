"""`--model FILE.gguf`: a GGUF file as a Hugging Face model in bf16, made once and kept in the cache."""

import functools
import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import sha256, write_json
from real_openrlhf.training.tasks import kept_folder
from real_openrlhf.training.tasks.tiny_model import cache_folder

CONVERSION = 1  # version of `convert`, and part of the folder's name
ORIGIN = "origin.json"
NEW_TOKENS = 8  # that the saved model must write as the file's model does


def is_one(model: str) -> bool:
    return model.endswith(".gguf") and Path(model).expanduser().is_file()


def folder(file: Path, cache: Path | None = None) -> Path:
    return (cache or cache_folder()) / f"{file.stem}-{_hash_of(file)[:12]}-{CONVERSION}"


def _hash_of(file: Path) -> str:
    about = file.stat()
    return _read_hash(file, about.st_size, about.st_mtime_ns)


@functools.cache
def _read_hash(file: Path, size: int, changed: int) -> str:
    """The file's hash. Gigabytes take seconds, so a process hashes each version (size, time of change) once."""
    return sha256(file)


def prepare(file: Path, cache: Path | None = None) -> Path:
    """The model's folder: from the cache if nothing in it was changed, or made now."""
    place = folder(file, cache)
    if place.exists():
        kept_folder.refuse_changed(place)
        return place
    print(f"{file.name}: writing it out in bf16, once, to {place}", file=sys.stderr, flush=True)
    with kept_folder.making(place, {"from": file.name}) as draft:
        used = {name: version(name) for name in ("torch", "transformers")}
        write_json(draft / ORIGIN, {"file": file.name, "file_sha256": _hash_of(file), "converted_with": used})
        convert(file, draft)
    return place


def problem(file: Path) -> str | None:
    """The defect of a file that its first bytes show; a run and an evaluation read the rest of it."""
    with file.open("rb") as content:
        return None if content.read(4) == b"GGUF" else f"model {file} is not a GGUF file. Download it again."


def require_gguf(name: str) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            f"{name} is read with gguf, which is not installed. Do `bash examples/scripts/setup_env.sh cpu`, "
            "or `pip install gguf`"
        )


def convert(file: Path, place: Path) -> None:
    """Read the file with transformers, set its end token, save the model in bf16 and compare it with the file."""
    require_gguf(file.name)
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        about = GGUFReader(file)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    except Exception as error:  # transformers raises a dozen types for a wrong file
        raise UserError(
            f"model {file} cannot be read by transformers ({type(error).__name__}: {first_line(error)}). Take a GGUF "
            "file of a Llama, Qwen2 or Gemma model, or the model as a Hugging Face folder"
        ) from error

    def said(name: str) -> Any:
        field = about.get_field(f"tokenizer.{name}")
        return field and field.contents()

    words, end = said("ggml.tokens") or [], said("ggml.eos_token_id")
    if end is None:
        raise UserError(f"model {file} does not say which token ends an answer. Take another file of this model")
    if tokenizer.convert_ids_to_tokens(list(range(len(words)))) != words:
        raise UserError(f"model {file}: transformers read other tokens than the file has. Take a Hugging Face folder")
    tokenizer.eos_token = tokenizer.pad_token = words[end]  # the file's pad token may begin a message
    tokenizer.init_kwargs.pop("clean_up_tokenization_spaces", None)  # it would take spaces out of decoded text
    for config in (model.config, model.generation_config):
        config.eos_token_id = config.pad_token_id = end
    model.to(torch.bfloat16).save_pretrained(place)
    tokenizer.save_pretrained(place)
    _compare(model, tokenizer, place, said("chat_template"))


def _compare(model: Any, tokenizer: Any, place: Path, template: str | None) -> None:
    """Refuse a saved folder whose greedy text, tokens or chat template differ from those of the file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = "What is 12 + 345?\n"
    saved = AutoTokenizer.from_pretrained(place)
    tokens = saved(text, return_tensors="pt").input_ids
    again = AutoModelForCausalLM.from_pretrained(place, dtype=torch.bfloat16)
    answers = [one.generate(tokens, max_new_tokens=NEW_TOKENS, do_sample=False).tolist() for one in (model, again)]
    same = saved(text).input_ids == tokenizer(text).input_ids and saved.chat_template == template
    if answers[0] != answers[1] or not same:
        raise UserError(
            f"the model made from {place.name} writes other text than the file. Use a Hugging Face folder of it"
        )
