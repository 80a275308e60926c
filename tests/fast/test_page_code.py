"""The Python of the pages in docs/change runs, for other trainers on stand-ins; so does the notebook.

With the published TRL and verl, in `run.sh every`: test_other_trainers.py.
"""

import asyncio
import collections
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from real_openrlhf import group_weights, real_policy_loss

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "change/elsewhere.md"


def python_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


BLOCKS, OBJECTIVES = python_of(PAGE), python_of(DOCS / "change/objectives.md")
NAMED = {found[1]: block for block in BLOCKS if (found := re.match(r"# (\w+)\.py\n", block))}


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


def test_the_blocks_that_need_torch_alone_run(capsys):
    first, advantages = (block for block in BLOCKS if block not in NAMED.values())
    assert run(first)["new"].grad.abs().sum() > 0
    run(advantages)
    assert capsys.readouterr().out.strip() == advantages.rpartition("# ")[2].strip()  # as the page says


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
    inputs = trainer._generate_and_score_completions([None] * 8)
    assert inputs["rewards"].tolist() == pytest.approx(rewards.tolist(), nan_ok=True)
    model = SimpleNamespace(training=True)
    spoken = (torch.arange(TOKENS) != 1).long()  # a tool has said the second word
    for more, before, seen in (
        ({}, new.detach(), mask),
        ({"old_per_token_logps": old, "tool_mask": spoken}, old, mask * spoken),
    ):
        expected, metrics = real_policy_loss(new, before, seen, rewards, groups, objective="listwise")
        loss = trainer._compute_loss(model, {**inputs, **more})
        assert loss.item() == pytest.approx(expected.item() / 2, abs=1e-15)  # of two calls an update
        torch.testing.assert_close(
            *(torch.autograd.grad(one, new)[0] for one in (2 * loss, expected)), rtol=1e-12, atol=0
        )
        assert trainer._metrics["train"]["real/loss"][-1] == metrics["real/loss"]
    torn = {name: column[[0, 1, 2, 3, 4, 5]] for name, column in inputs.items()}
    trainer.new, trainer._get_per_token_logps_and_entropies = new[:6], lambda *_: (new[:6], None, None)
    with pytest.raises(ValueError, match="group 3 has 2 rollouts on rank 0, not 4"):
        trainer._compute_loss(model, torn)


def estimator(monkeypatch, module: str, decorator: str):
    """The page's estimator, where only this trainer is installed."""
    registered = {}
    for name in ("verl.trainer.ppo.core_algos", "skyrl.backends.skyrl_train.utils.ppo_utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    setattr(sys.modules[module], decorator, lambda name: lambda function: registered.setdefault(name, function))
    run(NAMED["estimator"])
    return registered["listwise"]


@pytest.mark.parametrize("trainer", ["verl", "skyrl"])
def test_the_estimator_has_our_gradient_at_the_first_update_in_any_micro_batches(drawn, monkeypatch, trainer):
    """Their loss there: -advantage * ratio, sums over tokens, mean over rollouts, of which a call has a part."""
    places = {
        "verl": ("verl.trainer.ppo.core_algos", "register_adv_est"),
        "skyrl": ("skyrl.backends.skyrl_train.utils.ppo_utils", "register_advantage_estimator"),
    }
    listwise = estimator(monkeypatch, *places[trainer])
    _, old, mask, rewards, groups = drawn
    rewards = rewards.nan_to_num(0.75)
    last = torch.zeros(8, TOKENS, dtype=torch.float64)
    last[:, -1] = rewards
    uids = [f"prompt {group}" for group in groups.tolist()]
    advantages, _ = listwise(token_level_rewards=last, response_mask=mask, index=uids, config=None)
    scale = 1 / 8
    if trainer == "skyrl":  # seq_mean_token_sum_norm with max_seq_len 1: scaled before any split, then summed
        advantages, scale = advantages / (len(advantages) * 1), 1
    new = old.clone().requires_grad_()
    for rows in ([0, 5, 3], [1, 2, 4, 6, 7]):
        ratio = (new[rows] - old[rows]).exp()
        (-(advantages * mask)[rows] * ratio).sum().mul(scale).backward()
    expected, _ = real_policy_loss(new, old, mask, rewards, groups, objective="listwise")
    torch.testing.assert_close(new.grad, torch.autograd.grad(expected, new)[0], rtol=1e-6, atol=1e-8)


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
sys.argv = ["notebook.py", "--check"]
import runpy
runpy.run_path("docs/notebook.py", run_name="__main__")
"""


def test_the_notebook_runs_with_torch_and_matplotlib_alone_and_prints_what_is_stored():
    done = subprocess.run([sys.executable, "-c", NOTEBOOK_ALONE], cwd=DOCS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
