"""Training questions that the model after its warm-up answers right 20 to 80 % of the time, for the sanity test.

python examples/results/smollm2/solvable.py FILE.jsonl
"""

import json
import sys
from pathlib import Path

from final_models import each

from real_openrlhf.training.tasks import tasks

LOOKED_AT = slice(96, 256)  # the first 96 taught the form of an answer
WANTED = 32
LOW, HIGH = 0.2, 0.8


def main(file: Path) -> None:
    task = tasks.prepare(tasks.default("needle_haystack"))
    lines = (task / "train.jsonl").read_text().splitlines()[LOOKED_AT]
    probability, _ = each(task / "model", [json.loads(line) for line in lines])
    found = [line for line, one in zip(lines, probability.tolist(), strict=True) if LOW <= one <= HIGH]
    file.write_text("".join(f"{line}\n" for line in found[:WANTED]))
    print(f"{len(found)} of {len(lines)} are between {LOW} and {HIGH}, the first {WANTED} are in {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
