"""What must hold for any text in data, models, run folders and reward functions, and texts to try it on.

The fast tests run each property for a moment, benchmarks/fuzz.py for as long as it is told.
"""

import contextlib
import io
import json
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import strategies as st

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.terminal import CONTROLS, exit_code, on_one_line, plain
from real_openrlhf.data.problems import read_problems
from real_openrlhf.data.sources import read_local
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import compose
from real_openrlhf.report import benchmarks, page, table_forms, tables
from real_openrlhf.report.read_runs import UnreadableRun, read_run, read_runs
from real_openrlhf.report.task_runs import tasks
from real_openrlhf.rewards.calls import Fault, checked
from real_openrlhf.rewards.command import _rows as rows_to_grade
from real_openrlhf.rewards.graders import Asked
from real_openrlhf.runs import run_folder
from real_openrlhf.training.checks import Findings, data_check
from real_openrlhf.training.progress import Progress, summary

PIECES = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "' onload='alert(1)", '" onclick="x', "]]>", "<!--",
    "</style>", "</svg>", "</title>", "&lt;", "&#x3c;script&#x3e;", "javascript:alert(1)", "http://evil.example/x",
    "../../../outside", "/etc/passwd", "..", ".", "\x00", "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\n", "\t",
    "\x08\x08", "\u202e", "\u2066", "\u2028", "\x85", "\ufeff", "\ud800", "\udfff", "$\\frac{", "$$", "\\input{x}",
    "|", "\\|", "`", "=cmd|' /C calc'!A0", "+1+1", "@SUM(1)", "-cmd", "{}", "{0.__class__}", "%s", "%n", "\\", "'",
    "é", "\U0001f4a3", "x" * 500, " " * 300, "seed", "s1", "real", "grpo", "9" * 5000, "1e999", "NaN",
)  # fmt: skip
words = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=4).map("".join)
numbers = st.one_of(
    st.integers(-(10**30), 10**30), st.floats(), st.sampled_from([10**400, -1, 0, 1, 2**63, 1e308, -1e308])
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)


def text_of(value: object) -> bytes:
    """JSON as others may write it: with half characters, NaN and numbers of any length."""
    return json.dumps(value, ensure_ascii=True).encode()


@st.composite
def spoiled(draw, bases: tuple[bytes, ...]) -> bytes:
    """A good file with pieces cut out, doubled, put in, or bytes changed."""
    data = draw(st.sampled_from(bases))
    for _ in range(draw(st.integers(0, 4))):
        at, length = draw(st.integers(0, len(data))), draw(st.sampled_from((0, 1, 2, 7, 40, 400)))
        signs = st.sampled_from((b'"', b"{", b"}", b"[" * 3000, b",", b"\n", b"9" * 5000, b"null"))
        texts = st.sampled_from(PIECES).map(lambda text: text.encode("utf-8", "surrogatepass"))
        piece = draw(st.one_of(st.binary(max_size=6), signs, texts, st.just(data[at : at + length] * 2)))
        data = data[:at] + piece + data[at + length :]
    return data


ROW = {"prompt": "1+1=", "label": "2", "answer": ["2", 2.0], "id": 7}
DATA = ((text_of(ROW) + b"\n") * 3, text_of([ROW, ROW]), text_of({"problem": [{"role": "user", "content": "1"}]}))
RUN = {
    "name": "cpu-real-s1", "algo": "real", "recipe": "cpu", "seed": 1, "status": "failed", "started": "2026",
    "flags": {"--algo.real.tau": 0.5, "--actor.model_name_or_path": "a/b"}, "data": {"x": "1"}, "host": "h",
}  # fmt: skip
LOGGED = {"time": 1.0, "rollout/reward_mean": 0.5, "eval_x_pass1": 0.25}
LINES = b"".join(
    text_of(LOGGED | {"phase": phase, "step": n}) + b"\n" for n in (1, 2, 3) for phase in ("train", "eval")
)
RESULTS = {"settings": {"k": 4, "grader": "robust"}, "benchmarks": {"aime24": {"pass@1": 0.5, "standard_error": 0.1}}}


@contextlib.contextmanager
def folder():
    """Where a property may write, and nothing beside it."""
    with tempfile.TemporaryDirectory() as outer:
        inner = Path(outer) / "inner"
        inner.mkdir()
        yield inner
        assert [path.name for path in Path(outer).iterdir()] == ["inner"]


def data_is_read_or_refused(content: bytes) -> None:
    with folder() as here:
        file = here / "rows.jsonl"
        file.write_bytes(content)
        with contextlib.suppress(UserError):
            for problem in read_problems(read_local(file).rows):
                assert problem.label and problem.key is not None
                json.dumps(problem.record("x"), ensure_ascii=False).encode()
        with contextlib.suppress(UserError):
            list(rows_to_grade(file, Asked(*Asked._fields)))
        findings = Findings()
        flags = compose(RECIPES["cpu"], ALGORITHMS["real"], {"--data.prompt_dataset": (str(file),)})
        findings.add(data_check.check(flags, "--data.prompt_dataset"))
        assert all("\n" not in on_one_line(said) for said in findings.problems)
        assert file.read_bytes() == content


