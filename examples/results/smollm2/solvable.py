"""Training questions that the model after its warm-up answers right now and then, in the order in which they come.

    python examples/results/smollm2/solvable.py FILE.jsonl TASK_FOLDER WANTED

Now and then: with a probability of 0.2 to 0.8.
"""

import json
import sys
from pathlib import Path

from final_models import each

TAUGHT = 96  # questions at most; they taught the form of an answer
AT_ONCE = 160  # questions
LOW, HIGH = 0.2, 0.8


def main(file: Path, task: Path, wanted: int) -> None:
    lines = (task / "train.jsonl").read_text().splitlines()
    found: list[str] = []
    looked_at = TAUGHT
    while len(found) < wanted and looked_at < len(lines):
        few = lines[looked_at : looked_at + AT_ONCE]
        probability, _ = each(task / "model", [json.loads(line) for line in few])
        found += [line for line, one in zip(few, probability.tolist(), strict=True) if LOW <= one <= HIGH]
        looked_at += len(few)
    file.write_text("".join(f"{line}\n" for line in found[:wanted]))
    print(f"{len(found)} of {looked_at - TAUGHT} are between {LOW} and {HIGH}, the first {wanted} are in {file}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(__doc__)
