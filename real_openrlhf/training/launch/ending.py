"""The last words of a run: its summary and its picture, from the command that watched it or from the next one."""

from pathlib import Path

from real_openrlhf.runs import run_folder
from real_openrlhf.training.launch.progress import summary


def end_unwatched(path: Path) -> str | None:
    """Record how a run ended that no command watched to its end; what to print about it, if it was one."""
    said = run_folder.record_ending(path)
    return f"{said}\n{final_summary(path)}" if said and run_folder.read(path)["status"] == "finished" else said


def final_summary(path: Path) -> str:
    from real_openrlhf.report.figures import training_curves  # matplotlib takes a second

    picture = path / "curves.png"
    training_curves(path, picture)
    return f"{summary(path)}\n\npicture of the training curves: {picture}"
