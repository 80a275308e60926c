"""One seed, one order: prompts and their rollouts come in the same order in two processes that share nothing else.

Each process is `main` below: OpenRLHF's own data loader and sample generator, with torch's global generator in another
state, and engines that answer in another order.
"""

import itertools
import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PROMPTS = 23
RUNS = {
    "seeded": ("--rollout.seeded_order",),
    "other seed": ("--rollout.seeded_order", "--train.seed", "7"),
    "all samples": ("--rollout.seeded",),
    "drawn ahead": ("--rollout.seeded", "--train.async_enable", "--rollout.vllm_generate_batch_size", "13"),
    "drawn to its end": ("--rollout.seeded", "--train.async_enable", "--rollout.vllm_generate_batch_size", "16"),
}


@pytest.fixture(scope="module")
def processes(python, tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("order")
    data = folder / "prompts.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{i} + 1", "label": str(i + 1)}) + "\n" for i in range(PROMPTS)))
    states = ("1", "2")
    running = [
        subprocess.Popen(
            [python, __file__, data, state, folder / f"{state}.json"],
            env={**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for state in states
    ]
    for process in running:
        printed, _ = process.communicate()
        assert process.returncode == 0, printed[-4000:]
    return [json.loads((folder / f"{state}.json").read_text()) for state in states]


@pytest.mark.parametrize("run", RUNS)
def test_prompts_and_rollouts_are_the_same_in_both(processes, run):
    one, other = (process[run] for process in processes)
    assert one["prompts"] == other["prompts"] and one["rollouts"] == other["rollouts"]
    assert one["arrived"] != other["arrived"]  # though the engines answered in another order


def test_prompts_have_another_order_with_another_seed(processes):
    assert processes[0]["seeded"]["prompts"] != processes[0]["other seed"]["prompts"]
    assert processes[0]["seeded"]["prompts"] == processes[0]["all samples"]["prompts"]


@pytest.mark.parametrize("run", RUNS)
def test_each_epoch_is_another_order_of_all_prompts_and_rollouts_keep_it(processes, run):
    prompts, rollouts = processes[0][run]["prompts"], processes[0][run]["rollouts"]
    first, second = prompts[:PROMPTS], prompts[PROMPTS:]
    assert sorted(first) == sorted(second) and len(set(first)) == PROMPTS and first != second
    kept = [prompt for prompt in prompts if not filtered(prompt)]
    assert 0 < len(kept) < len(prompts)
    assert rollouts == [prompt for prompt in kept for _ in range(2)]  # two samples of each, side by side


@pytest.mark.parametrize("run", [*RUNS][2:])
def test_a_run_that_goes_on_from_any_step_draws_what_it_would_have_drawn(processes, run):
    """Batches and the seeds of their samples: in the middle and at the end of an episode, with rollouts ahead."""
    for process in processes:
        batches, later = process[run]["batches"], process[run]["later"]
        assert len(batches) > 2 * PROMPTS * 2 // 3 // 8
        for step, (rest, seeds) in enumerate(later, 1):
            assert rest == batches[step:]
            assert seeds == process[run]["seeds"][step]
    assert processes[0][run]["batches"] == processes[1][run]["batches"]


def filtered(prompt: str) -> bool:
    """Every third prompt is solved by all of its samples, so dynamic filtering draws another in its place."""
    return int(prompt.split()[0]) % 3 == 0


# What runs in a process.


def run(flags: tuple[str, ...], data: str) -> dict:
    from openrlhf.cli.train_ppo_ray import parse_args
    from openrlhf.trainer.ppo_trainer import prepare_datasets
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
    from openrlhf.utils import get_strategy

    def loader():
        return prepare_datasets(strategy, tokenizer=None)[0]

    def prompts(batches) -> list[str]:
        return [prompt for _, batch, _, _ in batches for prompt in batch]

    args = parse_args(
        [
            *("--actor.model_name_or_path", "model", "--reward.remote_url", "reward.py", *flags),
            *("--data.prompt_dataset", data, "--data.input_key", "prompt", "--data.label_key", "label"),
            *("--rollout.batch_size", "8", "--rollout.n_samples_per_prompt", "2", "--rollout.micro_batch_size", "1"),
            *("--algo.dynamic_filtering_enable", "--algo.advantage.estimator", "group_norm"),
        ]
    )
    strategy = get_strategy(args)
    whole = loader()

    def drawn(state: bytes | None = None) -> tuple[list, list, list]:
        """Two episodes as a trainer goes through them, or their rest: each batch's prompts, what was left to ask and
        where the stream was after it, and which answers came first."""
        stream, engine = loader(), Engine()
        generator = SamplesGenerator(strategy, stream, None, None, [engine])
        first = 0
        if state:
            first, content = pickle.loads(state)
            stream.load_state_dict(content)
        batches, after = [], [(0, b"")]
        for episode in range(first, 2):
            exhausted = False
            while not exhausted:
                samples, _, _, exhausted = generator.generate_samples(max_len=16)
                if samples:
                    batches.append([sample.prompts[0] for sample in samples])
                    after.append((len(engine.asked), pickle.dumps((episode, stream.state_dict()))))
        return batches, [(sorted(engine.asked[count:]), state) for count, state in after], engine.arrived

    batches, after, arrived = drawn()
    resumed = [drawn(state)[:2] for _, state in after[1:]]
    return {
        "prompts": prompts(whole) + prompts(whole),
        "rollouts": list(itertools.chain.from_iterable(batches)),
        "arrived": arrived,
        "batches": batches,
        "seeds": [seeds for seeds, _ in after],
        "later": [(batches, places[0][0]) for batches, places in resumed],
    }


class Engine:
    """Answers as a Ray actor does; which request is ready first is up to chance."""

    def __init__(self) -> None:
        from openrlhf.trainer.ppo_utils import samples_generator

        self.arrived: list[str] = []
        self.asked: list[tuple[str, int | None]] = []
        self.get_num_unfinished_requests = SimpleNamespace(remote=lambda: Request(0))
        self.generate_responses = SimpleNamespace(remote=lambda **asked: Request(self.answers(**asked)))
        samples_generator.ray = SimpleNamespace(wait=self.wait, get=get)

    def answers(self, prompt, label, num_samples, sampling_params, **_) -> list[dict]:
        self.asked.append((prompt, sampling_params.seed))
        scores = [1.0] * num_samples if filtered(prompt) else [1.0] + [0.0] * (num_samples - 1)
        same = {"prompt": prompt, "label": label, "observation_tokens": [3, 4, 5], "action_ranges": [(1, 3)]}
        return [{**same, "reward": score, "scores": score, "rollout_log_probs": None} for score in scores]

    def wait(self, pending, num_returns, timeout):
        ready = random.choice(pending)
        self.arrived.append(ready.answer[0]["prompt"])
        return [ready], [request for request in pending if request is not ready]


class Request:
    def __init__(self, answer) -> None:
        self.answer = answer


def get(asked):
    return [request.answer for request in asked] if isinstance(asked, list) else asked.answer


def main(data: str, state: str, out: str) -> None:
    import torch

    random.seed(state)
    found = {}
    for name, flags in RUNS.items():
        torch.manual_seed(int(state))
        found[name] = run(flags, data)
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
