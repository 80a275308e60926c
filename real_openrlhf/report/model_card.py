"""`model/README.md` of a run: describes the final weights for readers on a model hub."""

import math
import re
from collections.abc import Iterable
from pathlib import Path

from real_openrlhf.base.files import write_text
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.report.benchmarks import benchmark_scores
from real_openrlhf.report.read_runs import PASS1, Run, read_run

OURS = "of real_openrlhf on OpenRLHF"
HUB_ID = re.compile(r"[\w-]+/[\w.-]+")
MODEL, VALIDATION = "--actor.model_name_or_path", "--eval.dataset"
# Flags that the card lists; a flag that the run lacks is left out.
SETTINGS = {
    "--algo.real.objective": "objective",
    "--algo.real.tau": "tau",
    "--algo.real.uniform_groups": "all-right and all-wrong groups",
    "--algo.kl.init_coef": "KL coefficient",
    "--actor.adam.lr": "learning rate",
    "--actor.max_norm": "gradient norm, at most",
    "--rollout.batch_size": "prompts a step",
    "--rollout.n_samples_per_prompt": "answers a prompt",
    "--train.batch_size": "answers an update",
    "--rollout.max_new_tokens": "tokens an answer, at most",
    "--rollout.temperature": "temperature",
    "--ds.lora.rank": "LoRA rank",
}
CITATION = """```bibtex
@article{zhai2026rewards,
  title   = {Rewards as Labels: Revisiting {RLVR} from a Classification Perspective},
  author  = {Zhai, Zepeng and Chen, Meilin and Zhao, Jiaxuan and Qian, Junlang and Shen, Lei and Lu, Yuan},
  journal = {arXiv:2602.05630},
  year    = {2026}
}
```"""


def write_card(folder: Path) -> Path | None:
    """Write the card of a finished run; None if the run has no final weights, or a card that we did not write."""
    path = folder / "model" / "README.md"
    if not path.parent.is_dir() or (path.exists() and OURS not in path.read_text(encoding="utf-8", errors="replace")):
        return None
    write_text(path, [card(read_run(folder))])
    return path


def card(run: Run) -> str:
    flags, about = run.meta.get("flags", {}), ALGORITHMS.get(run.algo)
    base, data = str(flags.get(MODEL, "")), Path(str(flags.get("--data.prompt_dataset", ""))).name
    is_public = not Path(base).is_absolute() and HUB_ID.fullmatch(base)
    head = [f"base_model: {base}"] if is_public else []
    head += ["library_name: transformers", "pipeline_tag: text-generation"]
    head += [f"tags: [reinforcement-learning, rewards-as-labels, openrlhf, {run.algo}]"]
    place = Path(base)
    named = base if is_public else f"{place.parent.name if place.name == 'model' else place.name}, a local folder"
    rows = {"base model": named, "data": data, "method": f"`{run.algo}`: {about.about}" if about else f"`{run.algo}`"}
    rows |= {name: str(flags[flag]).rpartition("/")[2] for flag, name in SETTINGS.items() if flag in flags}
    rows |= {"steps": str(run.last_step), "seed": str(run.seed), "recipe": f"`{run.meta.get('recipe')}`"}
    tree = f"tree `{run.meta['tree']}`" if run.meta.get("tree") else run.meta.get("no_tree") or "tree unknown"
    rows["code"] = f"real_openrlhf {run.meta.get('code_version')}, {tree}"
    parts = [
        "---\n" + "\n".join(head) + "\n---",
        f"# {run.name}",
        f"Trained by reinforcement learning with verifiable rewards, with `{run.algo}` {OURS}.",
        _table(("", ""), rows.items()),
        "## Evaluation",
        *_validation(run, str(flags.get(VALIDATION, ""))),
        *_benchmarks(run),
        "## Citation",
        CITATION,
    ]
    return "\n\n".join(parts)


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _validation(run: Run, path: str) -> list[str]:
    """pass@1 of the first and the last evaluation; with standard errors if the file of problems still exists."""
    file, logged = Path(path), run.logged["eval"]
    counted = file.suffix == ".jsonl" and file.is_file()
    count = sum(1 for line in file.read_bytes().splitlines() if line.strip()) if counted else 0

    def said(share: float) -> str:
        return f"{share:.3f}" + (f" ± {math.sqrt(share * (1 - share) / count):.3f}" if count else "")

    found = [(match[1], logged[name].dropna()) for name in logged if (match := PASS1.fullmatch(name))]
    rows = [(name, said(one.iloc[0]), said(one.iloc[-1])) for name, one in found]
    if not rows:
        return ["This run made no evaluation."]
    note = f"Held-out pass@1, {count} problems; ± is at most one standard error over problems." if count else ""
    return [_table(("held-out set", "first", "last"), rows), *([note] if note else [])]


def _benchmarks(run: Run) -> list[str]:
    rows = [(name, f"{one.mean:.3f} ± {one.se:.3f}") for name, one in benchmark_scores(run).items()]
    note = "By `real-openrlhf eval`; ± is one standard error over problems."
    return [_table(("benchmark", "pass@1"), rows), note] if rows else []
