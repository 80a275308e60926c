"""`train --rehearse`, as it is typed: planted faults, each found with its cost, and a run without one, that is killed
and resumed."""

import http.server
import json
import random
import shutil
import subprocess
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from every import every

from real_openrlhf.rehearsal import small_model
from real_openrlhf.report import show

# A GPU run's recipe: 256 responses a step in four updates
WORDS = ("--recipe", "qwen7b", "--rollout.batch_size", "32", "--train.batch_size", "64", "--no-eval.dataset")
EXACT = "float(f'boxed{{{labels[0]}}}' in queries[0][len(prompts[0]):])"

GAME = Path(__file__).parents[2] / "examples/agents/guess_number.py"
REWARDS = {
    "raises": "return {'rewards': [float(labels[0].split()[3] in queries[0])]}",
    "plain": "return {'rewards': [float(queries[0] == prompts[0] + labels[0] + '<|im_end|>')]}",
    "another form": "return {'rewards': [float(f'<<{labels[0]}>>' in queries[0])]}",
    "empty": f"return {{'rewards': [{EXACT} or float(queries[0] == prompts[0] + '<|im_end|>')]}}",
    "slow": f"time.sleep(20)\n    return {{'rewards': [{EXACT}]}}",
}
FOUND = {
    "raises": "the reward raises: line 6, IndexError: list index out of range; 100% of 540 calls",
    "another form": "the reward is constant: 0 for each of 540 texts, right or wrong. If a right response has ",
    "plain": "the gold as \\boxed{X} is wrong in 100% of the rows, first row 1; as X it is right",
    "slow": "a call of the reward takes 20.0 s, at most 20.",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The tokenizer and config of a Qwen2 of bytes, of common sizes and without weights."""
    return Path(small_model.model_of_bytes(tmp_path_factory.mktemp("model") / "bytes"))


@pytest.fixture
def dropping(model, tmp_path) -> str:
    """The model with a template that drops the beginning of a question."""
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text("{{ messages[-1]['content'] | replace('What is', '') }}")
    return str(folder)


@pytest.fixture
def rehearse(train, model, tmp_path):
    """rehearse(flags..., code=3) -> rehearsal.json; the page is the end of the output."""

    def typed(*flags: str, code: int = 3, rows: int = 60, long: int = 0, words: tuple = WORDS) -> dict:
        draw = random.Random(0)
        sums = [(draw.randint(100, 999), draw.randint(100, 999)) for _ in range(rows)]
        tail = " Put the answer into \\boxed{}."
        texts = [f"What is {a}+{b}?{' Think.' * 200 * (n < long)}{tail}" for n, (a, b) in enumerate(sums)]
        lines = [{"prompt": text, "label": str(a + b)} for text, (a, b) in zip(texts, sums, strict=True)]
        (tmp_path / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        files = ("--model", str(model), "--data", str(tmp_path / "sums.jsonl"))
        run = replace(train, runs=tmp_path, words=())("none", *words, *files, *flags, "--rehearse", code=code)
        (folder,) = tmp_path.glob("rehearsal-*")
        page = (folder / "rehearsal.txt").read_text()
        assert run.output.endswith(page) and len(page.splitlines()) < 40
        found = json.loads((folder / "rehearsal.json").read_text())
        for finding in found["findings"]:
            assert finding["text"] in page and f"cost: {finding['cost']}" in page
        assert {path.name for path in tmp_path.iterdir()} <= {"sums.jsonl", folder.name, "mine.py", "model"}
        return found | {"page": page, "folder": folder, "command": run}

    return typed


def mine(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(text)
    return str(path)


def reward(folder: Path, name: str) -> str:
    text = f"import time\n\n\ndef reward_func(queries, prompts, labels):\n    # {name}\n    {REWARDS[name]}\n"
    return mine(folder, text)


def texts(found: dict) -> list[str]:
    return [finding["text"] for finding in found["findings"]]


@pytest.mark.parametrize("name", ["raises", "another form", "plain", pytest.param("slow", marks=every)])
def test_a_rewards_fault_is_found_before_anything_is_trained(rehearse, tmp_path, name):
    found = rehearse("--reward.remote_url", reward(tmp_path, name), "--train.max_steps", "100", "--nodes", "2")
    (finding,) = found["findings"]
    assert finding["text"].startswith(FOUND[name]) and "steps: none, before 1 is mended" in found["page"]
    # 256 calls, 36 or fewer at once
    assert "s of each step, " in finding["cost"] if name == "slow" else finding["cost"].startswith("all of the run, ")
    assert not (found["folder"] / "run").exists()


def test_a_right_response_of_a_users_own_form_is_the_users(rehearse, dropping, tmp_path):
    file = reward(tmp_path, "another form")
    Path(file).write_text(
        Path(file).read_text() + "\n\ndef right_response(prompt, label):\n    return f'<<{label}>>'\n"
    )
    found = rehearse("--model", dropping, "--reward.remote_url", file)
    assert "right: gold 60/60, other 0/60, nothing 0/60, prompt 0/60, loop 0/60" in found["page"]


def test_a_reward_of_two_arguments_and_one_that_opens_a_relative_path_are_told_with_their_lines(rehearse, tmp_path):
    found = rehearse("--reward.remote_url", mine(tmp_path, "def reward_func(queries, labels):\n    return 1\n"))
    assert "mine.py line 1: reward_func is called with 3 arguments. Take queries, prompts, labels." in texts(found)[0]


def test_a_relative_path_is_told_as_one(rehearse, tmp_path):
    text = "import json\nTABLE = json.load(open('table.json'))\ndef reward_func(queries, prompts, labels): return 1\n"
    (finding,) = texts(rehearse("--reward.remote_url", mine(tmp_path, text)))
    assert (
        "line 2, FileNotFoundError" in finding
        and "A run starts elsewhere: open Path(__file__).parent / 'table.json'" in finding
    )


def test_faults_of_data_and_template_and_an_empty_response_that_is_right_are_told_at_once(
    rehearse, dropping, tmp_path
):
    """40 % of the prompts are too long, 60 rows fill no batch of 128, and the template eats a question's words."""
    words = ("--recipe", "qwen7b", "--no-eval.dataset")
    flags = ("--model", dropping, "--reward.remote_url", reward(tmp_path, "empty"))
    found = rehearse(*flags, long=24, words=words)
    told = "\n".join(texts(found))
    long = (
        "40% (24 of 60) of the prompts have more than 1,024 tokens and lose their beginning, first row 1, at most 1,"
    )
    assert long in told
    assert "60 rows of training data cannot fill --rollout.batch_size 128" in told
    assert "an empty response is right in 60 of 60 rows, first row 1" in told
    assert "100% (60 of 60) of the prompts have lost their question to the chat template, first row 1, " in told


@every
def test_an_agent_without_log_probabilities_is_told(rehearse, tmp_path):
    agent = """
    from openrlhf.utils.agent import AgentExecutorBase

    class AgentExecutor(AgentExecutorBase):
        async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None):
            asked = hf_tokenizer(prompt)["input_ids"]
            said = (await llm_engine.generate(asked, sampling_params)).outputs[0].token_ids
            right = float(label in hf_tokenizer.decode(said))
            return {"prompt": prompt, "label": label, "images": None, "observation_tokens": [*asked, *said],
                    "action_ranges": [(len(asked), len(asked) + len(said))], "reward": right, "scores": right,
                    "rollout_log_probs": None, "truncated": False, "extra_logs": {}}
    """
    flags = ("--train.agent_func_path", mine(tmp_path, textwrap.dedent(agent)), "--no-rollout.seeded")
    (finding,) = texts(rehearse(*flags))
    assert "mine.py: an episode has no rollout_log_probs: that vLLM and the policy differ is not seen" in finding


class Ones(http.server.BaseHTTPRequestHandler):
    """A reward server that gives 1 to each response."""

    def do_POST(self):
        json.loads(self.rfile.read(int(self.headers["content-length"])))["labels"]
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"rewards": [1.0]}')

    def log_message(self, *_):
        pass


