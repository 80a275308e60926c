import os
import signal
import sys

import pytest

# A shell in the background hands its children an ignored Ctrl-C; the tests that press it need it to mean something.
signal.signal(signal.SIGINT, signal.default_int_handler)

# For this process and all that it starts. One thread each: two cores are shared by several ranks.
os.environ.update(
    DS_ACCELERATOR="cpu",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
    TORCHDYNAMO_DISABLE="1",
)
os.environ.setdefault("TORCH_EXTENSIONS_DIR", f"{sys.prefix}/torch_extensions")  # DeepSpeed compiles its Adam once

# Fixtures that many files share and that take long to start: one process has all of their tests.
GROUPS = {
    "one_rank": "ranks", "two_ranks": "ranks",
    "real": "training on one rank", "train": "training on one rank",
    "train_on_two": "training on two ranks",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """Else a file's tests stay together."""
    groups = {item.path: item.path.stem for item in items}
    for item in items:
        for fixture in GROUPS.keys() & set(item.fixturenames):
            groups[item.path] = GROUPS[fixture]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item.path]))


@pytest.fixture(scope="session")
def start_ranks():
    """start_ranks(count, module) -> Ranks that run functions of a module in tests/."""
    from gloo_ranks import Ranks

    started = []

    def start(count: int, module: str) -> Ranks:
        started.append(Ranks(count, module))
        return started[-1]

    yield start
    for ranks in started:
        ranks.close()
