r"""What reward functions do with 41 answers that hung or silenced one: a row per library and place, as Markdown.

    python same_answer/benchmarks/hang.py FOLDER [--libraries trl ...] [--places main thread] [--inputs NAME ...]

FOLDER gets an environment with the releases below, and rows.jsonl: what is there is not asked again. Each reward file
is the wheel's own, unchanged; SHELL stands for what it imports of its package. An input has 40 s; then an easy
question is asked, to see whether the library still answers. Then a process that was slow or wrong is replaced. A plain
Ray actor calls its methods in its main thread, a threaded or async one in a thread.
"""

import argparse
import datetime
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

PINS = ("math-verify==0.9.0", "latex2sympy2_extended==1.11.0", "sympy==1.14.0")
RELEASES = {"trl": "1.16.0", "verl": "0.9.1", "areal": "1.0.4", "verifiers": "0.4.0"}
FILES = ("trl/rewards/accuracy_rewards.py", "verl/utils/reward_score/math_verify.py", "areal/reward/__init__.py",
         "verifiers/v1/utils/score.py")  # fmt: skip
SHELL = {
    "trl/import_utils.py": "def is_math_verify_available(): return True",
    "areal/utils/logging.py": "from logging import *",
    "verifiers/v1/errors.py": "class SandboxError(Exception): pass",
}
LIBRARIES, PLACES = ("math-verify", *RELEASES, "same_answer"), ("main", "thread")
CAP, MEMORY, EASY_CAP = 40.0, 3 << 30, {"verl": 35.0}  # seconds; bytes a process; seconds, where not 10


def box(answer: str) -> str:
    return f"Therefore \\boxed{{{answer}}}"


def matrix(entry: str) -> str:
    rows = [[entry.replace("i", str(i)).replace("j", str(j)) for j in range(3, 10)] for i in range(2, 9)]
    return r"\begin{pmatrix}" + r"\\".join(map("&".join, rows)) + r"\end{pmatrix}"


