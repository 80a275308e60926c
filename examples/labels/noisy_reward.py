"""Verdicts with errors, to see how a method bears them: a reward file, and a command that writes the data for it.

    python examples/labels/noisy_reward.py reverse noisy.jsonl --right-to-wrong 0.2
    real-openrlhf train --data noisy.jsonl --reward.remote_url examples/labels/noisy_reward.py

The verifier of math_reward.py grades; then a share of its right verdicts becomes wrong, or of its wrong ones right.
`--wrong-to-right 1 --kind '0}'` calls all wrong responses right that match the pattern: an error that they share.
A run grades held-out responses by the same file. The label of a training row says how many verdicts to flip, so
held-out questions with plain labels keep theirs. A hash decides, not `random`: an answer to a prompt has one verdict,
however often it comes, also after a resume.
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

SHARES = ("right_to_wrong", "wrong_to_right")


def coin(text: str) -> float:
    """A number from 0 to 1, the same each time for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
    from real_openrlhf.rewards import math_reward

    (query,), (label,) = queries, labels
    if not label.startswith("{"):
        return math_reward.reward_func(queries, prompts, labels)
    row = json.loads(label)
    result = math_reward.reward_func(queries, prompts, [row["gold"]])
    verdict = result["scores"]
    shared = verdict == 1 or re.search(row.get("kind", ""), query.removeprefix(prompts[0]))
    if verdict in (0.0, 1.0) and shared and coin(query) < row[SHARES[0] if verdict else SHARES[1]]:
        result = {**result, "scores": 1 - verdict, "rewards": 1 - verdict}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a JSONL file of questions for math_reward.py, or a tiny task by its name")
    parser.add_argument("out", type=Path)
    for share in SHARES:
        parser.add_argument("--" + share.replace("_", "-"), type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--kind", type=re.compile, default="", metavar="REGEX", help="of wrong responses only these")
    given = parser.parse_args()

    from real_openrlhf.training import tiny_task

    data = tiny_task.unpack() / "train.jsonl" if given.data == tiny_task.NAME else Path(given.data)
    errors = {share: getattr(given, share) for share in SHARES} | {"kind": given.kind.pattern}
    rows = map(json.loads, data.read_text().splitlines())
    noisy = ({**row, "label": json.dumps({"gold": row["label"], **errors})} for row in rows)
    given.out.write_text("".join(json.dumps(row) + "\n" for row in noisy))


if __name__ == "__main__":
    main()
