"""The home folder, in which libraries keep caches: where they go if it cannot be written."""

import os
from pathlib import Path

# Variable -> folder. HF_HOME stays: its models and its token can be read.
CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "HF_DATASETS_CACHE": "datasets",
    "HF_MODULES_CACHE": "modules",
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm",
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
}


def is_writable() -> bool:
    home = Path(os.path.expanduser("~"))
    there = next(path for path in (home, *home.parents) if os.path.lexists(path))
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def elsewhere(cache: Path) -> dict[str, str]:
    """Variables that move the libraries' caches below `cache`, if the home folder cannot be written."""
    return {} if is_writable() else {name: str(cache / "libraries" / folder) for name, folder in CACHES.items()}
