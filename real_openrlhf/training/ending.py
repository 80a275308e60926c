"""The end of a run: its summary and its picture, made by the command that watched it or by whoever comes next."""

import contextlib
from pathlib import Path

from real_openrlhf.errors import UserError
from real_openrlhf.training import run_folder
from real_openrlhf.training.progress import summary


def settle(path: Path) -> str | None:
    """Write down how a run ended that nobody watched to its end; what to tell of it, if it was one."""
    with contextlib.suppress(UserError, OSError):  # another command is faster, or the folder is for reading only
        record = run_folder.read(path)
        if record.pop("unseen", False):
            with run_folder.only_one(path):
                run_folder.write(path, record)
            if record["status"] == "finished":
                return f"{path} finished while nobody watched\n{told(path)}"
            return f"{path} failed: {record['reason']}"
    return None


def told(path: Path) -> str:
    """What a finished run says last."""
    return f"{summary(path)}\n\npicture of the training curves: {picture(path)}"


def picture(path: Path) -> Path:
    from real_openrlhf.report.figures import training_curves

    place = path / "curves.png"
    training_curves(path, place)
    return place
