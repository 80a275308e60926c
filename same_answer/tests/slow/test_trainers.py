"""The adapters with the published packages, which a package index must have: REAL_TEST_EVERY=1, or `run.sh every`.

Each package is unpacked beside the environment of the tests, without what it asks for but the few named here.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import same_answer

pytestmark = pytest.mark.skipif("REAL_TEST_EVERY" not in os.environ, reason="downloads: bash tests/run.sh every")

# Packages without their own `__init__`, which import whole trainers; each reward file is the wheel's.
BARE = """
import importlib.util, math, sys, types
def bare(*names):
    for name in names:
        parent, _, last = name.rpartition(".")
        folders = sys.modules[parent].__path__ if parent else sys.path
        module = types.ModuleType(name)
        module.__path__ = [found for found in (f"{folder}/{last}" for folder in folders) if os.path.isdir(found)][:1]
        sys.modules[name] = module
import os
import same_answer.math_verify
names = ("math_verify", "math_verify.parser", "math_verify.grader", "math_verify.errors")
sys.modules |= dict.fromkeys(names, same_answer.math_verify)
RIGHT, WRONG, TOWER = r"so \\boxed{\\frac{2}{4}}", r"so \\boxed{3}", r"so \\boxed{9^{9^{9^{9}}}}"
"""

TRL = """
bare("trl", "trl.rewards")
sys.modules["trl.import_utils"] = types.SimpleNamespace(is_math_verify_available=lambda: True)
from trl.rewards.accuracy_rewards import accuracy_reward
print(accuracy_reward([[{"content": one}] for one in (RIGHT, WRONG, TOWER)], ["$0.5$"] * 3))
"""
VERL = """
bare("verl", "verl.utils", "verl.utils.reward_score")
from verl.utils.reward_score import math_verify
print([math_verify._verify_in_subprocess("\\\\boxed{0.5}", one) for one in (RIGHT, WRONG, TOWER)])
"""
AREAL = """
import logging
bare("areal", "areal.utils")
sys.modules["areal.utils.logging"] = logging
from areal.reward import get_math_verify_worker
print([get_math_verify_worker().verify(one, "\\\\boxed{0.5}") for one in (RIGHT, WRONG, TOWER)])
"""
VERIFIERS = """
import inspect
bare("verifiers", "verifiers.v1", "verifiers.v1.utils")
sys.modules["verifiers.v1.errors"] = types.SimpleNamespace(SandboxError=OSError)
from verifiers.v1.utils.score import verify_boxed_math_answer as theirs
from same_answer.verifiers import verify_boxed_math_answer as ours
assert str(inspect.signature(theirs)).replace("'", "") == str(inspect.signature(ours))
for response in (None, "2", "<think>" + RIGHT):
    assert theirs(response, "0.5") == ours(response, "0.5") == 0.0
print([theirs(one, "0.5") for one in (RIGHT, WRONG, TOWER)])
"""
LM_EVAL = """
import runpy
bare("lm_eval")
from importlib import metadata
metadata.version = lambda name: "4.11"  # of a parser that the task asks for and math_verify does not
task = runpy.run_path(sys.modules["lm_eval"].__path__[0] + "/tasks/minerva_math/utils.py")
said = (RIGHT, "Final Answer: The final answer is $3$. I hope it is correct.", TOWER)
gold = {"solution": r"Half of 1 is $\\\\boxed{0.5}$.", "answer": "0.5"}
print([float(task["process_results"](gold, [one])["math_verify"]) for one in said])
"""
FILES = {
    "trl==1.16.0": TRL,
    "verl==0.9.1": VERL,
    "areal==1.0.4": AREAL,
    "verifiers==0.4.0": VERIFIERS,
    "lm-eval==0.4.13": LM_EVAL,
}


def run(folder: Path, code: str, *packages: str) -> str:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder / "packages", *packages]
    subprocess.run(pip, check=True)
    paths = [folder / "packages", Path(same_answer.__file__).parents[1]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    (folder / "script.py").write_text(code)
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", FILES)
def test_a_reward_file_runs_unchanged_on_our_names(tmp_path, package):
    assert run(tmp_path, BARE + FILES[package], package).splitlines()[-1] == "[1.0, 0.0, 0.0]"


VERLS_OWN = """
import asyncio
from types import SimpleNamespace
import numpy, torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import get_custom_reward_fn
own = {"path": "pkg://same_answer.verl", "name": "compute_score"}
config = OmegaConf.create({"reward": {"custom_reward_function": own}})
tokenizer = SimpleNamespace(decode=lambda ids, **_: "so \\\\boxed{%d}" % ids[0])
async def scored(gold):
    row = {"data_source": "math", "reward_model": {"ground_truth": gold}, "extra_info": {"question": "1+1="}}
    arrays = {name: numpy.array([value], dtype=object) for name, value in row.items()}
    tensors = {"responses": torch.tensor([[2]]), "attention_mask": torch.ones(1, 1, dtype=int)}
    manager = NaiveRewardManager(config, tokenizer, get_custom_reward_fn(config))
    return await manager.run_single(DataProto.from_dict(tensors, arrays))
for gold in ("2.0", "3", ""):
    print(asyncio.run(scored(gold)))
"""


def test_verl_loads_the_reward_by_its_name_and_logs_what_is_ungraded(tmp_path):
    needed = ("tensordict", "pyvers", "omegaconf", "codetiming", "orjson")
    said = run(tmp_path, VERLS_OWN, "verl==0.9.1", *needed).splitlines()[-3:]
    for line, score, ungraded in zip(said, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), strict=True):
        logged = {"score": score, "ungraded": ungraded, "copied": 0.0}
        assert line == str({"reward_score": score, "reward_extra_info": logged})
