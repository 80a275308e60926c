"""Could the loss have mattered? Bounds on z from anybody's training log; see z_from_logs/PREDICTIONS.md.

    python benchmarks/z_from_logs.py LOG [LOG ...]      # a row per log, as CSV
    python benchmarks/z_from_logs.py --figure           # z_from_logs/z.png from z_from_logs/logs.csv

Reads the console or the JSON of verl, TRL, ms-swift, OpenRLHF and this project: the KL to the old policy of each step,
or, where none is logged, the share of clipped tokens, from which a normal log-ratio has a sigma (a guess). `z` is the
measured one, which only this project logs.
"""

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist, fmean, stdev

HERE, TAU, CLIP, WORST = Path(__file__).resolve().parent / "z_from_logs", 0.5, 0.2, 10
KL = ("actor/ppo_kl", "ppo_kl", "train/ppo_kl")
LENGTH = ("response_length/mean", "rollout/response_length_mean", "completions/mean_length", "response_length")
CLIPPED = ("clip_ratio/region_mean", "actor/pg_clipfrac", "ppo_clip_ratio", "clip_ratio")
NUMBER = r"['\"]?(?:np\.float64\()?(-?\d[\d.]*(?:e[+-]?\d+)?)"
PAIR = re.compile(rf"['\"]?([A-Za-z][\w/]*)['\"]?\s*:\s*{NUMBER}")
COLUMNS = "log trainer size steps updates length kl digits clipped together independent "
COLUMNS += "worst_together worst_independent z"


def lines(path: Path) -> Iterator[dict[str, str]]:
    """The numbers of each logged step, as they are printed."""
    text = path.read_text(errors="replace")
    try:
        todo = [json.loads(text, parse_float=str, parse_int=str)]
    except ValueError:
        yield from (dict(PAIR.findall(line)) for line in text.splitlines())
        return
    while todo:
        value = todo.pop(0)
        if isinstance(value, dict):
            yield {key: number for key, number in value.items() if isinstance(number, str)}
        todo += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []


def column(steps: list[dict[str, str]], names: tuple[str, ...]) -> list[str]:
    for name in names:
        values = [step[name] for step in steps if name in step]
        if values:
            return values
    return []


def updates(text: str) -> float | None:
    """Of verl's configuration: optimizer steps per rollout batch."""
    found = [re.findall(rf"\b{key}['\"]?\s*[:=]\s*(\d+)", text) for key in ("train_batch_size", "ppo_mini_batch_size")]
    epochs = re.findall(r"ppo_epochs['\"]?\s*[:=]\s*(\d+)", text) or ["1"]
    return int(found[0][-1]) / int(found[1][0]) * int(epochs[0]) if all(found) else None


def bounds(kl: float, length: float) -> tuple[float, float]:
    together = (2 * max(kl, 0.0)) ** 0.5 / TAU
    return together, together / length**0.5


def read(path: Path) -> dict[str, object]:
    steps = [line for line in lines(path) if line.keys() & {*KL, *CLIPPED} and line.keys() & {*LENGTH}]
    printed, lengths, clipped = (column(steps, names) for names in (KL, LENGTH, CLIPPED))
    if not lengths:
        sys.exit(f"{path}: no step with a response length and a KL to the old policy or a clipped share")
    share, length = fmean(map(float, clipped)) if clipped else None, fmean(map(float, lengths))
    digits = max((len(value.partition(".")[2].partition("e")[0]) for value in printed), default=0)
    if printed:
        kls = [float(value) for value in printed]
        # k1 has either sign: a mean near 0 is bounded by half of the last digit, or by two standard errors
        least = 0.5 * 10.0**-digits if 1 < digits < 5 else 2 * stdev(kls) / len(kls) ** 0.5 if len(kls) > 1 else 0.0
    else:  # half of the tokens outside the range have the sign that is clipped
        kls = [(CLIP / NormalDist().inv_cdf(1 - float(s))) ** 2 / 2 if float(s) > 0 else 0.0 for s in clipped]
        least = 0.0
    mean = max(fmean(kls), least)
    worst = max(fmean(kls[i : i + WORST]) for i in range(max(1, len(kls) - WORST + 1)))
    size = re.search(r"(\d[\d.]*)[bB](?![a-z])", path.name)
    spread = column(steps, ("real/score_std",))
    verl = any("actor/ppo_kl" in step for step in steps)
    trainer = "this project" if spread else "verl" if verl else "OpenRLHF" if printed else "TRL"
    numbers = [*bounds(mean, length), *bounds(max(worst, mean), length)]
    measured = fmean(map(float, spread)) / TAU if spread else None
    row = [path.name, trainer, size and size[1], len(steps), updates(path.read_text(errors="replace")), length, mean]
    row += [digits or None, share, *numbers, measured]
    shown = (f"{value:.3g}" if isinstance(value, float) else value for value in row)
    return dict(zip(COLUMNS.split(), shown, strict=True))


def figure() -> None:
    import matplotlib.pyplot as plt

    rows = [row for row in csv.DictReader((HERE / "logs.csv").open()) if row["size"]]
    rows = [row for row in rows if row["kind"].startswith(("whole", "part"))]
    _, axes = plt.subplots(figsize=(7, 4))
    for bound, color in (("together", "C0"), ("independent", "C1")):
        for row in rows:  # hollow: what three printed decimals allow, the KL was below them
            fill = {"markerfacecolor": "white"} if row["digits"] == "3" else {}
            label = None if any(line.get_label() == bound for line in axes.lines) else bound
            axes.plot(float(row["size"]), float(row[bound]), "o", color=color, label=label, **fill)
    axes.axhspan(0.1, 1, color="C3", alpha=0.1)
    axes.axhline(0.03, color="0.5", linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="parameters, billions", ylabel="z (τ 0.5)", ylim=(1e-4, 1))
    axes.set_xticks([0.5, 1.5, 3, 7], ["0.5", "1.5", "3", "7"], minor=False)
    axes.set_title("Above 0.1 REAL's weights act; below 0.03 (dotted) they are constants", fontsize=10)
    axes.legend(title="a response's tokens move")
    plt.savefig(HERE / "z.png", dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    if sys.argv[1:] == ["--figure"]:
        figure()
    elif sys.argv[1:]:
        table = csv.DictWriter(sys.stdout, COLUMNS.split(), lineterminator="\n")
        table.writeheader()
        table.writerows(map(read, map(Path, sys.argv[1:])))
    else:
        sys.exit(__doc__)
