"""Our losses in other trainers: examples/elsewhere, examples/tinker, the pages' Python and the notebook, on stand-ins.

With the published TRL and SkyRL, which a package index must have: `run.sh every`.
"""

import asyncio
import collections
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import tinker_stub
import tiny_models
import torch
from every import every
from naive import naive_losses, naive_score

from real_openrlhf import group_weights, real_policy_loss
from real_openrlhf.algorithm.settings import ObjectiveSettings
from real_openrlhf.report.read_runs import read_run
from real_openrlhf.training import tiny_task

ROOT = Path(__file__).parents[2]
LISTWISE = "examples/objectives/listwise.py:listwise"
PAGE = ROOT / "docs/change/elsewhere.md"


def python_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


BLOCKS, OBJECTIVES = python_of(PAGE), python_of(ROOT / "docs/change/objectives.md")
NAMED = {path.stem: path.read_text() for path in (ROOT / "examples/elsewhere").glob("*.py")}


def run(block: str) -> dict:
    names: dict = {"__name__": "block"}
    exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_blocks_of_the_page_of_objectives_run(tmp_path, monkeypatch):
    """In order, in one folder, which has the files that the page names."""
    monkeypatch.chdir(tmp_path)
    for block in OBJECTIVES:
        if file := re.match(r"# (\w+\.py)\n", block):
            Path(file[1]).write_text(block)
        run(block)


DOORS = ROOT / "README.md", PAGE, ROOT / "same_answer/README.md"
ELSEWHERE = {
    "# train.py": "trains a model of the hub with TRL: test_the_program_of_the_page_trains_real_..., in every"
}


@pytest.mark.parametrize("page", DOORS, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_block_of_the_pages_that_people_paste_from_runs(page, capsys, tmp_path, monkeypatch):
    """Shell blocks run in tests/smoke; the other languages are not for running."""
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in python_of(page) if block.partition("\n")[0] not in ELSEWHERE]
    assert blocks and {*re.findall(r"^```(\w+)", page.read_text(), re.MULTILINE)} <= {
        "bash",
        "python",
        "text",
        "math",
        "bibtex",
    }
    for block in blocks:
        names, said = run(block), capsys.readouterr().out
        shown = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)  # with what it prints behind
        assert said.splitlines() == shown or "print" in block and not shown
        learning = [
            value
            for value in names.values()
            if isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad
        ]
        assert all(value.grad.abs().sum() > 0 for value in learning)


GROUP, TOKENS = 4, 5


