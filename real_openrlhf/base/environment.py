"""The Python environment of this process, and the caches below HOME."""

import contextlib
import os
import sys
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import lock_shared

_environment: int | None = None  # held until this process ends


def writable(folder: Path | str) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def find_home() -> None:
    """Triton, Hugging Face, vLLM and we keep caches below HOME: where it cannot be written, another one serves."""
    cache = Path(os.path.expanduser("~"), ".cache")
    with contextlib.suppress(OSError):
        if os.environ.get("HOME") != "":  # as some containers have it: that would be the root folder
            cache.mkdir(exist_ok=True)
            if writable(cache):
                return
    if place := next((place for place in (sys.prefix, os.getcwd()) if writable(place)), None):
        if (models := cache / "huggingface" / "hub").is_dir():
            os.environ.setdefault("HF_HUB_CACHE", str(models))  # they can be read
        os.environ["HOME"] = f"{place}/.real-cache"
        Path(place, ".real-cache", ".cache").mkdir(parents=True, exist_ok=True)
        print(
            f"HOME ({cache.parent}) is empty or cannot be written: caches are in {place}/.real-cache", file=sys.stderr
        )


def hold_environment() -> None:
    """Let nobody set this Python environment up anew while this process lives (examples/scripts/setup_env.sh)."""
    global _environment
    try:
        _environment = _environment or os.open(Path(sys.prefix) / ".in_use", os.O_RDONLY)
        free = lock_shared(_environment)
    except OSError:
        return  # that script did not make it, or it cannot be locked
    if not free:
        raise UserError(f"setup_env.sh is changing {sys.prefix}. Wait for its end.")
