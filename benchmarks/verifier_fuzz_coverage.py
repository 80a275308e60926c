"""What the verifier does before algebra, fuzzed with coverage feedback. Needs `pip install atheris` (Linux).

    python benchmarks/verifier_fuzz_coverage.py -max_total_time=600 [-timeout=2] [CORPUS_FOLDER]

The input is a gold, a zero byte and a response. An exception, or more than the timeout on one input, ends the run with
the input in a file. The flags are libFuzzer's.
"""

import sys

import atheris

with atheris.instrument_imports(include=["real_openrlhf.rewards.verifier"]):
    from real_openrlhf.rewards.verifier import guard, shape, value
    from real_openrlhf.rewards.verifier.extract import after_thinking, boxed_answer, golds_of
    from real_openrlhf.rewards.verifier.text import normalise


def one(data: bytes) -> None:
    label, _, response = data.decode("utf-8", "surrogateescape").partition("\0")
    text = after_thinking(response, "optional") or ""
    for answer in (boxed_answer(text), response):
        for gold in golds_of(label):
            if (
                answer
                and max(len(gold), len(answer)) <= guard.MAX_LENGTH
                and not any(map(guard.too_deep, (gold, answer)))
            ):
                compare(normalise(gold), normalise(answer))


def compare(gold: str, answer: str) -> None:
    for one, other in ((gold, answer), (answer, gold)):
        try:
            shape.same(one, other)
        except value.Undecided:
            pass


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