@pytest.fixture
def drawn():
    """Two groups of four ragged rollouts: (new, old, mask, rewards, groups). The last has no known reward."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(8, TOKENS, generator=generator, dtype=torch.float64) - 1
    new = old + 0.3 * torch.randn(8, TOKENS, generator=generator, dtype=torch.float64)
    mask = (torch.arange(TOKENS) < torch.tensor([5, 1, 3, 2, 4, 0, 2, 3])[:, None]).long()
    rewards = torch.tensor([0.25, 1.0, 0.0, 0.5, 1.0, 1.0, 0.5, torch.nan], dtype=torch.float64)
    return new.requires_grad_(), old, mask, rewards, torch.arange(8) // GROUP


class Trainer:
    """What the snippet takes from GRPOTrainer: rewards of all ranks, padded rollouts, and their log-probabilities."""

    def __init__(self, new, mask, rewards):
        self.new, self.mask, self.all_rewards = new, mask, rewards
        self.accelerator, self.num_generations = SimpleNamespace(process_index=1), GROUP
        self.reward_weights, self.current_gradient_accumulation_steps = torch.tensor([1.0, 0.5]), 2
        self._metrics = {"train": collections.defaultdict(list)}

    def _calculate_rewards(self, inputs):
        other_rank = torch.zeros(len(inputs), 2)
        return torch.cat(
            [other_rank, torch.stack([self.all_rewards, torch.full_like(self.all_rewards, torch.nan)], 1)]
        )

    def _generate_and_score_completions(self, inputs):
        self._calculate_rewards(inputs)
        nothing = torch.zeros(len(inputs), 0, dtype=torch.long)
        ids = torch.arange(len(inputs) * TOKENS).view(-1, TOKENS)
        return {"prompt_ids": nothing, "prompt_mask": nothing, "completion_ids": ids, "completion_mask": self.mask}

    def _get_per_token_logps_and_entropies(self, model, ids, seen, kept):
        assert ids.shape == seen.shape == (8, TOKENS) and kept == TOKENS
        return self.new, None, None


def test_trls_subclass_hands_over_rewards_groups_masks_and_old_log_probabilities(drawn, monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", ModuleType("trl"))
    sys.modules["trl"].GRPOTrainer = Trainer
    new, old, mask, rewards, groups = drawn
    trainer = run(NAMED["trl_groups"])["GroupLossTrainer"](new, mask, rewards)
    assert trainer.objective == "real"
    trainer.objective = LISTWISE
    inputs = trainer._generate_and_score_completions([None] * 8)
    assert inputs["rewards"].tolist() == pytest.approx(rewards.tolist(), nan_ok=True)
    model = SimpleNamespace(training=True)
    spoken = (torch.arange(TOKENS) != 1).long()  # a tool has said the second word
    for more, before, seen in (
        ({}, new.detach(), mask),
        ({"old_per_token_logps": old, "tool_mask": spoken}, old, mask * spoken),
    ):
        expected, metrics = real_policy_loss(new, before, seen, rewards, groups, objective=LISTWISE)
        loss = trainer._compute_loss(model, {**inputs, **more})
        assert loss.item() == pytest.approx(expected.item() / 2, abs=1e-15)  # of two calls an update
        torch.testing.assert_close(
            *(torch.autograd.grad(one, new)[0] for one in (2 * loss, expected)), rtol=1e-12, atol=0
        )
        assert trainer._metrics["train"]["real/loss"][-1] == metrics["real/loss"]
    torn = {name: column[[0, 1, 2, 3, 4, 5]] for name, column in inputs.items()}
    trainer.new, trainer._get_per_token_logps_and_entropies = new[:6], lambda *_: (new[:6], None, None)
    with pytest.raises(ValueError, match="group 3 has 2 responses on rank 0, not 4"):
        trainer._compute_loss(model, torn)


def estimator(monkeypatch, objective: str, module: str, decorator: str):
    """The page's estimator, where only this trainer is installed."""
    registered = {}
    for name in ("verl.trainer.ppo.core_algos", "skyrl.backends.skyrl_train.utils.ppo_utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    setattr(sys.modules[module], decorator, lambda name: lambda function: registered.setdefault(name, function))
    names = run(NAMED["estimator"])
    assert names["OBJECTIVE"] == "real"
    names["OBJECTIVE"] = objective
    return registered["real"]


@pytest.mark.parametrize("objective", ["real", LISTWISE])
@pytest.mark.parametrize("trainer", ["verl", "skyrl"])
def test_the_estimator_has_our_gradient_at_the_first_update_in_any_micro_batches(
    drawn, monkeypatch, trainer, objective
):
    """Their loss there: -advantage * ratio, sums over tokens, mean over rollouts, of which a call has a part."""
    places = {
        "verl": ("verl.trainer.ppo.core_algos", "register_adv_est"),
        "skyrl": ("skyrl.backends.skyrl_train.utils.ppo_utils", "register_advantage_estimator"),
    }
    estimate = estimator(monkeypatch, objective, *places[trainer])
    _, old, mask, rewards, groups = drawn
    rewards = rewards.nan_to_num(0.75) if objective == LISTWISE else (rewards > 0.5).double()
    last = torch.zeros(8, TOKENS, dtype=torch.float64)
    last[:, -1] = rewards
    uids = [f"prompt {group}" for group in groups.tolist()]
    advantages, _ = estimate(token_level_rewards=last, response_mask=mask, index=uids, config=None)
    scale = 1 / 8
    if trainer == "skyrl":  # seq_mean_token_sum_norm with max_seq_len 1: scaled before any split, then summed
        advantages, scale = advantages / (len(advantages) * 1), 1
    new = old.clone().requires_grad_()
    for rows in ([0, 5, 3], [1, 2, 4, 6, 7]):
        ratio = (new[rows] - old[rows]).exp()
        (-(advantages * mask)[rows] * ratio).sum().mul(scale).backward()
    expected, _ = real_policy_loss(new, old, mask, rewards, groups, objective=objective)
    torch.testing.assert_close(new.grad, torch.autograd.grad(expected, new)[0], rtol=1e-6, atol=1e-8)


def test_the_estimator_refuses_a_loss_whose_first_weights_need_more_than_rewards(drawn, monkeypatch):
    _, _, mask, rewards, groups = drawn
    estimate = estimator(monkeypatch, "trpa", "verl.trainer.ppo.core_algos", "register_adv_est")
    with pytest.raises(ValueError, match="trpa scores by"):
        estimate(token_level_rewards=rewards[:, None], response_mask=mask, index=groups.tolist())


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0).item()


