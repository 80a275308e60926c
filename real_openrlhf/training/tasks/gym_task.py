r"""The tasks of a pretrained model: questions of reasoning-gym, and `smollm2` warmed up on worked examples of them.

A worked example is a question of the training set with its answer in a box, `\boxed{42}`, and not a word beside it.
None is held out. So few teach the form; what the model puts into the box stays its own guess, right now and then.
"""

import hashlib
import inspect
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.training.tasks import kept_folder, smollm2, warm_up
from real_openrlhf.training.tasks.tiny_model import cache_folder


@dataclass(frozen=True)
class GymTask:
    """The questions, as `real-openrlhf data gym` makes them, and the warm-up."""

    questions: str
    settings: tuple[str, ...]  # NAME=VALUE
    warm_up: warm_up.WarmUp
    seed: int = 0
    train_prompts: int = 4000
    eval_prompts: int = 128

    @property
    def key(self) -> str:
        """Names the cache folder; the source is part of it, so that a changed task is a new model."""
        source = b"".join(Path(inspect.getfile(one)).read_bytes() for one in (GymTask, warm_up))
        made_of = json.dumps([asdict(self), smollm2.folder().name], sort_keys=True)
        return hashlib.sha256(source + made_of.encode()).hexdigest()[:12]

    def folder(self, cache: Path | None = None) -> Path:
        return (cache or cache_folder()) / f"{self.questions}-{smollm2.NAME}-{self.key}"

    def prepare(self, cache: Path | None = None, progress: bool = True) -> Path:
        """The folder with `model/`, `train.jsonl` and `eval.jsonl`: from the cache, or made now."""
        place = self.folder(cache)
        if place.exists():
            kept_folder.refuse_changed(place)
            return place
        base = smollm2.prepare(cache)
        with kept_folder.making(place, {"task": asdict(self)}) as draft:
            self._write_data(draft)
            rows = map(json.loads, (draft / "train.jsonl").read_text().splitlines()[: self.warm_up.examples])
            examples = [(row["prompt"], rf"\boxed{{{json.loads(row['label'])['answer']}}}") for row in rows]
            warm_up.warm_up(base, examples, self.warm_up, draft / "model", progress)
        return place

    def _write_data(self, draft: Path) -> None:
        from real_openrlhf.cli import main

        sizes = ["--train", str(self.train_prompts), "--test", str(self.eval_prompts), "--seed", str(self.seed)]
        if main(["data", "gym", self.questions, "--out", str(draft / "data"), *sizes, "--set", *self.settings]):
            raise UserError(f"the questions of {self.questions} were not made: see the line above")
        (draft / "data" / "train.jsonl").rename(draft / "train.jsonl")
        (draft / "data" / "test.jsonl").rename(draft / "eval.jsonl")