def a_run_is_read_or_refused(record: bytes, lines: bytes, results: bytes) -> None:
    with folder() as here:
        (here / "eval").mkdir()
        for name, content in (("run.json", record), ("metrics.jsonl", lines), ("eval/results.json", results)):
            (here / name).write_bytes(content)
        with contextlib.suppress(UserError):
            run_folder.state(here)
        with contextlib.suppress(UnreadableRun):
            run = read_run(here)
            assert all(not CONTROLS.search(text) for text in (run.name, run.algo, run.status))
            tasks([run])
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            progress = Progress(here, None, here / "train.log")
            progress.offsets = dict.fromkeys(progress.offsets, 0)
            exit_code("test", lambda: progress.close() or print(summary(here)) or 0)
        assert not CONTROLS.search(said.getvalue())


PNG = "data:image/png;base64,"
TAGS = """html head meta link title style body h1 h2 h3 p code nav a div details summary ul li figure figcaption img
    table thead tbody tr th td span""".split()


class Page(HTMLParser):
    """Nothing that runs or is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in TAGS:
            self.wrong.append(tag)
        for name, value in attrs:
            fetched = name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:,", PNG))
            if name.startswith("on") or fetched or "javascript:" in (value or ""):
                self.wrong.append(f"{tag} {name}={value}")

    def handle_comment(self, data: str) -> None:
        self.wrong.append("comment")


def a_page_shows_words_and_runs_none(name: str, algo: str, recipe: str, flags: dict, key: str, results: dict) -> None:
    with folder() as here:
        record = RUN | {"name": name, "algo": algo, "recipe": recipe, "flags": flags, "status": "finished"}
        for number in (1, 2):
            run = here / str(number)
            (run / "eval").mkdir(parents=True)
            (run / "run.json").write_bytes(text_of(record | {"recipe": recipe + "x" * number}))
            lines = [{"phase": "eval", "step": 1, f"eval_{key}_pass1": 0.5, key: 1.0}]
            (run / "metrics.jsonl").write_bytes(b"".join(text_of(line) + b"\n" for line in lines))
            (run / "eval/results.json").write_bytes(text_of({"settings": flags, "benchmarks": results}))
        runs, skipped = read_runs([here])
        known = tasks(runs)
        made = [tables.results(task) for task in known]
        sections = [
            {"task": task, "tables": [tables.summary(task), table], "figures": []}
            for task, table in zip(known, made, strict=True)
        ]
        scores = benchmarks.benchmarks(known)
        made += [*filter(None, [scores])]
        hostile = [*skipped, (Path(name.replace("\0", "") or "x"), algo)]
        html = page.render(sections, scores, hostile)
        shown = Page()
        shown.feed(html)
        shown.close()
        assert shown.wrong == []
        assert not CONTROLS.search(html)
        html.encode()
        for table in made:
            assert not re.search(r"<[a-zA-Z/!]", table_forms.to_markdown(table))
            assert all(line[:1] not in "=+@" for line in table_forms.to_csv(table).splitlines()[1:])
            assert not CONTROLS.search(table_forms.to_markdown(table))


def a_reward_is_numbers_or_a_fault(value: object) -> None:
    with contextlib.suppress(Fault):
        found = checked(value)
        assert all(isinstance(number, float) for number in (found["rewards"], found["scores"]))
        assert all(isinstance(number, float) for number in found["extra_logs"].values())


def a_terminal_obeys_nothing(text: str) -> None:
    shown = plain(text)
    assert not CONTROLS.search(shown) and plain(shown) == shown
    shown.encode()
    said = io.StringIO()

    def fail() -> int:
        print(text)
        raise UserError(text)

    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        assert exit_code("test", fail) == 2
    assert not CONTROLS.search(said.getvalue())


PROPERTIES = {
    data_is_read_or_refused: (spoiled(DATA),),
    a_run_is_read_or_refused: (
        st.one_of(spoiled((text_of(RUN),)), st.dictionaries(st.sampled_from([*RUN]), values).map(text_of)),
        st.one_of(spoiled((LINES,)), st.lists(st.dictionaries(words, values, max_size=3), max_size=3).map(
            lambda rows: b"".join(text_of({"phase": "train", "step": 1} | row) + b"\n" for row in rows))),
        spoiled((text_of(RESULTS),)),
    ),
    a_page_shows_words_and_runs_none: (
        words, words, words,
        st.dictionaries(st.one_of(words, st.sampled_from(["--algo.real.tau", "--actor.x"])), values, max_size=3),
        words, st.dictionaries(words, st.just({"pass@1": 0.5, "standard_error": 0.1}), max_size=2),
    ),
    a_reward_is_numbers_or_a_fault: (
        values | st.fixed_dictionaries({"rewards": values}, optional={"scores": values, "extra_logs": values}),
    ),
    a_terminal_obeys_nothing: (words,),
}  # fmt: skip
