"""docs/change/elsewhere.md with the published TRL and verl, which a package index must have: `run.sh every`.

With stand-ins, at every run: test_page_code.py. Tinker: test_tinker.py.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from every import every

from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.tasks import default

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/change/elsewhere.md").read_text()
PINS = {  # without what they ask for beside the environment of the tests
    "trl": ["trl==1.16.0"],
    "verl": [
        "verl==0.9.1",
        "tensordict==0.10.0",
        "pyvers",
        "omegaconf",
        "hydra-core",
        "antlr4-python3-runtime==4.9.3",
        "codetiming",
        "orjson",
        "torchdata",
    ],
}


def run_with(name: str, folder: Path, code: str, *words: str) -> str:
    """What the code prints where this trainer is installed; `pip` keeps it apart from the environment."""
    packages = folder / "packages"
    install = [f"{sys.prefix}/bin/uv", "pip", "install", "-q", "--python", sys.executable, "--no-deps"]
    subprocess.run([*install, "--target", str(packages), *PINS[name]], check=True)
    for file, block in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        (folder / file).write_text(block)
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
    return [float(len(one) % 3) for one in completions]

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
    said = run_with("trl", tmp_path, TRL, str(tiny_model.prepare(default("reverse")) / "model"))
    spread = [float(word) for word in re.search(r"^scores (.*)", said, re.MULTILINE)[1].split()]
    assert len(spread) == 4 and max(spread[0], spread[2]) < 1e-5 and min(spread[1], spread[3]) > 1e-3
    assert re.search(r"^torn group \d+ has \d rollouts on rank 0, not 4", said, re.MULTILINE), said


VERL = """
from types import SimpleNamespace
import torch
import estimator
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, get_adv_estimator_fn
from real_openrlhf import real_policy_loss

generator = torch.Generator().manual_seed(0)
old = -torch.rand(8, 5, generator=generator)
mask = (torch.arange(5) < torch.tensor([5, 1, 3, 2, 4, 1, 2, 3])[:, None]).float()
rewards = torch.tensor([0.25, 1.0, 0.0, 0.5, 1.0, 1.0, 0.5, 0.75])
uids = [f"prompt {row // 4}" for row in range(8)]
advantages, _ = get_adv_estimator_fn("listwise")(
    token_level_rewards=rewards[:, None] * torch.tensor([0.0, 0, 0, 0, 1]), response_mask=mask, index=uids, config=None
)
new = old.clone().requires_grad_()

class Config(SimpleNamespace):
    def get(self, name, otherwise):
        return otherwise

config = Config(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2, global_batch_info={"global_batch_size": 8})
for rows in ([0, 5, 3], [1, 2, 4, 6, 7]):
    columns = old[rows], new[rows], advantages[rows], mask[rows]
    compute_policy_loss_vanilla(*columns, loss_agg_mode="seq-mean-token-sum", config=config)[0].backward()
loss, _ = real_policy_loss(new, old, mask, rewards, uids, objective="listwise")
torch.testing.assert_close(new.grad, torch.autograd.grad(loss, new)[0], rtol=1e-5, atol=1e-7)
print("norm", float(new.grad.norm()))
"""


@every
def test_the_estimator_of_the_page_has_our_gradient_in_the_published_verl(tmp_path):
    """verl's registry, and its PPO loss over micro-batches that tear groups."""
    assert float(run_with("verl", tmp_path, VERL).split()[1]) > 0.01


# the loss alone: Python 3.10 to 3.13

ALONE = ["real_openrlhf", "algorithm.policy_loss", "algorithm.token_log_probs", "algorithm.trial"]
IMPORTS = """
import importlib, sys
from unittest.mock import MagicMock
for name in ("torch", "torch.distributed", "torch.nn", "torch.nn.functional", "torch.utils.checkpoint", "numpy"):
    sys.modules[name] = MagicMock()
sys.modules["torch"].Tensor = type("Tensor", (), {})
sys.modules["torch"].nn.Module = sys.modules["torch"].autograd.Function = type("Base", (), {})
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_the_loss_has_no_syntax_that_python_3_10_lacks():
    for file in [ROOT / "real_openrlhf/__init__.py", *(ROOT / "real_openrlhf/algorithm").glob("*.py")]:
        ast.parse(file.read_text(), feature_version=(3, 10))
    assert 'python_requires=">=3.10"' in (ROOT / "setup.py").read_text()


@every
@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_the_loss_imports_nothing_that_other_pythons_lack(version):
    """With a stand-in for torch, of which an index may have no small build for that Python."""
    names = [path.as_posix() for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    python = next(iter(names), shutil.which(f"python{version}"))
    if python is None:
        pytest.skip(f"no Python {version} here")
    modules = [ALONE[0], *(f"real_openrlhf.{name}" for name in ALONE[1:])]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([python, "-c", IMPORTS, *modules], env=environment, check=True)