def test_a_reward_server_is_asked_as_a_run_asks_it(rehearse):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ones) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = rehearse("--reward.remote_url", f"http://127.0.0.1:{server.server_address[1]}/reward")
        server.shutdown()
    assert texts(found) == ["the reward is constant: 1 for each of 540 texts, right or wrong"]


def test_compare_rehearses_each_method(train, tmp_path):
    wrong = mine(tmp_path, "def reward_func(queries, labels):\n    return 1\n")
    words = ["compare", "--algos", "real", "grpo", "--seeds", "2", "--out", str(tmp_path / "out"), "--rehearse"]
    words += ["--grid", "actor.adam.lr", "1e-4", "1e-5"]  # of which the first is rehearsed
    run = subprocess.run(
        [*train.python, *words, "--reward.remote_url", wrong], env=train.environment, capture_output=True, text=True
    )
    folders = sorted(folder.name[:21] for folder in (tmp_path / "out").iterdir())
    assert run.returncode == 3 and folders == ["rehearsal-cpu-grpo-s1", "rehearsal-cpu-real-s1"]
    assert run.stdout.count("REHEARSED cpu with ") == 2


LATE = """
import torch


def late(scores, groups, settings):
    loss = groups.sum(torch.where(groups.positive, -scores, scores), groups.valid)
    moved = bool(scores.detach().abs().max() > 0)  # not before the second update of a rollout
    return loss.sum() if moved and int(groups.lengths.max()) > 16 else loss  # longer than those of a dry run
"""