FIVES = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}"
TOWER = r"10^{\left(5^{5^{5^{5^{5}}} \cdot \log_{10}(5)} - 4\right)}"
SERIES = "+".join(["1", *(f"x^{{{k}}}" for k in range(1, 800))])
ANYA = "9. Anya needs to climb the height of one floor; while Vanya needs to climb the height of five floors"
# name, where it was reported, response, gold, is it correct? None: the gold is prose
INPUTS = [
    ("tower of fives", "Math-Verify 65", box(FIVES), "7", 0),
    ("tower of fives, gold the same", "Math-Verify 65", box(FIVES), FIVES, 1),
    ("Chinese and a brace", "Math-Verify 65", box("人权 国 {1,1-3-10鼓励不停);5个_GENERAL2全校。 _H1"), "92.58", 0),
    ("ten to a tower", "Math-Verify 59", box(r"10^{(5^{5^{5^{5^{5}}} \cdot \log_{10}(5)} - 4)}"), "7", 0),
    ("the same in its text", "sympy 28112", f"By \\( 5^{{5^{{5^5}}}} \\):\n\\[\n\\boxed{{{TOWER}}}\n\\]<eos>", "7", 0),
    ("the same, gold the same", "sympy 28112", box(TOWER), TOWER, 1),
    ("63/400", "Math-Verify 22", box(r"\frac{63}{400}"), r"\frac{63}{400}", 1),
    ("7.41 %", "Math-Verify 50", box(r"7.41\%"), r"7.41\%", 1),
    ("one third", "TRL 5281", box(r"\frac{1}{3}"), r"\frac{1}{3}", 1),
    ("any MATH row", "verl 5635", box("42"), "42", 1),
    ("series, 800 terms", "NeMo Gym 1354", box(rf"\frac{{x^{{800}}-1}}{{x-1}}-({SERIES})"), "0", 1),
    ("24! x 24!", "sympy 27411", box(r"24! \times 24!"), "(24!)^2", 1),
    ("4 to a huge fraction", "sympy 21762", box(rf"4^{{\frac{{{'1' * 33}}}{{{'2' * 13}}}}}"), "7", 0),
    ("root of a root", "sympy 24146", box(r"(\frac{25\cdot3^{1/3}}{4})^{1/4}"), r"\sqrt[4]{\frac{25\sqrt[3]3}4}", 1),
    ("10.0 to 10.0 to 10.0", "sympy 21579", box("10.0^{10.0^{10.0}}"), "7", 0),
    ("10**10**8", "smolagents 2551", box("10^{10^{8}}"), "7", 0),
    ("gold is prose", "open-r1 420", box("5"), ANYA, None),
    ("tower of nines", "own", box("9^{9^{9^{9}}}"), "7", 0),
    ("10^10^10, gold spelled out", "own", box("10^{10^{10}}"), "10^{10000000000}", 1),
    ("factorial of 10^9", "own", box("(10^{9})!"), "7", 0),
    ("huge binomial", "own", box(r"\binom{10^9}{5\cdot10^8}"), "7", 0),
    ("root to a tower", "own", box(r"\sqrt{2}^{9^{9^{9}}}"), "7", 0),
    ("sine of a tower", "own", box(r"\sin(10^{10^{10}})"), "7", 0),
    ("3,000 brackets", "own", box("(" * 3000 + "7" + ")" * 3000), "7", 1),
    ("200 fractions", "own", box(r"\frac{1}{1+" * 200 + "1" + "}" * 200), "7", 0),
    ("100 kB of digits", "own", box("7" * 100_000), "7", 0),
    ("1,200 digits, gold with commas", "own", box("7" * 1200), ",".join(["777"] * 400), 1),
    ("7x7 matrix of radicals", "own", box(matrix(r"\sqrt{i}+\sqrt{j}")), matrix(r"\sqrt{j}+\sqrt{i}"), 1),
    ("sum over 10^9", "own", box(r"\sum_{k=1}^{10^9} \frac{1}{k^2}"), "7", 0),
    ("hard integral", "own", box(r"\int_0^1 \frac{x^{x}\sin(x^{7})}{\ln(1+x)} dx"), "7", 0),
    ("twelve letters to 50", "own", box("(a+b+c+d+f+g+h+j+k+l+m+n)^{50}"), "x^2+1", 0),
    ("trigonometric sum", "own", box("+".join(rf"\sin^{{{k}}}({k}x)" for k in range(1, 40))), r"\cos(x)", 0),
    ("series, 50 terms", "own", box("+".join(SERIES.split("+")[:50])), r"\frac{x^{50}-1}{x-1}", 1),
    ("denested root", "own", box(r"\sqrt{5+2\sqrt{6}}"), r"\sqrt{2}+\sqrt{3}", 1),
    ("text and dots", "own", box(r"5\text{a}" + r"\cdot " * 400 + '"'), "7", 0),
    ("14,000 boxes", "own", r"\boxed{" * 14_000, "7", 0),
    ("NUL bytes", "own", box("7\x00\x00\x01"), "8", 0),
    ("unclosed box", "own", r"so \boxed{\frac{1}{3", r"\frac{1}{2}", 0),
    ("import os", "own", box("__import__('os').system('touch run-by-an-answer')"), "7", 0),
    ("import os, Python text", "own", "It is $__import__('os').system('touch run-by-an-answer')$", "7", 0),
    ("1 MB without a box", "own", "answer 3 is " * 90_000, "7", 0),
]  # fmt: skip
EASY = [(r"so \boxed{\frac{2}{4}}", r"\frac{1}{2}", 1.0), (r"so \boxed{3}", "4", 0.0)]


def grader(library: str):
    """(response, gold) -> score, as the library's users call it."""
    if library == "math-verify":
        theirs = import_module("math_verify")
        return lambda response, gold: float(theirs.verify(theirs.parse(f"\\boxed{{{gold}}}"), theirs.parse(response)))
    if library == "verl":
        return import_module("verl.utils.reward_score.math_verify").compute_score
    if library == "verifiers":
        return import_module("verifiers.v1.utils.score").verify_boxed_math_answer
    if library == "areal":
        worker = import_module("areal.reward").get_math_verify_worker()
        return lambda response, gold: worker.verify(response, f"\\boxed{{{gold}}}")
    reward = import_module("trl.rewards.accuracy_rewards" if library == "trl" else "same_answer.trl").accuracy_reward
    return lambda response, gold: reward([[{"content": response}]], [f"${gold}$" if library == "trl" else gold])[0]


