"""What the trained models of this campaign answer, without sampling noise: a table of archive/README.md.

    python examples/results/smollm2/final_models.py comparison/smollm2/runs examples/results/smollm2

writes final_models.csv into the second folder.

pass@1 is the probability of the right name in a box, with or without a space before it, as the models answer: a mean
over the held-out questions. Other right answers are not counted, so it is a lower bound. pass@8 follows from it,
question by question. Greedy takes the likeliest token each time.
"""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from real_openrlhf.report.read_runs import Run, read_runs
from real_openrlhf.report.settings import tasks
from real_openrlhf.report.statistics import estimate
from real_openrlhf.report.table_forms import Table

FOUND = "final_models.csv"
FORMS = (r"\boxed{%s}", r"\boxed{ %s}")
NUMBERS = ("pass@1", "pass@8", "greedy")
UNTRAINED = ("as it comes", "after the warm-up")
BATCH = 32  # questions


def main(folder: Path, campaign: Path) -> None:
    runs, _ = read_runs([folder])
    base = Path(runs[0].flags["--actor.model_name_or_path"])
    questions = [json.loads(line) for line in (base.parent / "eval.jsonl").read_text().splitlines()]
    models = dict(zip(UNTRAINED, (base.parent / "untrained", base), strict=True))
    models |= {run.name: folder / run.name / "model" for run in runs}
    with (campaign / FOUND).open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["model", *NUMBERS])
        for name, model in models.items():
            rows.writerow([name, *(f"{number:.4f}" for number in measure(model, questions))])
            file.flush()


def measure(folder: Path, questions: Sequence[dict]) -> list[float]:
    import torch

    with torch.autocast("cpu", torch.bfloat16):  # as in training
        probability, greedy = each(folder, questions)
    return [float(one.mean()) for one in (probability, 1 - (1 - probability).clamp(min=0) ** 8, greedy)]


def each(folder: Path, questions: Sequence[dict]) -> tuple[Any, Any]:
    """Of each question the probability of its right answers, and whether the greedy answer is one of them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    probability, greedy = torch.zeros(len(questions)), torch.zeros(len(questions))
    for form in FORMS:
        for start in range(0, len(questions), BATCH):
            few = [tokens(tokenizer, form, one) for one in questions[start : start + BATCH]]
            for place, (chosen, is_likeliest) in enumerate(answers(model, few), start):
                probability[place] += chosen.double().sum().exp()
                greedy[place] += is_likeliest.all()
    return probability, greedy


def tokens(tokenizer: Any, form: str, question: dict) -> tuple[list[int], list[int]]:
    asked = tokenizer.apply_chat_template(question["prompt"], tokenize=False, add_generation_prompt=True)
    said = form % json.loads(question["label"])["answer"]
    before, after = (tokenizer(text, add_special_tokens=False).input_ids for text in (asked, said))
    return before, after


def answers(model: Any, few: Sequence[tuple[list[int], list[int]]]) -> Iterator[tuple]:
    """Of each answer the log-probabilities of its tokens, and which of them are the likeliest ones."""
    import torch

    rows = [torch.tensor(before + said) for before, said in few]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    with torch.no_grad():
        hidden = model.model(padded, attention_mask=mask).last_hidden_state.float()
        for (before, said), own in zip(few, hidden, strict=True):
            with torch.autocast("cpu", enabled=False):
                logits = model.lm_head(own[len(before) - 1 : len(before) + len(said) - 1])
            names = torch.tensor(said)
            yield logits.log_softmax(-1).gather(1, names[:, None]), logits.argmax(-1) == names


def table(runs: Sequence[Run], campaign: Path) -> Table:
    with (campaign / FOUND).open(newline="") as file:
        found = {row["model"]: row for row in csv.DictReader(file)}
    (task,) = tasks(runs)
    rows = [
        {"Model": name, **{one: f"{float(found[name][one]):.3f}" for one in NUMBERS}, "Runs": ""} for name in UNTRAINED
    ]
    for setting in task.settings:
        own = [found[run.name] for run in setting.counted if run.name in found]
        if not own:
            continue
        cells = {one: estimate([float(row[one]) for row in own]) for one in NUMBERS}
        rows.append({"Model": setting.label, **cells, "Runs": setting.seeds})
    notes = [
        "Means over the held-out questions, by the probability of the right answer. ± is one standard error over runs."
    ]
    return Table("final_models", "What the trained models answer", rows, notes)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