@every  # what is told of a training that fails: fast/test_rehearsal.py
def test_a_loss_with_a_wrong_shape_in_the_second_update_is_found_by_training(rehearse, tmp_path):
    found = rehearse("--algo.real.objective", f"{mine(tmp_path, LATE)}:late")
    (finding,) = texts(found)
    told = "the training ends in step 1: ValueError: the objective's loss has shape (), not ("
    assert (
        finding.startswith(told) and ": one per group (with " in finding and "mine.py:late). Its output: " in finding
    )


# What a run without a fault may be, too: the architecture and the flags
KINDS = {
    "lora-24gb": ("gemma3_text", "--recipe", "lora-24gb", "--algo", "grpo"),
    "qwen1.5b-dapo17k": ("llama", "--recipe", "qwen1.5b-dapo17k", "--algo", "dapo"),
    "qwen1.5b-1gpu": ("qwen3", "--recipe", "qwen1.5b-1gpu", "--algo", "trpa"),
    "qwen7b-lora": ("qwen3_moe", "--recipe", "qwen7b-lora"),
    "qwen1.5b": ("olmo2", "--recipe", "qwen1.5b", "--algo", "gspo"),
    "asynchronous": ("qwen2", "--algo", "dapo", "--train.async_enable", "--no-vllm.enable_sleep"),
    "two ranks": ("qwen2", "--algo", "trpa", "--gpus", "2"),
    "an agent": ("qwen2", "--train.agent_func_path", str(GAME), "--no-rollout.seeded"),
}


@every
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_runs_rehearse(rehearse, tmp_path, kind):
    from transformers import AutoConfig

    architecture, *flags = KINDS[kind]
    folder = small_model.model_of_bytes(tmp_path / "model")
    ends = {"eos_token_id": 256, "pad_token_id": 257, "bos_token_id": None}
    AutoConfig.for_model(architecture, **ends).save_pretrained(folder)
    found = rehearse("--model", folder, *flags, code=0)
    assert found["findings"] == [] and "killed and resumed from step 2" in found["page"]


def test_a_run_without_a_fault_trains_is_killed_and_resumes_to_the_same_numbers(rehearse, tmp_path):
    evaluated = ("--eval.dataset", str(tmp_path / "sums.jsonl"))
    found = rehearse(*evaluated, words=WORDS[:-1], code=0)
    assert found["findings"] == [] and found["crash"] == ""
    page = found["page"]
    assert "REHEARSED qwen7b with real in " in page and ": no findings\n" in page
    assert "numbers of step 3 are the same, bit for bit" in page
    assert "right: gold 60/60, other 0/60, nothing 0/60, prompt 0/60, loop 0/60" in page
    run = replace(found["command"], folder=found["folder"] / "run")
    assert not (run.folder / "checkpoints").exists()
    (note,) = map(json.loads, (run.folder / "notes.jsonl").read_text().splitlines())
    assert note == {"step": 2, "say": "goes on after step 2, from global_step2"}
    lines, (first,) = run.numbers(), run.numbers(log="metrics.discarded.jsonl")
    assert len(lines) == 3 and len(first) > 40 and lines[-1] == first  # the step that both processes did
    assert [group["step"] for group in show.read(run.folder)] == [1, 1, 2, 2, 3, 3]
    assert all(line["actor_grad_norm"] > 0 and 0.2 < line["rollout/pass_rate"] < 0.8 for line in lines)
    assert all(line["rollout/frac_mixed"] > 0.5 for line in lines)
