"""The pages: every link, flag, path and variable that they name is there. Their commands: tests/smoke."""

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "same_answer/*.md",
        "patches/*.md",
        "requirements/*.md",
        "benchmarks/*.md",
        "examples/results/archive/*.md",
    )
    for page in ROOT.glob(pattern)
)
RECORDS = {*ROOT.glob("examples/**/*.md"), *ROOT.glob("benchmarks/**/*.md")}  # with flags and paths of their time
OURS = ("real_openrlhf", "same_answer", "examples", "benchmarks", "docs", "tests", "requirements", ".ci", "patches")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@cache
def files(*suffixes: str) -> dict[Path, str]:
    """The project's own texts, by their path in it."""
    found = [path for room in OURS for path in (ROOT / room).rglob("*") if path.suffix in suffixes and path.is_file()]
    return {path.relative_to(ROOT): path.read_text() for path in found if path != Path(__file__).resolve()}


def code(page: Path) -> list[str]:
    """What a page sets as code: blocks and spans, without the backticks."""
    text = page.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


# Links


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted({*PAGES, *RECORDS}), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_and_image_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def test_who_is_asked_for_something_knows_where_and_no_page_has_another_address():
    address = re.search(r'^REPOSITORY = "(.*)"', (ROOT / "setup.py").read_text(), re.MULTILINE)[1]
    cited = re.search(r"^repository-code: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert address == (cited[1] if cited else "")
    texts = {**files(".py"), **{page: page.read_text() for page in PAGES}}
    for path, text in texts.items():
        asks = re.findall(r"tell us|(?:please|and) report (?:it|both)|open a(?:n issue| discussion)", text)
        assert len(asks) <= text.count("this repository's issue tracker"), path
        own = re.findall(r"https://[\w./-]+/real_openrlhf\b", text)
        assert {*own} <= {address}, path


def test_the_index_names_every_page():
    """A folder for each of its groups; no page stands beside it."""
    index = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md")] == ["README.md"]
    for page in (ROOT / "docs").glob("*/*.md"):
        assert f"({page.relative_to(ROOT / 'docs')})" in index, page.name


def test_the_pages_are_short():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "same_answer").glob("*.md")]
    assert sum(len(page.read_text().split()) for page in pages) <= 17_000


def test_every_guard_has_a_test_and_each_name_its_place():
    rows = re.findall(r"^\|(.+)\|.+\|`(.+)::(\w+)`\|$", (ROOT / "docs/change/guards.md").read_text(), re.MULTILINE)
    assert len(rows) == 16
    for guard, file, test in rows:
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), test
        name, *places = [*re.findall(r"`([^`]+)`", guard), ""]
        for place in filter(None, places):
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", (ROOT / "real_openrlhf" / place).read_text()), guard


def test_every_page_that_code_names_is_there():
    texts = files(".py", ".sh", ".sbatch", ".ipynb", ".patch").values()
    named = {page for text in texts for page in re.findall(r"(?<!/)\bdocs/[\w/-]+\.md", text)}
    assert len(named) > 5 and {page for page in named if not (ROOT / page).is_file()} == set()


# The README; its commands run in tests/smoke


def test_the_readme_is_short_and_begins_with_one_command():
    page = (ROOT / "README.md").read_text()
    assert len(page.split()) <= 1000
    screen = "\n".join(page.splitlines()[:35])
    assert re.findall(r"```bash\n(.*?)```", screen, re.DOTALL)[0] == "bash examples/scripts/train_real_cpu.sh\n"


# Flags

# Of git, pip, pytest, Ray, SLURM, Docker and others, which the pages name too.
FOREIGN = set(
    "--force-reinstall --no-deps --no-index --zero-commit --no-signature --full-index --continue --runtime-env-json "
    "--head --address --num-cpus --gpus-per-node --mem --cpus-per-task --shm-size --ipc --nv --model_path --lora_path "
    "--output_path --no-FLAG --array --updates --loss_type --beta --per_device_train_batch_size "
    "--num_generations --orphan".split()
)


