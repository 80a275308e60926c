"""`model/README.md` of a run: describes the final weights for readers on a model hub."""

import math
import re
from pathlib import Path

from real_openrlhf.base.files import write_text
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.benchmarks import benchmark_scores
from real_openrlhf.report.read_runs import Run, read_run

OURS = "of real_openrlhf on OpenRLHF"
HUB_ID = re.compile(r"[\w-]+/[\w.-]+")
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


def write_card(folder: Path) -> Path | None:
    """Write the card of a finished run; None if the run has no final weights, or a card that we did not write."""
    path = folder / "model" / "README.md"
    if not path.parent.is_dir() or (path.exists() and OURS not in path.read_text(encoding="utf-8", errors="replace")):
        return None
    write_text(path, [card(read_run(folder))])
    return path


def card(run: Run) -> str:
    import jinja2

    flags, about = flags_of(run.meta), ALGORITHMS.get(run.algo)
    base, data, held_out = (
        Path(str(flags.get(flag, "")))
        for flag in ("--actor.model_name_or_path", "--data.prompt_dataset", "--eval.dataset")
    )
    hub_id = str(base) if HUB_ID.fullmatch(str(base)) else None
    rows = {
        "base model": hub_id or f"{base.parent.name if base.name == 'model' else base.name}, a local folder",
        "data": data.name,
        "method": f"`{run.algo}`: {about.about}" if about else f"`{run.algo}`",
        **{name: str(flags[flag]).rpartition("/")[2] for flag, name in SETTINGS.items() if flag in flags},
        "steps": run.last_step,
        "seed": run.seed,
        "recipe": f"`{run.meta.get('recipe')}`",
    }
    tree = f"tree `{run.meta['tree']}`" if run.meta.get("tree") else run.meta.get("no_tree") or "tree unknown"
    rows["code"] = f"real_openrlhf {run.meta.get('code_version')}, {tree}"
    # standard errors, if the file of problems still exists
    counted = held_out.suffix == ".jsonl" and held_out.is_file()
    problems = sum(1 for line in held_out.read_bytes().splitlines() if line.strip()) if counted else 0

    def said(share: float) -> str:
        return f"{share:.3f}" + (f" ± {math.sqrt(share * (1 - share) / problems):.3f}" if problems else "")

    curves = {name: run.logged["eval"][f"eval_{name}_pass1"].dropna() for name in sorted(run.sets)}
    template = Path(__file__).with_name("card.md.j2").read_text(encoding="utf-8")
    return jinja2.Template(template, trim_blocks=True).render(
        run=run,
        ours=OURS,
        hub_id=hub_id,
        rows=rows,
        problems=problems,
        validation=[(name, said(curve.iloc[0]), said(curve.iloc[-1])) for name, curve in curves.items()],
        scores=[(name, f"{one.mean:.3f} ± {one.se:.3f}") for name, one in benchmark_scores(run).items()],
    )
