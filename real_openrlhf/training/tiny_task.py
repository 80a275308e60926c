"""Model and data of the recipe `cpu`, a tiny Qwen2 that reverses numbers badly. examples/tiny_task.py made them."""

import os
import shutil
from pathlib import Path

from real_openrlhf.base.errors import UserError

NAME, TRAIN_PROMPTS = "reverse", 8000
ARCHIVE = Path(__file__).parent / "made" / "reverse-64547c49f968.tar.xz"  # model/, train.jsonl, eval.jsonl


def cache_folder() -> Path:
    return Path(os.environ.get("REAL_CACHE", Path.home() / ".cache" / "real_openrlhf"))


def task_folder() -> Path:
    return cache_folder() / ARCHIVE.name.removesuffix(".tar.xz")


def unpack() -> Path:
    """The folder with `model/`, `train.jsonl` and `eval.jsonl`, whole or absent."""
    folder = task_folder()
    if folder.exists():
        return folder
    draft = folder.with_name(f"{folder.name}.making-{os.getpid()}")
    try:
        shutil.unpack_archive(ARCHIVE, draft)  # ours: no filter, which Python 3.11.3 does not know
        draft.rename(folder)
    except OSError as error:
        if not folder.exists():  # another process may have been faster
            raise UserError(
                f"cannot write the tiny model to {folder.parent}: {error}. Set REAL_CACHE to a folder with space"
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
