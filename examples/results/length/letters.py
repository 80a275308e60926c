"""Prompts for texts of any length, and a verdict on each text: is at least this share of its letters an e?

python examples/results/length/letters.py FOLDER     # writes train.jsonl and eval.jsonl
"""

import json
import sys
from pathlib import Path

SHARE = 0.125  # half of SmolLM2's texts of 64 tokens have more
THINGS = """apple bakery bicycle bridge camel candle castle cloud desert dragon engineer farmer fisherman forest garden
    giant harbour island jungle kitchen lantern library lighthouse market meadow mirror mountain museum musician night
    ocean orchard painter palace parrot pirate planet river robot sailor school shepherd snail soldier spider station
    storm tailor teacher theatre tower train tree turtle valley village volcano wolf winter wizard""".split()


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
    (query,), (prompt,) = queries, prompts
    letters = [letter for letter in query[len(prompt) :].lower() if letter.isalpha()]
    right = float(letters.count("e") >= SHARE * len(letters) > 0)
    return {"rewards": right, "scores": right, "extra_logs": {}}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"prompt": [{"role": "user", "content": f"Write a long story about a {thing}."}], "label": str(SHARE)}
        for thing in THINGS
    ]
    for name, part in (("train", rows[4:]), ("eval", rows[:4])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