def drive(library: str, place: str) -> None:
    """One library in one place: questions on standard input, verdicts on what was standard output."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    out, lock, grade = os.fdopen(os.dup(1), "w", buffering=1), threading.Lock(), grader(library)
    os.dup2(2, 1)

    def answer(line: str) -> None:
        question, start = json.loads(line), time.monotonic()
        try:
            score, why = grade(question["response"], question["gold"]), ""
        except BaseException as error:
            score, why = "raised", f"{type(error).__name__}: {error}"[:100]
        reply = {"id": question["id"], "score": score, "why": why, "seconds": round(time.monotonic() - start, 2)}
        with lock:
            out.write(json.dumps(reply) + "\n")

    pool = ThreadPoolExecutor(4)
    for line in sys.stdin:
        answer(line) if place == "main" else pool.submit(answer, line)
    os._exit(0)


class Driver:
    def __init__(self, library: str, place: str, folder: Path):
        words = [sys.executable, __file__, str(folder), "--drive", library, place]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
        self.process = subprocess.Popen(words, cwd=folder, start_new_session=True, **pipes)
        self.easy_cap, self.count = EASY_CAP.get(library, 10.0), 0
        for response, gold, _ in EASY:
            self.ask(response, gold, 90)  # imports, pools

    def ask(self, response: str, gold: str, seconds: float) -> dict:
        self.count, end = self.count + 1, time.monotonic() + seconds
        question = json.dumps({"id": self.count, "response": response, "gold": gold}).encode() + b"\n"
        try:
            while question:
                question = question[self.process.stdin.write(question) :]
        except OSError:
            return {"score": "died"}
        while select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
            if not (line := self.process.stdout.readline()):
                return {"score": "died"}
            if (reply := json.loads(line))["id"] == self.count:  # not of one that came too late
                return reply
        return {"score": "hang"}

    def still_answers(self, hung: bool) -> bool:
        easy = EASY[:1] if hung else EASY
        return all(self.ask(response, gold, self.easy_cap)["score"] == score for response, gold, score in easy)

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def set_up(folder: Path) -> str:
    """The environment's Python."""
    python, making = str(folder / "venv/bin/python"), folder / "making"
    if not (folder / "files").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "-q", "install", *PINS], check=True)
        wheels = [f"{name}=={version}" for name, version in RELEASES.items()]
        subprocess.run([python, "-m", "pip", "-q", "download", "--no-deps", "-d", folder, *wheels], check=True)
        texts = dict(SHELL)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                texts |= {name: archive.read(name).decode() for name in archive.namelist() if name in FILES}
        for name, text in texts.items():
            (making / name).parent.mkdir(parents=True, exist_ok=True)
            for parent in Path(name).parents[:-1]:
                (making / parent / "__init__.py").touch()
            (making / name).write_text(text)
        making.rename(folder / "files")
    return python


def measure(library: str, place: str, inputs: list[tuple], folder: Path) -> None:
    driver = None
    for name, _, response, gold, truth in inputs:
        driver = driver or Driver(library, place, folder)
        reply = {"seconds": CAP, "why": "", **driver.ask(response, gold, CAP)}
        after = driver.still_answers(hung=reply["score"] == "hang")
        row = {"library": library, "place": place, "input": name, "truth": truth, **reply, "still_answers": after}
        with (folder / "rows.jsonl").open("a") as file:
            file.write(json.dumps({**row, "date": str(datetime.date.today())}) + "\n")
        if reply["seconds"] > 3 or not after or name == inputs[-1][0]:
            driver.close()
            driver = None


def table(rows: list[dict]) -> None:
    columns = "library|place|inputs|none in 40 s|raised|2 to 40 s|correct: not 1|next question wrong|slowest, s"
    print(f"|{columns}|\n|---|---{'|---:' * 7}|")
    for library, place in ((library, place) for library in LIBRARIES for place in PLACES):
        if not (found := [row for row in rows if (row["library"], row["place"]) == (library, place)]):
            continue
        cells = [f"{library} {RELEASES.get(library, '')}".strip(), place, len(found)]
        cells += [sum(row["score"] in kind for row in found) for kind in (("hang", "died"), ("raised",))]
        cells += [sum(2 < row["seconds"] < CAP for row in found)]
        correct = [row["score"] == 1.0 for row in found if row["truth"] == 1]
        cells += [f"{correct.count(False)} of {len(correct)}", sum(not row["still_answers"] for row in found)]
        print("|" + "|".join(map(str, [*cells, max(row["seconds"] for row in found)])) + "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--libraries", nargs="*", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--places", nargs="*", choices=PLACES, default=PLACES)
    parser.add_argument("--inputs", nargs="*", metavar="NAME", default=[name for name, *_ in INPUTS])
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = args.folder.resolve()
    if args.drive:
        return drive(*args.drive)  # which ends the process
    if Path(sys.prefix) != folder / "venv":
        folder.mkdir(parents=True, exist_ok=True)
        python = set_up(folder)
        os.environ |= {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{folder}/files:{Path(__file__).resolve().parents[1] / 'src'}",
        }
        os.execv(python, [python, __file__, *sys.argv[1:]])
    (file := folder / "rows.jsonl").touch()
    for library, place in ((library, place) for library in args.libraries for place in args.places):
        there = {
            row["input"] for row in map(json.loads, file.open()) if [row["library"], row["place"]] == [library, place]
        }
        measure(library, place, [one for one in INPUTS if one[0] in {*args.inputs} - there], folder)
    return table([*map(json.loads, file.open())])


if __name__ == "__main__":
    main()
