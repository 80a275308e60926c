"""Where two graders differ on your responses, the most frequent forms of answers first.

real-openrlhf grade --input in.jsonl --output ours.jsonl
real-openrlhf grade --input in.jsonl --output theirs.jsonl --grader math_verify
python benchmarks/graders_differ.py ours.jsonl theirs.jsonl
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from same_answer.extract import boxed_answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graded", type=Path, nargs=2, metavar="FILE.jsonl")
    files = [
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in parser.parse_args().graded
    ]
    judged, forms = 0, Counter()
    for one, other in zip(*files, strict=True):
        scores = one["score"], other["score"]
        judged += None not in scores
        if None not in scores and scores[0] != scores[1]:
            answer = boxed_answer(one["response"]) or one["response"][-60:].strip()
            forms[f"{_form(str(one['label']))}  <-  {_form(answer)}  {scores[0]} {scores[1]}"] += 1
    print(f"{forms.total()} of {judged} responses differ, in {len(forms)} forms. gold  <-  answer, 0 for any number:")
    for form, count in forms.most_common(20):
        print(f"{count:6}  {form}")


def _form(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return re.sub(r"\d+", "0", printable)[:60]


if __name__ == "__main__":
    main()