def test_prime_rls_class_has_our_gradient_and_one_number_a_token_has_not(drawn, monkeypatch):
    """Its loss where trainer and sampler agree: -advantage * ratio, a sum over tokens divided by all tokens."""
    new, *_ = drawn
    mask = (torch.arange(TOKENS) < torch.tensor([5, 1, 3, 2, 4, 1, 2, 3])[:, None]).long()
    rewards = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    base, routing = (ModuleType(f"prime_rl.orchestrator.algo.{name}") for name in ("base", "routing"))
    base.Algorithm = object
    base.iter_trainable_traces = lambda episodes: [(one, trace) for one in episodes for trace in one.traces]
    routing.assign_advantages = lambda trace, values: setattr(trace, "advantages", values)
    for module in (base, routing):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    algorithm = run(NAMED["prime_groups"])["RealAlgorithm"]()

    def trace(row: int) -> SimpleNamespace:
        """The prompt is a node without sampled tokens; an answer is two nodes if it has two tokens or more."""
        own = [1] * int(mask[row].sum())
        nodes = [SimpleNamespace(mask=part) for part in ([0, 0], own[:1], own[1:])]
        return SimpleNamespace(nodes=nodes, reward=rewards[row])

    advantages = torch.zeros(8, TOKENS, dtype=torch.float64)
    plain = torch.zeros(8, TOKENS, dtype=torch.float64)
    for rows in (range(4), range(4, 8)):
        traces = [trace(row) for row in rows]
        asyncio.run(algorithm.score_group([SimpleNamespace(traces=traces[:1]), SimpleNamespace(traces=traces[1:])]))
        weights = group_weights([rewards[row] for row in rows], [0] * 4)
        for row, one, weight in zip(rows, traces, weights, strict=True):
            advantages[row, : len(one.advantages)] = torch.tensor(one.advantages, dtype=torch.float64)
            plain[row] = weight * mask[row]
    expected, _ = real_policy_loss(new, new.detach(), mask, rewards, [0] * 4 + [1] * 4)
    (ours,) = torch.autograd.grad(expected, new)
    gradients = []
    for given in (advantages, plain):
        loss = -(given * (new - new.detach()).exp() * mask).sum() / mask.sum()
        gradients.append(torch.autograd.grad(loss, new)[0])
    assert cosine(gradients[0], ours) == pytest.approx(1, abs=1e-12)
    assert cosine(gradients[1], ours) < 0.95


# examples/real_in_ten_minutes.ipynb, where a notebook service has little installed

