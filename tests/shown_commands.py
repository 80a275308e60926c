"""Every command that a page or a script's header shows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/*.md", "patches/*.md", "examples/*.md", "examples/*/*.md")
SCRIPTS = ("examples/*/*.sh", "examples/*/*.sbatch", "examples/*/*.py", "benchmarks/*.sh", "benchmarks/*.py")
SCRIPTS += ("docs/*.py", "requirements/*.py", "tests/run.sh")
PROGRAM = r"(?:[A-Z_]+=\S+ )*(?:bash|python|real-openrlhf|sbatch|pip|ray|pytest|\.ci/\w+)"
COMMAND = re.compile(rf"{PROGRAM} \S|\.ci/\w+$")  # a program with words of its own; one alone is a name
START = rf"(?:{PROGRAM} (?:-m )?\S*[/.]\S*|(?:real-openrlhf|sbatch) \S+ |eval \"\S+ \S+)"
IN_HEADER = re.compile(rf"(?:^\s*|: )({START}.*?)(?:,\s|\s{{2,}}|$)")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _words(line: str) -> str:
    return " ".join(re.sub(r"\s#.*", "", line).split())


def of_page(text: str) -> Iterator[str]:
    for language, block in FENCED.findall(text):
        if language in ("", "bash"):
            yield from filter(None, map(_words, block.replace("\\\n", " ").splitlines()))
    yield from of_spans(FENCED.sub("", text))


def of_spans(text: str) -> Iterator[str]:
    return (span for span in re.findall(r"`([^`\n]+)`", text) if COMMAND.match(span))


def of_script(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix == ".py":
        header = ast.get_docstring(ast.parse(text)) or ""
    else:
        header = "\n".join(re.findall(r"^# ?(.*)$", text.partition("\nset -")[0], re.MULTILINE))
    for line in header.splitlines():
        found = IN_HEADER.search(line)
        yield from [_words(found[1])] if found else of_spans(line)


def shown() -> dict[str, str]:
    """{command: where it stands first}"""
    found: dict[str, str] = {}
    for patterns, commands in ((PAGES, lambda path: of_page(path.read_text())), (SCRIPTS, of_script)):
        for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
            for command in commands(path):
                found.setdefault(command, path.relative_to(ROOT).as_posix())
    return found