# Of the changelog, and of records of earlier versions
GONE = set(
    "--epochs --task --jobs --algo.real.trpa_beta --algo.real.bce_reduction --algo.real.scoring --ds.head_dtype "
    "--algo.real.old_log_probs --quick --agent --ds.share_prompts --algo.real.labels --algo.real.mismatch_limit "
    "--train.hopeless --logger.file --map --publish --beside --fill --working-dir --campaign --status --skill "
    "--json --decontaminate --all --algo.real.sampler_clip --algo.real.wave_depth --ds.logit_free --train.deal "
    "--train.hung_minutes --train.keep_groups --train.skip_weightless".split()
)


@cache
def openrlhf_flags() -> set[str]:
    """What the patched parser takes, read from its text, which is quicker than importing it; none if not installed."""
    package = importlib.util.find_spec("openrlhf")
    if package is None:
        return set()
    texts = [
        Path(package.submodule_search_locations[0], "cli", "train_ppo_ray.py").read_text(),
        (ROOT / "real_openrlhf/flags/arguments.py").read_text(),
    ]
    declared = re.findall(r"""\badd(?:_argument)?\(\s*f?["'](--[\w.{}-]+)["']""", "\n".join(texts))
    return {re.sub(r"{\w+}", role, flag) for flag in declared for role in ("actor", "critic")}  # one loop adds both


@cache
def own_flags() -> set[str]:
    declared = set()
    for path, text in files(".py", ".sh").items():
        if path.parts[0] != "tests" or path.suffix == ".sh":
            declared |= set(re.findall(r"""\badd(?:_argument)?\([^)]*?["'](--[\w-]+)["']""", text))
    return declared | {"--help", "--version"}


@every_page
def test_every_flag_exists(page):
    if not openrlhf_flags():
        pytest.skip("OpenRLHF is not installed")
    gone = GONE if page.name == "CHANGELOG.md" or "results" in page.parts else set()
    known = openrlhf_flags() | own_flags() | FOREIGN | gone
    for text in code(page):
        for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*\*?", text):
            flag = flag.rstrip(".")
            if flag.endswith("*"):
                assert any(one.startswith(flag[:-1]) for one in known), flag
            else:
                assert {flag, flag.replace("--no-", "--", 1)} & known, flag


# Paths and names


@every_page
def test_every_path_exists(page):
    begin = "|".join(map(re.escape, OURS))
    for text in code(page):
        for path in re.findall(rf"(?<![\w./-])(?:{begin})/[\w./*-]+", text):
            if "NAME" not in path and "openrlhf-X" not in path:
                campaign, _, part = path.rpartition("/")  # `runs.csv` names the parts of a campaign
                rows = ROOT / campaign / "runs.csv"
                part_of_one = rows.exists() and f"\n{part}/" in rows.read_text()
                assert part_of_one or list(ROOT.glob(path.rstrip("./"))), path
        for name in re.findall(r"(?<![\w/])test_\w+\.py", text):
            assert list((ROOT / "tests").glob(f"*/{name}")), name


# Variables


OF_OUR_PROCESSES = {  # set by a process of ours for another one, or by a test
    *("REAL_FAMILY", "REAL_WORKER_PYTHON", "REAL_REMOTE_URL"),
    *("REAL_ENGINE", "REAL_TIME_LIMIT", "REAL_FORKS_START_FORKS"),
}


def test_the_table_of_our_variables_is_complete():
    texts = [text for path, text in files(".py", ".sh", ".sbatch", ".patch").items() if "tests" not in path.parts]
    prefix = "(?:REAL|SAME_ANSWER)_"
    read = r"""\$\{?(OURS_\w+)|environ(?:\.get\(|\[)["'](OURS_\w+)|["'](OURS_[A-Z]\w+)["']""".replace("OURS_", prefix)
    in_texts = {next(filter(None, names)) for text in texts for names in re.findall(read, text)}
    page = (ROOT / "docs/use/troubleshooting.md").read_text()
    named = set(re.findall(rf"^\| ?`({prefix}\w+)`", page, re.MULTILINE))
    assert named == in_texts - OF_OUR_PROCESSES