NOTEBOOK_ALONE = """
import sys
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"deepspeed", "openrlhf", "ray", "transformers", "vllm"}:
            raise ImportError(f"{name} is not there on a notebook service")
sys.meta_path.insert(0, Refuses())
import runpy
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("steps", [1, pytest.param(60, marks=every)])
def test_the_notebook_runs_with_torch_and_matplotlib_alone_and_prints_what_is_stored(tmp_path, steps):
    (tmp_path / "docs").mkdir()
    (tmp_path / "examples").mkdir()
    text = (ROOT / "examples/real_in_ten_minutes.ipynb").read_text()
    fewer, count = re.subn(r"(0\.\d+) after a step, 0\.\d+ after 60", rf"\1 after a step, \1 after {steps}", text)
    fewer, trainings = re.subn(r"(STEPS, UPDATES = .*?), 60, ", rf"\1, {steps}, ", fewer)
    assert (count, trainings) == (3, 1)
    (tmp_path / "examples/real_in_ten_minutes.ipynb").write_text(text if steps == 60 else fewer)
    shutil.copy(ROOT / "docs/notebook.py", tmp_path / "docs")
    words = [sys.executable, "-c", NOTEBOOK_ALONE, tmp_path / "docs/notebook.py", "--check"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_equation_of_the_notebook_has_a_doubled_backslash():
    """JSON's escape twice: readers saw the source of the first equation."""
    cells = json.loads((ROOT / "examples/real_in_ten_minutes.ipynb").read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert any(r"\log" in text for text in texts) and not [text for text in texts if r"\\" in text]


# The published TRL

# without what it asks for beside the environment of the tests
PIN = "trl==1.16.0"


def run_with_trl(folder: Path, code: str, *words: str) -> str:
    """What the code prints where TRL is installed; `pip` keeps it apart from the environment."""
    packages = folder / "packages"
    install = [f"{sys.prefix}/bin/uv", "pip", "install", "-q", "--python", sys.executable, "--no-deps"]
    subprocess.run([*install, "--target", str(packages), PIN], check=True)
    for file, block in NAMED.items():
        (folder / f"{file}.py").write_text(block)
    (folder / "script.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "script.py", *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TRL = """
import sys
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig
from trl_groups import GroupLossTrainer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
questions = [{"prompt": f"{number}{number + 1}{number + 2}1="} for number in range(1, 7)] * 4

def longest(completions, **_):
    return [float(len(one) % 2) for one in completions]

def train(**more):
    config = GRPOConfig(
        output_dir="out", use_cpu=True, bf16=False, per_device_train_batch_size=8, num_generations=4, num_iterations=2,
        max_completion_length=12, max_steps=4, report_to=[], logging_steps=1, save_strategy="no", learning_rate=1e-3,
        disable_tqdm=True, **more,
    )
    trainer = GroupLossTrainer(
        model=model, processing_class=AutoTokenizer.from_pretrained(sys.argv[1]), args=config, reward_funcs=[longest],
        train_dataset=Dataset.from_list(questions),
    )
    trainer.train()
    return [line["real/score_std"] for line in trainer.state.log_history if "real/loss" in line]

print("scores", *train(steps_per_generation=1))
try:
    train(gradient_accumulation_steps=2)
except ValueError as error:
    print("torn", error)
"""


@every
def test_the_class_of_the_page_trains_with_the_published_trl(tmp_path):
    """Two updates a batch, by TRL's own generation: the first finds all scores 0. The default of TRL tears groups."""
    said = run_with_trl(tmp_path, TRL, str(tiny_task.unpack() / "model"))
    spread = [float(word) for word in re.search(r"^scores (.*)", said, re.MULTILINE)[1].split()]
    assert len(spread) == 4 and max(spread[0], spread[2]) < 1e-5 and min(spread[1], spread[3]) > 1e-3
    assert re.search(r"^torn group \d+ has \d responses on rank 0, not 4", said, re.MULTILINE), said


@every
def test_the_program_of_the_page_trains_real_with_the_published_trl(tmp_path):
    """As it stands, but for the model, a CPU and two steps. Some group of the tiny model's is mixed."""
    (program,) = (block for block in BLOCKS if block.startswith("# train.py"))
    task = tiny_task.unpack()
    small = "use_cpu=True, bf16=False, max_steps=2, max_completion_length=14, report_to=[], logging_steps=1,\n"
    program = program.replace('output_dir="out",', f'output_dir="out", {small}')
    program = program.replace("Qwen/Qwen2.5-1.5B-Instruct", str(task / "model"))
    rows = [json.loads(line) for line in (task / "train.jsonl").read_text().splitlines()[:32]]
    lines = (json.dumps({"prompt": row["prompt"], "solution": row["label"]}) + "\n" for row in rows)
    (tmp_path / "questions.jsonl").write_text("".join(lines))
    ask = 'print("losses", *(line["real/loss"] for line in trainer.state.log_history if "real/loss" in line))'
    losses = re.search(r"^losses (.*)", run_with_trl(tmp_path, program + ask), re.MULTILINE)[1].split()
    assert len(losses) == 2 and max(map(float, losses)) > 0, losses


OUR_REWARD = """
import sys
import torch
from datasets import Dataset
from same_answer.trl import accuracy_reward
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
config = GRPOConfig(
    output_dir="out", use_cpu=True, bf16=False, per_device_train_batch_size=8, num_generations=4, max_steps=2,
    max_completion_length=12, report_to=[], logging_steps=1, save_strategy="no", disable_tqdm=True,
)
rows = [{"prompt": f"{number}231=", "solution": gold} for number in range(1, 7) for gold in ("7", "")]
trainer = GRPOTrainer(
    model=model, processing_class=AutoTokenizer.from_pretrained(sys.argv[1]), args=config,
    reward_funcs=[accuracy_reward], train_dataset=Dataset.from_list(rows),
)
said = [[{"prompt": "1+1=", "solution": gold} for gold in ("2", "2", "")], ["1+1="] * 3]
said += [[f"so \\\\boxed{{{number}}}" for number in (2, 3, 2)], [[1]] * 3]
print("rewards", trainer._calculate_rewards(*said).flatten().tolist())
trainer.train()
print("losses", *(line["loss"] for line in trainer.state.log_history if "loss" in line))
"""


@every
def test_the_published_trl_leaves_out_what_our_reward_does_not_grade(tmp_path):
    """Groups without a gold train nothing, and no loss is nan."""
    said = run_with_trl(tmp_path, OUR_REWARD, str(tiny_task.unpack() / "model"))
    assert "rewards [1.0, 0.0, nan]\n" in said
    losses = re.search(r"^losses (.*)", said, re.MULTILINE)[1].split()
    assert len(losses) == 2 and all(math.isfinite(float(loss)) for loss in losses)


# Tinker: a service with real gradients (examples/tinker/tinker_stub.py)

FILE = ROOT / "examples/tinker/train.py"


@pytest.fixture
def example(monkeypatch, tmp_path):
    """The names of the example, run with a stand-in for the client; its runs go into a folder of the test's."""
    monkeypatch.chdir(tmp_path)
    return names_of(FILE, monkeypatch)


def names_of(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "tinker", tinker_stub.stand_in())
    names = {"__name__": "example"}
    monkeypatch.setitem(sys.modules, "example", Namespace(__dict__=names))  # dataclasses look themselves up
    exec(compile(file.read_text(), file, "exec"), names)
    return Namespace(**names)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """The tiny task of the CPU recipe, with few questions held out."""
    folder, few = tiny_task.unpack(), tmp_path_factory.mktemp("questions") / "few.jsonl"
    few.write_text("".join(open(folder / "eval.jsonl").readlines()[:16]))
    return folder, few


def words(task, *more):
    folder, few = task
    files = ["--model", str(folder / "model"), "--data", str(folder / "train.jsonl"), "--eval", str(few)]
    return [*files, "--max-tokens", "13", "--eval-samples", "8", *map(str, more)]


@pytest.mark.parametrize("objective", ["real", "bce", f"{ROOT}/examples/objectives/disco.py:disco_lratio"])
@pytest.mark.parametrize("old_policy", ["sampler", "trainer"])
def test_the_weights_that_are_sent_are_the_gradient_in_float64(example, objective, old_policy):
    """Ragged prompts and answers, one without a verdict, scores that moved. The loss sees float32, as the client's."""
    generator = torch.Generator().manual_seed(1)
    rewards, groups = [1.0, 0.0, 0.0, 1.0, math.nan, 0.0, 1.0, 0.0], [0] * 4 + [1] * 4
    rollouts, new, old = [], [], []
    for place, (prompt, said) in enumerate([(2, 5), (2, 1), (2, 3), (2, 4), (3, 2), (3, 6), (3, 1), (3, 2)]):
        count = prompt + said - 1
        drawn, before, now = (-torch.rand(count, generator=generator) for _ in range(3))
        mask = torch.tensor([0.0] * (prompt - 1) + [1.0] * said)
        datum = tinker_stub.Datum([0] * count)
        rollouts.append(example.Rollout(groups[place], datum, drawn * mask, mask, rewards[place]))
        new.append(now.requires_grad_(True))
        old.append(drawn * mask if old_policy == "sampler" else before)
    loss, metrics = example.group_loss(rollouts, old, 4, objective=objective)([], new)
    loss.backward()

    settings = ObjectiveSettings(objective)
    leaves = [one.detach().double().requires_grad_(True) for one in new]
    own = [one.mask.bool() for one in rollouts]
    columns = [[one[on].double() for one, on in zip(part, own, strict=True)] for part in (leaves, old)]
    scores = [naive_score(settings.score, *pair) for pair in zip(*columns, strict=True)]
    labels = [-1 if math.isnan(reward) else int(reward) for reward in rewards]
    losses, _ = naive_losses(settings, range(8), groups, scores, labels, [max(label, 0) for label in labels])
    expected = sum(losses) / 2
    expected.backward()
    assert metrics["real/loss"] == pytest.approx(expected.item(), rel=1e-12)
    for got, leaf in zip(new, leaves, strict=True):
        torch.testing.assert_close(got.grad, leaf.grad.float(), rtol=1e-6, atol=1e-9)
    assert sum(one.grad.abs().sum() for one in new) > 0.1


@pytest.mark.parametrize("old_policy", ["sampler", "trainer"])
def test_two_updates_of_a_batch_have_one_old_policy_and_the_report_reads_the_run(example, task, old_policy):
    service = tinker_stub.Service(task[0] / "model")
    counts = ["--steps", 2, "--prompts", 2, "--group", 16, "--updates", 2, "--lr", 1e-2, "--eval-samples", 1]
    args = example.parse([*words(task, *counts), "--old-policy", old_policy, "--seed", "3"])
    run = read_run(example.train(args, lambda: tinker_stub.ServiceClient(service)))
    assert (run.algo, run.status, run.last_step) == ("real", "finished", 2)
    assert [*run.logged["eval"]["eval_few_pass1"].index] == [0, 2]
    assert len(service.weights) == 2 * 32 and len(service.snapshots) == 3
    assert abs(run.logged["train"]["real/score_neg"].iloc[0]) > 1e-3  # the second update found a moved policy


def test_the_first_update_finds_the_policy_that_sampled(example, task):
    counts = ["--steps", 1, "--prompts", 2, "--group", 16, "--updates", 1, "--eval-samples", 1]
    service = tinker_stub.ServiceClient(tinker_stub.Service(task[0] / "model"))
    numbers = read_run(example.train(example.parse(words(task, *counts)), lambda: service)).logged["train"]
    assert max(map(abs, numbers["real/score_pos"].values)) < 1e-5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--data", "none.jsonl"], "no file or folder none.jsonl. Check the path"),
        (["--eval", "bare.jsonl"], "a row of --data or --eval has no `prompt` or no `label`"),
        (["--prompts", 3], "--prompts 3: give a multiple of --updates 2, at most the 8000 rows of "),
        (["--reward", "none.py"], "none.py cannot be read (No such file or directory)"),
        (["--objective", "trpa"], "score kind log_ratio_ref needs ref_log_probs"),
        (["--set", "eta=1"], "the objective has no setting 'eta'"),
    ],
)
def test_what_cannot_train_is_one_line_before_the_service_is_asked(example, task, more, message):
    Path("bare.jsonl").write_text('{"prompt": "1="}\n')
    with pytest.raises(SystemExit, match=re.escape(message)):
        example.train(example.parse(words(task, *more)), None)


