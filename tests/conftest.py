import contextlib
import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

from real_openrlhf.base.environment import hold_environment

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

hold_environment()  # no set-up may change it below the tests

# what fast tests import of the stack, where they run alone
FAST = "torch transformers transformers.models.auto.auto_factory matplotlib.pyplot pandas".split()

# Files whose tests share what takes long to start; any other file is a group of its own.
GROUPS = {
    "peft": "engine_inputs forecast",
    "parser": "arguments dry_run rollouts",
    "ranks": "fused_logprobs pretend_cuda",
    "more ranks": "checkpoints fixes zero_ranks",
    "training on one rank": "like_gpu user_files",
}
QUICK = ("fast", "hostile")  # parts whose groups take seconds
GROUP_OF = {f"test_{name}": group for group, names in GROUPS.items() for name in names.split()}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """The processes are forks of one that has imported the stack, and so is what multiprocessing starts in them."""
    import forked_workers

    parts = {part for word in config.args for part in Path(word.partition("::")[0]).parts}
    alone = parts.isdisjoint(("slow", "hostile", "smoke", "e2e"))
    modules = ["hypothesis", *(FAST if alone else [*forked_workers.MODULES, "matplotlib.pyplot"])]
    if not all(importlib.util.find_spec(module.partition(".")[0]) for module in modules):
        return
    stack = contextlib.ExitStack()
    python, _ = stack.enter_context(forked_workers.started(os.environ, modules))
    config.add_cleanup(stack.close)
    os.environ[forked_workers.PYTHON] = python
    for spec in specs:
        spec.python = python


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where processes share the tests, a group is one process's. (xdist's own groups are lost with pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, cell = Path(nodeid.partition("::")[0]), nodeid.partition("[")[2]
            # a command's cells wait for it, in `every` for minutes
            command = cell.partition("-")[0] if file.stem == "test_signals" else ""
            return f"{file.parent.name} {GROUP_OF.get(file.stem, file.stem)}{command}"

        def _assign_work_unit(self, node) -> None:
            """xdist starts a lane's last test when the lane has another group to go on with. Behind tests that take
            minutes this is the last group, of quick ones: others may be done with the long ones first."""
            waiting = [group for group, tests in self.assigned_work.get(node, {}).items() if not all(tests.values())]
            if waiting and waiting[-1].partition(" ")[0] not in QUICK:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return ByGroup(config, log)


@pytest.fixture
def refused(capsys):
    """refused(words, ...) -> the one line with which the command refuses them, with exit code 2."""
    from real_openrlhf.cli import main

    def line(*words) -> str:
        capsys.readouterr()
        code, said = main(list(map(str, words))), capsys.readouterr()
        assert (code, said.out, said.err.count("\n")) == (2, "", 1), said
        return said.err

    return line


@pytest.fixture(scope="session")
def start_ranks():
    """start_ranks(count, module) -> Ranks that run functions of a module in tests/; the same ones when asked again."""
    from gloo_ranks import Ranks

    started: dict[tuple[int, str], Ranks] = {}

    def start(count: int, module: str) -> Ranks:
        return started.setdefault((count, module), Ranks(count, module))

    yield start
    for ranks in started.values():
        ranks.close()


def ranks(count: int, module: str):
    return pytest.fixture(lambda start_ranks: start_ranks(count, module), scope="session")


loss_ranks, two_ranks, one_rank = ranks(2, "loss_jobs"), ranks(2, "zero_jobs"), ranks(1, "zero_jobs")


@pytest.fixture(scope="session")
def forked():
    """(what is used like Python, with what environment): forks of a process that has imported PyTorch, DeepSpeed and
    vLLM. What they start by multiprocessing is forked too."""
    import forked_workers

    if forked_workers.PYTHON in os.environ:
        yield os.environ[forked_workers.PYTHON], forked_workers.hooked(os.environ)
        return
    with forked_workers.started(os.environ) as found:
        yield found


@pytest.fixture(scope="session")
def python(forked) -> str:
    """Used like Python, with the stack imported."""
    return forked[0]


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> str:
    """The tiny model with random weights and biases: as good as a trained one where only numbers are compared."""
    import tiny_task
    import torch
    from tiny_task import ReverseTask

    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny_task.make_tokenizer(ReverseTask)
    model = tiny_task.make_model(ReverseTask, tokenizer, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.02, generator=generator)
    model.save_pretrained(folder)  # float32
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def benchmarks(tmp_path_factory) -> Path:
    """A folder of the six benchmarks with invented problems, stored as the originals are: golds of three types."""
    import pyarrow
    from pyarrow import parquet

    from real_openrlhf.data.benchmarks import BENCHMARKS

    end = " Let's think step by step and output the final answer within \\boxed{}."
    types = {"aime24": float, "olympiadbench": lambda number: [f" {number}", str(number)]}
    folder = tmp_path_factory.mktemp("benchmarks")
    for name, benchmark in BENCHMARKS.items():
        rows = []
        for number in range(benchmark.rows):
            text = f"{name} asks what the sum of {number} and of {number} is, exactly?{end}"
            gold = {"ground_truth": types.get(name, str)(2 * number)}
            rows.append({"prompt": [{"role": "user", "content": text}], "reward_model": gold})
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{benchmark.stem}.parquet")
    return folder