def summed(log_probs, weights, scale=lambda own: 1.0):
    return sum(-(new * own).sum() * scale(own) for new, own in zip(log_probs, weights, strict=True))


SKYRL_FAILS = ["linear", "signed", "sums responses", "exact"]
FAULTS = {  # by what a server does with log-probabilities and weights: what the probe says that it does not
    "the API's loss": (summed, []),
    "divided by their sum and the number of responses, as SkyRL 0.3.0's JAX back end":
        (lambda new, own: summed(new, own, lambda one: 1 / one.sum().clamp(min=1e-9) / len(own)), SKYRL_FAILS),
    "divided by the number of tokens": (lambda new, own: summed(new, own, lambda one: 1 / len(one)), ["sums tokens"]),
    "divided by the number of weights that are not 0":
        (lambda new, own: summed(new, own, lambda one: 1 / (one != 0).sum().clamp(min=1)), ["sums tokens"]),
    "divided by the number of responses":
        (lambda new, own: summed(new, own) / len(own), ["sums responses", "sums tokens", "exact"]),
    "taken for a mask": (lambda new, own: summed(new, [(one > 0).float() for one in own]),
                         ["linear", "signed", "sums responses", "exact"]),
    "cut at 0": (lambda new, own: summed(new, [one.clamp(min=0) for one in own]), ["signed", "sums responses"]),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_probe_names_what_a_server_does_with_the_weights(task, monkeypatch, capsys, fault):
    loss, wrong = FAULTS[fault]
    probe = names_of(FILE.with_name("probe.py"), monkeypatch)
    service = tinker_stub.Service(task[0] / "model")
    service.loss = loss
    words = ["--model", "tiny", "--tokens", "3,4,5,6,7,8,9", "9,8,7,6,5,4,3,5,6"]
    failed = probe.main(words, lambda: tinker_stub.ServiceClient(service))
    assert re.findall(r"NOT: (.*)", capsys.readouterr().out) == wrong and failed == bool(wrong)


# SkyRL's server, which a package index must have

SKYRL = "skyrl[jax,tinker]==0.3.0", "tinker==0.18.0", "orjson"
OURS = "torch transformers datasets peft accelerate numpy huggingface-hub tokenizers safetensors"  # what it gets of us
SERVER = (
    'python -m skyrl.tinker.api "$@" & wait'  # the server reads its parent's words to start its engine by `uv run`
)
UV = '#!/bin/bash\nwhile [ "$1" != -m ]; do shift; done\nexec python "$@"\n'
ON_3_11 = "import typing, typing_extensions\ntyping.TypedDict = typing_extensions.TypedDict\n"  # pydantic asks for it


@every
def test_the_probe_names_what_skyrls_own_server_does_with_the_weights(tmp_path):
    """Its JAX back end on a CPU, asked by the client of its time over HTTP."""
    packages, model = tmp_path / "packages", tmp_path / "model"
    (tmp_path / "ours.txt").write_text("".join(f'{name} ; python_version < "3"\n' for name in OURS.split()))
    install = [f"{sys.prefix}/bin/uv", "pip", "install", "-q", "--python", sys.executable, "--target", packages]
    done = subprocess.run([*install, "--override", tmp_path / "ours.txt", *SKYRL], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"SkyRL's server cannot be installed here: {done.stderr[-300:]}")
    (packages / "sitecustomize.py").write_text(ON_3_11)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").write_text(UV)
    (tmp_path / "bin/uv").chmod(0o755)
    sizes = {"vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16}
    tiny_models.model_of("Qwen3", **sizes).save_pretrained(model)
    tiny_models.letters().save_pretrained(model)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--base-model", model, "--host", "127.0.0.1", "--port", port, "--checkpoints-base", tmp_path / "saved"]
    words += ["--backend-config", '{"max_lora_adapters": 32, "max_lora_rank": 8}']
    words += ["--database-url", f"sqlite:///{tmp_path}/tinker.db"]
    variables = {**os.environ, "PATH": f"{tmp_path}/bin:{sys.prefix}/bin:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    variables |= {"PYTHONPATH": f"{packages}:{ROOT}", "TINKER_API_KEY": "tml-none", "HF_HUB_OFFLINE": "1"}
    variables["TINKER_BASE_URL"] = f"http://127.0.0.1:{port}"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            ["bash", "-c", SERVER, "--", *map(str, words)], env=variables, cwd=tmp_path, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        while server.poll() is None and not listens(port):
            time.sleep(1)
        probe = [sys.executable, FILE.with_name("probe.py"), "--model", model, "--tokens"]
        asked = [*probe, "3,4,5,6,7,8,9", "9,8,7,6,5,4,3,5,6"]
        done = subprocess.run(asked, env=variables, cwd=tmp_path, capture_output=True, text=True)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    said = done.stdout + done.stderr + (tmp_path / "log").read_text()[-3000:]
    assert done.returncode == 1 and re.findall(r"NOT: (.*)", done.stdout) == SKYRL_FAILS, said


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
